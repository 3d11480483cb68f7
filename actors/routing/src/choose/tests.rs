use cluster_messages::{
    BlockHash, Capacity, Deadline, Epoch, Fingerprint, Header, KvEvent, KvEventKind, LoadReport, NodeId, Registration,
    RequestId, SamplePoint, TraceContext,
};

use super::*;
use crate::Weights;

const BLOCK_TOKENS: u32 = 16;

fn instance(role: Role, ordinal: u32) -> InstanceRef {
    InstanceRef {
        path: ActorPath::new(role, ordinal),
        epoch: Epoch(1),
    }
}

fn decode(ordinal: u32) -> InstanceRef {
    instance(Role::Decode, ordinal)
}

fn prefill(ordinal: u32) -> InstanceRef {
    instance(Role::Prefill, ordinal)
}

fn registration(instance: InstanceRef) -> Registration {
    Registration {
        instance,
        node: NodeId("local".into()),
        generation: 1,
        model: Fingerprint(1),
        layout: Fingerprint(1),
        capacity: Capacity {
            requests: 10,
            blocks: 100,
            block_tokens: BLOCK_TOKENS,
            context: 4096,
        },
        folds: Vec::new(),
        needs: Vec::new(),
        addresses: Vec::new(),
    }
}

fn route(blocks: u32) -> Route {
    Route {
        media: Vec::new(),
        header: Header {
            request: RequestId(1),
            deadline: Deadline(1000),
            trace: TraceContext::default(),
        },
        blocks: (1..=u128::from(blocks)).map(BlockHash).collect(),
        prompt_tokens: blocks * BLOCK_TOKENS + 1,
        exclude: Vec::new(),
    }
}

/// A cluster and its router.
struct Scene {
    view: View,
    index: Index,
    policy: Policy,
    state: PolicyState,
}

impl Scene {
    /// `count` decode instances with prefill inside.
    fn aggregated(count: u32, policy: Policy) -> Self {
        Self::of(
            (0..count).map(|ordinal| Registration {
                folds: vec![Role::Prefill],
                ..registration(decode(ordinal))
            }),
            policy,
        )
    }

    fn split(prefills: u32, decodes: u32) -> Self {
        let prefills = (0..prefills).map(prefill);
        Self::of(
            prefills.chain((0..decodes).map(decode)).map(registration),
            Policy::kv_aware(),
        )
    }

    fn of(registrations: impl Iterator<Item = Registration>, policy: Policy) -> Self {
        let mut view = View::new();
        for registration in registrations {
            view.register(registration);
        }
        Self {
            view,
            index: Index::new(),
            policy,
            state: PolicyState::default(),
        }
    }

    fn holds(&mut self, instance: InstanceRef, blocks: u128) {
        let kind = KvEventKind::Snapshot((1..=blocks).map(BlockHash).collect());
        self.index.apply(&KvEvent { instance, seq: 1, kind });
    }

    fn runs(&mut self, instance: InstanceRef, running: u32) {
        let sample = SamplePoint {
            running,
            ..SamplePoint::default()
        };
        assert!(self.view.report(&LoadReport {
            instance,
            seq: 1,
            sample
        }));
    }

    fn choose(&mut self, route: &Route) -> Result<RouteDecision, Refusal> {
        choose(route, &self.view, &self.index, self.policy, &mut self.state)
    }

    fn decide(&mut self, route: &Route) -> RouteDecision {
        self.choose(route)
            .unwrap_or_else(|refusal| panic!("{refusal}: {:?}", refusal.candidates))
    }

    fn refuse(&mut self, route: &Route) -> Refusal {
        match self.choose(route) {
            Ok(decision) => panic!("{decision:?}"),
            Err(refusal) => refusal,
        }
    }
}

fn reasons(candidates: &[Candidate]) -> Vec<String> {
    let reason = |candidate: &Candidate| {
        let reason = candidate
            .rejected
            .as_deref()
            .unwrap_or(if candidate.chosen { "chosen" } else { "-" });
        format!("{}: {reason}", candidate.instance.path)
    };
    candidates.iter().map(reason).collect()
}

#[test]
fn the_instance_that_holds_the_prefix_is_chosen() {
    let mut scene = Scene::aggregated(3, Policy::kv_aware());
    scene.holds(decode(1), 20);
    let decision = scene.decide(&route(40));
    assert_eq!((decision.decode, decision.prefill), (decode(1), None));
    let best = &decision.candidates[0];
    assert!(best.chosen);
    assert_eq!((best.cost.cached_tokens, best.cost.new_tokens), (320.0, 321.0));
    assert_eq!(
        reasons(&decision.candidates),
        ["decode.1: chosen", "decode.0: -", "decode.2: -"]
    );
    assert_eq!(decision.policy, "kv-aware");
}

#[test]
fn a_short_prefix_is_not_worth_waiting_behind_other_requests() {
    let mut scene = Scene::aggregated(2, Policy::kv_aware());
    scene.holds(decode(1), 20);
    scene.runs(decode(1), 2);
    // 320 tokens saved against 2 requests of 128 tokens each.
    assert_eq!(scene.decide(&route(40)).decode, decode(1));
    let mut scene = Scene::aggregated(2, Policy::kv_aware());
    scene.holds(decode(1), 20);
    scene.runs(decode(1), 3);
    assert_eq!(scene.decide(&route(40)).decode, decode(0));
}

#[test]
fn totals_are_the_weighted_sum_of_the_terms() {
    let weights = Weights {
        compute: 2.0,
        transfer: 0.5,
        request: 100.0,
    };
    let mut scene = Scene::aggregated(1, Policy::KvAware(weights));
    scene.holds(decode(0), 1);
    scene.runs(decode(0), 3);
    let cost = scene.decide(&route(2)).candidates[0].cost;
    assert_eq!(
        (cost.new_tokens, cost.cached_tokens, cost.load, cost.total),
        (17.0, 16.0, 3.0, 334.0)
    );
}

#[test]
fn the_last_token_is_computed_even_when_every_block_is_held() {
    let mut scene = Scene::aggregated(1, Policy::kv_aware());
    scene.holds(decode(0), 4);
    let mut route = route(4);
    route.prompt_tokens = 4 * BLOCK_TOKENS;
    let cost = scene.decide(&route).candidates[0].cost;
    assert_eq!((cost.cached_tokens, cost.new_tokens), (48.0, 16.0));
}

#[test]
fn equal_costs_go_to_the_lower_load_and_then_the_lower_path() {
    let mut scene = Scene::aggregated(3, Policy::kv_aware());
    assert_eq!(scene.decide(&route(1)).decode, decode(0));
    // 8 blocks of 16 tokens are worth one request: equal totals.
    scene.holds(decode(0), 8);
    scene.runs(decode(0), 1);
    let decision = scene.decide(&route(8));
    assert_eq!(decision.candidates[0].cost.total, decision.candidates[2].cost.total);
    assert_eq!(decision.decode, decode(1));
}

#[test]
fn a_burst_is_spread_before_any_report_arrives() {
    let mut scene = Scene::aggregated(4, Policy::kv_aware());
    let mut counts = [0; 4];
    for ticket in 0..20 {
        let decision = scene.decide(&route(2));
        scene.view.begin(ticket, &route(2), &decision);
        counts[decision.decode.path.ordinal as usize] += 1;
    }
    assert_eq!(counts, [5; 4]);
}

#[test]
fn least_loaded_looks_at_nothing_else() {
    let mut scene = Scene::aggregated(3, Policy::LeastLoaded);
    scene.holds(decode(0), 20);
    scene.runs(decode(0), 2);
    scene.runs(decode(1), 3);
    scene.runs(decode(2), 1);
    assert_eq!(scene.decide(&route(20)).decode, decode(2));
}

#[test]
fn round_robin_goes_on_after_the_last_one_when_instances_come_and_go() {
    let mut scene = Scene::aggregated(3, Policy::RoundRobin);
    let turn = |scene: &mut Scene| scene.decide(&route(1)).decode.path.ordinal;
    let first: Vec<_> = (0..5).map(|_| turn(&mut scene)).collect();
    assert_eq!(first, [0, 1, 2, 0, 1]);
    scene.view.unregister(decode(1));
    assert_eq!((turn(&mut scene), turn(&mut scene), turn(&mut scene)), (2, 0, 2));
    scene.view.set_draining(decode(0), true);
    assert_eq!((turn(&mut scene), turn(&mut scene)), (2, 2));
}

#[test]
fn a_split_request_gets_a_prefill_of_its_own_kind() {
    let mut scene = Scene::split(2, 2);
    scene.holds(prefill(1), 10);
    scene.holds(decode(1), 10);
    let decision = scene.decide(&route(10));
    assert_eq!((decision.decode, decision.prefill), (decode(1), Some(prefill(1))));
    let chosen: Vec<_> = decision
        .candidates
        .iter()
        .filter(|candidate| candidate.chosen)
        .collect();
    assert_eq!(chosen.len(), 2);
}

#[test]
fn prefill_and_decode_of_different_generations_models_or_layouts_never_pair() {
    type Change = fn(&mut Registration);
    let changes: [(&str, Change); 3] = [
        ("generation", |registration| registration.generation = 2),
        ("model", |registration| registration.model = Fingerprint(2)),
        ("page layout", |registration| registration.layout = Fingerprint(2)),
    ];
    for (what, change) in changes {
        let mut scene = Scene::split(2, 2);
        for other in [prefill(0), decode(1)] {
            let mut registration = registration(other);
            change(&mut registration);
            scene.view.register(registration);
        }
        for ticket in 0..4 {
            let decision = scene.decide(&route(1));
            assert_ne!(
                decision.decode.path.ordinal,
                decision.prefill.unwrap().path.ordinal,
                "{what}"
            );
            scene.view.begin(ticket, &route(1), &decision);
        }
        scene.view.unregister(prefill(1));
        scene.view.unregister(decode(1));
        let refusal = scene.refuse(&route(1));
        let differs = format!("prefill.0: its {what} differs from that of the decode instance");
        assert_eq!(
            reasons(&refusal.candidates),
            ["decode.0: no prefill instance goes with it", &differs]
        );
        assert_eq!(refusal.error.kind, ErrorKind::Unavailable);
    }
}

#[test]
fn every_rejected_candidate_says_why() {
    let mut scene = Scene::aggregated(5, Policy::kv_aware());
    scene.view.set_draining(decode(1), true);
    scene.view.set_suspected(decode(2), true);
    scene.runs(decode(3), 10);
    let mut route = route(1);
    route.exclude.push(decode(4));
    let decision = scene.decide(&route);
    let expected = [
        "decode.0: chosen",
        "decode.1: it is draining",
        "decode.2: it makes no progress",
        "decode.4: it already failed this request",
        "decode.3: it is full: 10 of 10 requests",
    ];
    assert_eq!(reasons(&decision.candidates), expected);
}

#[test]
fn an_instance_in_a_new_life_is_not_excluded_for_the_old_ones_failure() {
    let mut scene = Scene::aggregated(1, Policy::kv_aware());
    let mut route = route(1);
    route.exclude.push(decode(0));
    assert_eq!(scene.refuse(&route).error.kind, ErrorKind::Unavailable);
    let next = InstanceRef {
        epoch: Epoch(2),
        ..decode(0)
    };
    scene.view.register(Registration {
        folds: vec![Role::Prefill],
        ..registration(next)
    });
    assert_eq!(scene.decide(&route).decode, next);
}

#[test]
fn pages_of_an_earlier_life_are_not_counted() {
    let mut scene = Scene::aggregated(2, Policy::kv_aware());
    scene.holds(decode(1), 20);
    let next = InstanceRef {
        epoch: Epoch(2),
        ..decode(1)
    };
    scene.view.register(Registration {
        folds: vec![Role::Prefill],
        ..registration(next)
    });
    let decision = scene.decide(&route(20));
    assert_eq!(decision.decode, decode(0));
    assert!(
        decision
            .candidates
            .iter()
            .all(|candidate| candidate.cost.cached_tokens == 0.0)
    );
}

#[test]
fn nobody_registered_is_unavailable_with_a_time_to_try_again() {
    let refusal = Scene::aggregated(0, Policy::kv_aware()).refuse(&route(1));
    assert_eq!(
        (refusal.error.kind, refusal.error.retry_after_ms),
        (ErrorKind::Unavailable, Some(1000))
    );
    assert!(refusal.candidates.is_empty());
}

#[test]
fn everybody_full_is_overloaded_whichever_side_is_full() {
    let mut scene = Scene::aggregated(2, Policy::kv_aware());
    scene.runs(decode(0), 10);
    scene.runs(decode(1), 11);
    let error = RequestError::from(scene.refuse(&route(1)));
    assert_eq!((error.kind, error.retry_after_ms), (ErrorKind::Overloaded, Some(1000)));

    let mut scene = Scene::split(1, 1);
    scene.runs(prefill(0), 10);
    let refusal = scene.refuse(&route(1));
    assert_eq!(refusal.error.kind, ErrorKind::Overloaded);
    assert_eq!(
        reasons(&refusal.candidates),
        [
            "decode.0: no prefill instance goes with it",
            "prefill.0: it is full: 10 of 10 requests"
        ]
    );
}

#[test]
fn a_prompt_that_fits_nobody_is_the_clients_to_shorten() {
    let mut scene = Scene::aggregated(2, Policy::kv_aware());
    let mut route = route(1);
    route.prompt_tokens = 4095;
    scene.decide(&route);
    route.prompt_tokens = 4096;
    let error = scene.refuse(&route).error;
    assert_eq!((error.kind, error.retry_after_ms), (ErrorKind::ContextLength, None));
    assert!(error.message.contains("4096"));
}

#[test]
fn equal_scenes_decide_equally() {
    let run = || {
        let mut scene = Scene::split(3, 3);
        let decide = |number: u32| {
            let route = route(number % 7);
            let decision = scene.decide(&route);
            scene.view.begin(number.into(), &route, &decision);
            if number.is_multiple_of(3) {
                scene.view.end(number.into());
            }
            decision
        };
        (0..30).map(decide).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}
