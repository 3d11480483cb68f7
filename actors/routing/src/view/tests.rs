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
        media: Vec::new(),
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
        encoders: Vec::new(),
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
    view.begin(1, &route(10), &decision(instance(0, 1)));
    view.register(registration(instance(0, 2)));
    assert_eq!(load(&view, 0), 0);
    assert!(!view.instances[&ActorPath::new(Role::Decode, 0)].is_suspected());
    view.end(1);
    assert_eq!(load(&view, 0), 0, "the old life's work is not taken from the new one's");
}

#[test]
fn registering_again_in_the_same_life_keeps_what_is_known() {
    let mut view = View::new();
    view.register(registration(instance(0, 1)));
    view.set_draining(instance(0, 1), true);
    view.begin(1, &route(10), &decision(instance(0, 1)));
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
    for ticket in 0..5 {
        view.begin(ticket, &route(10), &decision(instance(0, 1)));
    }
    assert_eq!((load(&view, 0), view.in_flight()), (5, 5));
    for ticket in 0..5 {
        view.end(ticket);
        view.end(ticket);
    }
    assert_eq!((load(&view, 0), view.in_flight()), (2, 0));
}

#[test]
fn work_whose_deadline_passed_is_no_load() {
    let mut view = View::new();
    view.register(registration(instance(0, 1)));
    view.begin(1, &route(10), &decision(instance(0, 1)));
    view.begin(2, &route(20), &decision(instance(0, 1)));
    view.expire(Deadline(10));
    assert_eq!(load(&view, 0), 2, "the deadline itself is in time");
    view.expire(Deadline(11));
    assert_eq!(load(&view, 0), 1);
    view.expire(Deadline(21));
    assert_eq!((load(&view, 0), view.in_flight()), (0, 0));
}

#[test]
fn an_end_that_overtakes_its_beginning_leaves_nothing_behind() {
    let mut view = View::new();
    view.register(registration(instance(0, 1)));
    view.end(7);
    view.begin(7, &route(10), &decision(instance(0, 1)));
    assert_eq!((load(&view, 0), view.in_flight()), (0, 0));
    view.begin(7, &route(10), &decision(instance(0, 1)));
    view.begin(7, &route(10), &decision(instance(0, 1)));
    assert_eq!(
        (load(&view, 0), view.in_flight()),
        (1, 1),
        "an end counts once, and so does a ticket"
    );
    view.end(7);
    for ticket in 100..1000 {
        view.end(ticket);
    }
    assert_eq!(view.early_ends.len(), EARLY_ENDS_MAX);
}

#[test]
fn a_prefill_instance_is_free_before_the_answer_is_over() {
    let prefill = InstanceRef {
        path: ActorPath::new(Role::Prefill, 0),
        epoch: Epoch(1),
    };
    let mut view = View::new();
    view.register(registration(instance(0, 1)));
    view.register(registration(prefill));
    let both = RouteDecision {
        prefill: Some(prefill),
        ..decision(instance(0, 1))
    };
    view.begin(1, &route(10), &both);
    let loads = |view: &View| (load(view, 0), view.instances[&prefill.path].load());
    assert_eq!(loads(&view), (1, 1));
    view.end_prefill(1);
    view.end_prefill(1);
    assert_eq!(loads(&view), (1, 0));
    view.begin(2, &route(10), &both);
    view.end(1);
    assert_eq!(loads(&view), (1, 1), "what was ended by half is not ended twice");
}
