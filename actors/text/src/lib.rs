//! Tokenizers, chat templates, detokenizing and stop matching.
