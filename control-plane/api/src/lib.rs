//! The control-plane gRPC API: proto, conversions, client.
