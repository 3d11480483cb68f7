use cluster_messages::{ActorPath, Epoch, Role};

use super::*;

const PATIENCE_MS: u64 = PATIENCE.as_millis() as u64;

fn decode(ordinal: u32) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Decode, ordinal),
        epoch: Epoch(1),
    }
}

fn error(kind: ErrorKind) -> RequestError {
    RequestError::new(kind, "test")
}

fn dies(tries: &mut Tries, has_progressed: bool) -> bool {
    tries.broke_off([Some(decode(0)), None], &error(ErrorKind::Lost), has_progressed, 0)
}

#[test]
fn a_request_that_kills_everyone_costs_three_lives() {
    let mut tries = Tries::default();
    assert_eq!([(); 3].map(|()| dies(&mut tries, false)), [true, true, false]);
}

#[test]
fn whoever_is_named_as_the_cause_is_avoided_and_nobody_else() {
    let encoder = InstanceRef {
        path: ActorPath::new(Role::Encoder, 0),
        epoch: Epoch(1),
    };
    let mut tries = Tries::default();
    let named = error(ErrorKind::Lost).caused_by(encoder);
    assert!(tries.broke_off([Some(decode(0)), Some(decode(1))], &named, false, 0));
    assert_eq!(tries.avoid, [encoder]);
}

#[test]
fn tickets_are_renewed_with_every_move() {
    let mut tries = Tries {
        sources: vec![MediumSource::File(crate::media_fixture::picture(1, 1))],
        ..Tries::default()
    };
    dies(&mut tries, true);
    assert!(tries.sources.is_empty());
}

#[test]
fn a_request_that_gets_on_may_be_moved_for_ever() {
    let mut tries = Tries::default();
    assert!((0..100).all(|_| dies(&mut tries, true)));
}

#[test]
fn errors_of_the_request_itself_are_not_tried_elsewhere() {
    for kind in [ErrorKind::Invalid, ErrorKind::Deadline, ErrorKind::Cancelled] {
        let mut tries = Tries::default();
        assert!(
            !tries.broke_off([Some(decode(0)), None], &error(kind), false, 0),
            "{kind:?}"
        );
        assert_eq!(Tries::default().refused(decode(0), error(kind)), Err(error(kind)));
    }
}

#[test]
fn a_first_attempt_asks_every_door_and_then_says_that_all_are_full() {
    let mut tries = Tries::default();
    for ordinal in 0..5 {
        assert_eq!(tries.refused(decode(ordinal), error(ErrorKind::Overloaded)), Ok(()));
    }
    assert_eq!(tries.avoid.len(), 5);
    let answer = tries.unrouted(error(ErrorKind::Unavailable), false);
    assert_eq!(answer, Err(error(ErrorKind::Overloaded)));
}

#[test]
fn a_first_attempt_that_nobody_took_does_not_wait() {
    let answer = Tries::default().unrouted(error(ErrorKind::Overloaded), false);
    assert_eq!(answer, Err(error(ErrorKind::Overloaded)));
}

#[test]
fn a_moved_request_waits_for_room_and_asks_again_whom_it_avoided() {
    let mut tries = Tries::default();
    dies(&mut tries, true);
    for kind in [ErrorKind::Overloaded, ErrorKind::Unavailable] {
        tries.refused(decode(1), error(ErrorKind::Overloaded)).unwrap();
        assert_eq!(tries.unrouted(error(kind), false), Ok(()));
        assert!(tries.avoid.is_empty());
    }
    assert_eq!(tries.lives, 1, "waiting costs no life");
    let answer = tries.unrouted(error(ErrorKind::Unavailable), true);
    assert_eq!(answer, Err(error(ErrorKind::Lost)));
}

#[test]
fn a_prefill_without_room_is_waited_for_as_long_as_patience_lasts() {
    let mut tries = Tries::default();
    let mut full = |now| tries.broke_off([Some(decode(0)), None], &error(ErrorKind::Overloaded), false, now);
    assert!((0..50).all(|step| full(1000 + step)));
    assert!(full(1000 + PATIENCE_MS - 1));
    assert!(!full(1000 + PATIENCE_MS));
}

#[test]
fn doors_without_anyone_behind_cost_no_life_and_those_who_fail_at_the_door_do() {
    let mut tries = Tries::default();
    for _ in 0..10 {
        tries.refused(decode(0), error(ErrorKind::Unavailable)).unwrap();
    }
    let lost = [(); 3].map(|()| tries.refused(decode(0), error(ErrorKind::Lost)).is_ok());
    assert_eq!(lost, [true, true, false]);
}
