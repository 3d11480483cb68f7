//! The binary `cluster`.

fn main() {}
