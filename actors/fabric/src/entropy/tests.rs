use std::collections::HashSet;

use super::*;

#[test]
fn a_seed_repeats_its_sequence_and_no_other() {
    let draw = |entropy: &Entropy| (0..100).map(|_| entropy.next_u64()).collect::<Vec<_>>();
    let first = draw(&Entropy::from_seed(1));
    assert_eq!(first, draw(&Entropy::from_seed(1)));
    assert_ne!(first, draw(&Entropy::from_seed(2)));
    assert_eq!(first.iter().collect::<HashSet<_>>().len(), 100);
}

#[test]
fn a_fork_is_independent_of_what_its_parent_drew() {
    let parent = Entropy::from_seed(1);
    let early = parent.fork("faults").next_u64();
    parent.next_u64();
    assert_eq!(parent.fork("faults").next_u64(), early);
    assert_ne!(parent.fork("ids").next_u64(), early);
}

#[test]
fn bounds_and_probabilities_hold() {
    let entropy = Entropy::from_seed(3);
    assert!((0..1000).all(|_| entropy.below(3) < 3));
    let hits = (0..10_000).filter(|_| entropy.chance(0.25)).count();
    assert!((2_200..2_800).contains(&hits), "{hits} of 10000 at 0.25");
    assert!(!entropy.chance(0.0) && entropy.chance(1.0));
    let base = Duration::from_millis(1000);
    for _ in 0..1000 {
        let jittered = entropy.jitter(base, 0.2);
        assert!(jittered >= Duration::from_millis(800) && jittered <= Duration::from_millis(1200));
    }
}

#[test]
fn two_processes_do_not_share_ids() {
    assert_ne!(Entropy::from_system().request_id(), Entropy::from_system().request_id());
}
