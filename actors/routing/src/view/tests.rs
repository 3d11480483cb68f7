use cluster_messages::{Capacity, Fingerprint, Header, NodeId, RequestId, TraceContext};

use super::*;

fn instance(ordinal: u32, epoch: u64) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Decode, ordinal),
        epoch: Epoch(epoch),
    }
}

fn registration(instance: InstanceRef) -> Registration {
    Registration {
        instance,
        node: NodeId("local".into()),
        generation: 1,
        model: Fingerprint(1),
        layout: Fingerprint(1),
        capacity: Capacity::default(),
        folds: Vec::new(),
        needs: Vec::new(),
        addresses: Vec::new(),
    }
}

fn report(instance: InstanceRef, seq: u64, running: u32) -> LoadReport {
    LoadReport {
        instance,
        seq,
        sample: SamplePoint {
            running,
            waiting: 1,
            ..SamplePoint::default()
        },
    }
}

fn route(deadline: u64) -> Route {
    Route {
        header: Header {
            request: RequestId(1),
            deadline: Deadline(deadline),
            trace: TraceContext::default(),
        },
        blocks: Vec::new(),
        prompt_tokens: 1,
        exclude: Vec::new(),
    }
}

fn decision(decode: InstanceRef) -> RouteDecision {
    RouteDecision {
        decode,
        prefill: None,
        candidates: Vec::new(),
        policy: "test".into(),
    }
}

fn load(view: &View, ordinal: u32) -> u32 {
    view.instances[&ActorPath::new(Role::Decode, ordinal)].load()
}

#[test]
fn an_earlier_life_cannot_replace_a_later_one() {
    let mut view = View::new();
    assert!(view.register(registration(instance(0, 2))));
    assert!(!view.register(registration(instance(0, 1))));
    view.unregister(instance(0, 1));
    assert_eq!(view.epoch(ActorPath::new(Role::Decode, 0)), Some(Epoch(2)));
    view.unregister(instance(0, 2));
    assert_eq!(view.epoch(ActorPath::new(Role::Decode, 0)), None);
}

#[test]
fn a_new_life_starts_without_load_and_suspicion() {
    let mut view = View::new();
    view.register(registration(instance(0, 1)));
    view.report(&report(instance(0, 1), 1, 5));
    view.set_suspected(instance(0, 1), true);
    let ticket = view.begin(&route(10), &decision(instance(0, 1)));
    view.register(registration(instance(0, 2)));
    assert_eq!(load(&view, 0), 0);
    assert!(!view.instances[&ActorPath::new(Role::Decode, 0)].is_suspected);
    view.end(ticket);
    assert_eq!(load(&view, 0), 0, "the old life's work is not taken from the new one's");
}

#[test]
fn registering_again_in_the_same_life_keeps_what_is_known() {
    let mut view = View::new();
    view.register(registration(instance(0, 1)));
    view.set_draining(instance(0, 1), true);
    view.begin(&route(10), &decision(instance(0, 1)));
    view.register(registration(instance(0, 1)));
    assert_eq!(load(&view, 0), 1);
    assert!(view.instances[&ActorPath::new(Role::Decode, 0)].is_draining);
}

#[test]
fn old_reports_and_those_of_other_lives_change_nothing() {
    let mut view = View::new();
    view.register(registration(instance(0, 2)));
    assert!(view.report(&report(instance(0, 2), 5, 3)));
    assert!(!view.report(&report(instance(0, 2), 5, 9)));
    assert!(!view.report(&report(instance(0, 2), 4, 9)));
    assert!(!view.report(&report(instance(0, 1), 6, 9)));
    assert_eq!(load(&view, 0), 4);
}

#[test]
fn the_larger_of_report_and_own_count_is_the_load() {
    let mut view = View::new();
    view.register(registration(instance(0, 1)));
    view.report(&report(instance(0, 1), 1, 1));
    let tickets: Vec<_> = (0..5)
        .map(|_| view.begin(&route(10), &decision(instance(0, 1))))
        .collect();
    assert_eq!((load(&view, 0), view.in_flight()), (5, 5));
    for ticket in tickets {
        view.end(ticket);
        view.end(ticket);
    }
    assert_eq!((load(&view, 0), view.in_flight()), (2, 0));
}

#[test]
fn work_whose_deadline_passed_is_no_load() {
    let mut view = View::new();
    view.register(registration(instance(0, 1)));
    view.begin(&route(10), &decision(instance(0, 1)));
    view.begin(&route(20), &decision(instance(0, 1)));
    view.expire(Deadline(10));
    assert_eq!(load(&view, 0), 2, "the deadline itself is in time");
    view.expire(Deadline(11));
    assert_eq!(load(&view, 0), 1);
    view.expire(Deadline(21));
    assert_eq!((load(&view, 0), view.in_flight()), (0, 0));
}
