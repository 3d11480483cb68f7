//! Whole clusters in one process, faults, and the invariants that must hold after them. Everything here goes through public
//! doors; nothing depends on this crate.
