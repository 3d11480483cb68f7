//! Fetching model files into the cache folder.
