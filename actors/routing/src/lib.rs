//! Which instance serves a request: prefix index, load view, policies.
