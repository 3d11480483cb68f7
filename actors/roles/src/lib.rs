//! The role actors and their supervisor.
