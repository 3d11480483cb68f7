//! One machine: inventory, starting and stopping of role hosts.
