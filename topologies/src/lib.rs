//! Topology and model files: schema, parsing and checks.
