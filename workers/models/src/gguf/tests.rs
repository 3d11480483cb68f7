//! Malformed and unusual files.
