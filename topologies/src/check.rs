//! What belongs together in a topology. Each check is a small function that reports everything it finds; a new rule is a
//! new function in the list.

mod parallel;
mod placement;
mod wiring;

use crate::{Problem, Topology};

type Check = fn(&Topology, &mut Vec<Problem>);

const CHECKS: &[Check] = &[
    wiring::roles_are_there,
    wiring::folds_are_possible,
    wiring::cache_and_tiers_go_together,
    wiring::pages_are_powers_of_two,
    wiring::pages_fill_a_kernels_tile,
    wiring::steps_hold_all_running,
    wiring::served_names_are_names,
    wiring::restart_waits_grow,
    wiring::spans_are_not_zero,
    placement::node_names_are_unique,
    placement::nodes_are_declared,
    placement::ports_are_unique,
    placement::device_counts_fit,
    placement::shared_devices_add_up,
    placement::devices_exist,
    parallel::experts_are_whole_or_cut,
    parallel::sequences_are_cut_as_matrices,
    parallel::towers_are_cut_as_matrices,
    parallel::pages_are_alike,
];

/// Everything that is wrong with a topology whose shape is right.
pub fn check(topology: &Topology) -> Vec<Problem> {
    let mut problems = Vec::new();
    for check in CHECKS {
        check(topology, &mut problems);
    }
    problems
}
