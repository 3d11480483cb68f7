//! Inventory and topology to an immutable plan.
