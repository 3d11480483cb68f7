//! Tensors and numeric operations: the reference, the CPU versions and the thread pool.
