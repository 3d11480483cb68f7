//! The program as its users meet it: arguments, files, exit codes, standard output and error.

mod chat;
mod files;
mod program;
mod pull;
mod running;
