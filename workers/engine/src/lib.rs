//! The scheduler, sequences, KV blocks, prefix tree and sampler of one worker.
