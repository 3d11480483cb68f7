//! Descriptions, good and bad.
