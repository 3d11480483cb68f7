use std::collections::BTreeMap;

use cluster_messages::{
    Capacity, Deadline, Epoch, Fingerprint, Header, LoadReport, NodeId, Registration, RequestId, SamplePoint,
    TraceContext,
};

use super::*;

fn encoder(ordinal: u32) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(Role::Encoder, ordinal),
        epoch: Epoch(1),
    }
}

fn view(encoders: impl IntoIterator<Item = u32>) -> View {
    let mut view = View::new();
    for ordinal in encoders {
        view.register(Registration {
            instance: encoder(ordinal),
            node: NodeId("local".into()),
            generation: 1,
            model: Fingerprint::default(),
            layout: Fingerprint::default(),
            capacity: Capacity::default(),
            folds: Vec::new(),
            needs: Vec::new(),
            addresses: Vec::new(),
        });
    }
    view
}

fn route(digests: impl IntoIterator<Item = u128>) -> Route {
    Route {
        header: Header {
            request: RequestId(1),
            deadline: Deadline(1000),
            trace: TraceContext::default(),
        },
        blocks: Vec::new(),
        prompt_tokens: 1,
        media: digests.into_iter().map(MediumDigest).collect(),
        exclude: Vec::new(),
    }
}

fn one(digest: u128, view: &View) -> InstanceRef {
    choose_encoders(&route([digest]), view).chosen[0]
}

fn reports(view: &mut View, ordinal: u32, seq: u64, running: u32) {
    let sample = SamplePoint {
        running,
        ..SamplePoint::default()
    };
    assert!(view.report(&LoadReport {
        instance: encoder(ordinal),
        seq,
        sample
    }));
}

#[test]
fn idle_encoders_share_files_about_evenly_and_each_file_has_its_own() {
    let view = view(0..4);
    let mut counts = BTreeMap::new();
    for digest in 0..4000 {
        let chosen = one(digest, &view);
        assert_eq!(chosen, one(digest, &view));
        *counts.entry(chosen).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 4);
    assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
}

#[test]
fn an_encoder_that_goes_moves_only_its_own_files() {
    let (four, three) = (view(0..4), view([0, 1, 3]));
    for digest in 0..1000 {
        let before = one(digest, &four);
        if before != encoder(2) {
            assert_eq!(one(digest, &three), before);
        }
    }
}

#[test]
fn nobody_gets_more_than_a_quarter_above_the_mean() {
    let mut view = view(0..4);
    for ticket in 0..400_u64 {
        // One picture that everybody asks about.
        let route = route([7]);
        let chosen = choose_encoders(&route, &view).chosen;
        view.begin_encoding(ticket, &route, &chosen);
    }
    let loads: Vec<_> = view.of_role(Role::Encoder).map(Seen::load).collect();
    assert_eq!(loads.iter().sum::<u32>(), 400);
    assert_eq!(loads.iter().max(), Some(&125), "{loads:?}");
    (0..400).for_each(|ticket| view.end_encoders(ticket));
    assert!(view.of_role(Role::Encoder).all(|seen| seen.load() == 0));
}

#[test]
fn the_reason_for_passing_an_encoder_over_is_told() {
    let mut view = view(0..2);
    let own = one(7, &view);
    let other = encoder(1 - own.path.ordinal);
    reports(&mut view, own.path.ordinal, 1, 10);
    let encoders = choose_encoders(&route([7]), &view);
    assert_eq!(encoders.chosen, [other]);
    let told: Vec<_> = encoders
        .candidates
        .iter()
        .map(|candidate| {
            (
                candidate.instance,
                candidate.cost.load,
                candidate.cost.total,
                candidate.rejected.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (own, 10.0, 0.0, Some("it has its share: 10 files of at most 7")),
            (other, 0.0, 1.0, None)
        ]
    );
    assert!(encoders.candidates[1].chosen && !encoders.candidates[0].chosen);
}

#[test]
fn a_file_that_comes_twice_goes_to_one_encoder() {
    let chosen = choose_encoders(&route([7, 7, 7, 7]), &view(0..4)).chosen;
    assert_eq!(chosen, vec![chosen[0]; 4]);
}

#[test]
fn those_who_failed_or_are_suspected_are_left_out() {
    let mut view = view(0..3);
    view.set_suspected(encoder(0), true);
    let mut asked = route(0..100);
    asked.exclude = vec![encoder(1)];
    let encoders = choose_encoders(&asked, &view);
    assert_eq!(encoders.chosen, vec![encoder(2); 100]);
    let reasons: Vec<_> = encoders
        .candidates
        .iter()
        .filter_map(|candidate| candidate.rejected.as_deref())
        .collect();
    assert_eq!(reasons, ["it makes no progress", "it already failed this request"]);
    asked.exclude.push(encoder(2));
    let chosen = choose_encoders(&asked, &view).chosen;
    assert_eq!(
        chosen,
        vec![encoder(0); 100],
        "one that may be slow is better than none"
    );
    asked.exclude.push(encoder(0));
    assert!(choose_encoders(&asked, &view).chosen.is_empty());
}

#[test]
fn an_encoder_that_has_work_and_makes_no_step_is_suspected_until_it_does() {
    let mut view = view(0..2);
    let mut seq = 0;
    let mut report = |view: &mut View, waiting: u32, steps: u64| {
        seq += 1;
        let sample = SamplePoint {
            waiting,
            steps,
            ..SamplePoint::default()
        };
        let instance = encoder(0);
        assert!(view.report(&LoadReport { instance, seq, sample }));
    };
    let serves = |view: &View| choose_encoders(&route(0..100), view).chosen.contains(&encoder(0));
    // Idle, however long.
    (0..20).for_each(|_| report(&mut view, 0, 7));
    assert!(serves(&view));
    (0..4).for_each(|_| report(&mut view, 1, 7));
    assert!(serves(&view), "a batch may take this long");
    report(&mut view, 1, 7);
    assert!(!serves(&view));
    report(&mut view, 1, 8);
    assert!(serves(&view));
}

#[test]
fn a_text_has_no_encoders() {
    assert_eq!(choose_encoders(&route([]), &view(0..2)), Encoders::default());
}
