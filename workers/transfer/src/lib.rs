//! Moving KV pages named by a ticket.
