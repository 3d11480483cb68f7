//! Model files to runnable models: specification, weights, the decoder.
