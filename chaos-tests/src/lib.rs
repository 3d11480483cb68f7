//! Whole clusters in one process, faults, invariants, the architecture test.
