//! Files in, texts out: every bad file is reported as the text beside it says, every shipped file is right.

mod bad_files;
mod reading;
mod shipped_files;
