//! Spans, metrics and logs: names, set-up, the in-memory trace store.
