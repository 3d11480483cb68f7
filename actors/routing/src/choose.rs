//! The decision: decode first, then the prefill that goes with it, then the encoders, which go with anybody.

use std::{cmp::Ordering, collections::BTreeMap};

use cluster_messages::{ActorPath, Candidate, Cost, ErrorKind, InstanceRef, RequestError, Role, Route, RouteDecision};

use crate::{Index, Policy, PolicyState, View, choose_encoders, policy::Missing, view::Seen};

/// When a client that found no instance should try again.
const RETRY_AFTER_MS: u32 = 1000;

/// No instance can take the request.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// For the client.
    pub error: RequestError,
    /// Everyone considered, with the reason against each.
    pub candidates: Vec<Candidate>,
}

impl From<Refusal> for RequestError {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}

/// Chooses who serves `route`. Equal costs are decided by load, then by path, so that equal views give equal decisions.
pub fn choose(
    route: &Route,
    view: &View,
    index: &Index,
    policy: Policy,
    state: &mut PolicyState,
) -> Result<RouteDecision, Refusal> {
    let ask = Ask {
        route,
        view,
        policy,
        overlaps: index.overlaps(&route.blocks),
    };
    let mut decode = ask.decode_options(state);
    let Some(chosen) = take_best(&mut decode) else {
        let without_partner = decode.iter().find(|entry| entry.rejected == Some(Rejection::NoPartner));
        let prefill = without_partner.map_or_else(Vec::new, |entry| ask.prefill_options(entry.seen, state));
        return Err(refuse(decode, prefill));
    };
    let mut prefill = Vec::new();
    let mut partner = None;
    if !chosen.folds_prefill() {
        prefill = ask.prefill_options(chosen, state);
        let found = take_best(&mut prefill).expect("a decode instance without a partner is rejected");
        state.last_prefill = Some(found.instance().path);
        partner = Some(found.instance());
    }
    state.last_decode = Some(chosen.instance().path);
    let encoders = choose_encoders(route, view);
    Ok(RouteDecision {
        decode: chosen.instance(),
        prefill: partner,
        candidates: candidates(decode, prefill, encoders.candidates),
        encoders: encoders.chosen,
        policy: policy.name().to_owned(),
    })
}

/// A question with what is known.
struct Ask<'a> {
    route: &'a Route,
    view: &'a View,
    policy: Policy,
    overlaps: BTreeMap<InstanceRef, u32>,
}

/// A candidate while the decision is made.
struct Entry<'a> {
    seen: &'a Seen,
    cost: Cost,
    rejected: Option<Rejection>,
    is_chosen: bool,
}

/// Why an instance cannot be chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Rejection {
    Excluded,
    Draining,
    Suspected,
    Full { load: u32, requests: u32 },
    Context { tokens: u32, context: u32 },
    NoPartner,
    Unlike(&'static str),
}

impl Rejection {
    fn text(&self) -> String {
        match self {
            Self::Excluded => "it already failed this request".into(),
            Self::Draining => "it is draining".into(),
            Self::Suspected => "it makes no progress".into(),
            Self::Full { load, requests } => format!("it is full: {load} of {requests} requests"),
            Self::Context { tokens, context } => format!("{tokens} tokens do not fit its context of {context}"),
            Self::NoPartner => "no prefill instance goes with it".into(),
            Self::Unlike(what) => format!("its {what} differs from that of the decode instance"),
        }
    }
}

impl<'a> Ask<'a> {
    fn decode_options(&self, state: &PolicyState) -> Vec<Entry<'a>> {
        let turns = turns(self.view, Role::Decode, state.last_decode);
        let entry = |(seen, turn): (&'a Seen, usize)| {
            let folded = seen.folds_prefill();
            let missing = if folded { Missing::Computed } else { Missing::Received };
            let rejected = self.rejection(seen).or_else(|| self.partner_rejection(seen));
            self.entry(seen, turn, missing, rejected)
        };
        turns.into_iter().map(entry).collect()
    }

    fn prefill_options(&self, decode: &Seen, state: &PolicyState) -> Vec<Entry<'a>> {
        let turns = turns(self.view, Role::Prefill, state.last_prefill);
        let entry = |(seen, turn): (&'a Seen, usize)| {
            let rejected = self.rejection(seen).or_else(|| unlike(decode, seen));
            self.entry(seen, turn, Missing::Computed, rejected)
        };
        turns.into_iter().map(entry).collect()
    }

    fn entry(&self, seen: &'a Seen, turn: usize, missing: Missing, rejected: Option<Rejection>) -> Entry<'a> {
        let cached = self.cached_tokens(seen);
        let cost = Cost {
            new_tokens: f64::from(self.route.prompt_tokens.saturating_sub(cached)),
            cached_tokens: f64::from(cached),
            load: f64::from(seen.load()),
            total: 0.0,
        };
        Entry {
            seen,
            cost: self.policy.weigh(cost, missing, turn),
            rejected,
            is_chosen: false,
        }
    }

    /// Prompt tokens whose pages the instance holds. The last token is always computed: its logits are needed.
    fn cached_tokens(&self, seen: &Seen) -> u32 {
        let blocks = self.overlaps.get(&seen.instance()).copied().unwrap_or(0);
        let block_tokens = seen.registration.capacity.block_tokens.max(1);
        let usable = self.route.prompt_tokens.saturating_sub(1) / block_tokens;
        blocks.min(usable) * block_tokens
    }

    /// What speaks against an instance whoever it works with.
    fn rejection(&self, seen: &Seen) -> Option<Rejection> {
        let capacity = seen.registration.capacity;
        if self.route.exclude.contains(&seen.instance()) {
            return Some(Rejection::Excluded);
        }
        if seen.is_draining {
            return Some(Rejection::Draining);
        }
        if seen.is_suspected() {
            return Some(Rejection::Suspected);
        }
        // One token of answer has to fit too.
        let tokens = self.route.prompt_tokens.saturating_add(1);
        if tokens > capacity.context {
            return Some(Rejection::Context {
                tokens,
                context: capacity.context,
            });
        }
        let load = seen.load();
        (load >= capacity.requests).then_some(Rejection::Full {
            load,
            requests: capacity.requests,
        })
    }

    /// A decode instance without prefill inside needs one that could work for it now.
    fn partner_rejection(&self, decode: &Seen) -> Option<Rejection> {
        if decode.folds_prefill() {
            return None;
        }
        let fits = |prefill: &Seen| unlike(decode, prefill).is_none() && self.rejection(prefill).is_none();
        let has_partner = self.view.of_role(Role::Prefill).any(fits);
        (!has_partner).then_some(Rejection::NoPartner)
    }
}

/// Why two instances cannot exchange pages.
fn unlike(decode: &Seen, prefill: &Seen) -> Option<Rejection> {
    let (decode, prefill) = (&decode.registration, &prefill.registration);
    if decode.generation != prefill.generation {
        return Some(Rejection::Unlike("generation"));
    }
    if decode.model != prefill.model {
        return Some(Rejection::Unlike("model"));
    }
    (decode.layout != prefill.layout).then_some(Rejection::Unlike("page layout"))
}

/// The instances of a role, each with how far its turn is: the one after `last` has 0.
fn turns(view: &View, role: Role, last: Option<ActorPath>) -> Vec<(&Seen, usize)> {
    let all: Vec<&Seen> = view.of_role(role).collect();
    let count = all.len();
    let next = all
        .iter()
        .position(|seen| last.is_none_or(|last| seen.instance().path > last))
        .unwrap_or(0);
    let turn = |(position, seen)| (seen, (position + count - next) % count);
    all.into_iter().enumerate().map(turn).collect()
}

/// Sorts the entries, those that can be chosen first, and marks the best.
fn take_best<'a>(entries: &mut [Entry<'a>]) -> Option<&'a Seen> {
    entries.sort_by(compare);
    let best = entries.first_mut().filter(|entry| entry.rejected.is_none())?;
    best.is_chosen = true;
    Some(best.seen)
}

fn compare(left: &Entry<'_>, right: &Entry<'_>) -> Ordering {
    let path = |entry: &Entry<'_>| entry.seen.instance().path;
    let rejected = left.rejected.is_some().cmp(&right.rejected.is_some());
    rejected
        .then(left.cost.total.total_cmp(&right.cost.total))
        .then(left.cost.load.total_cmp(&right.cost.load))
        .then(path(left).cmp(&path(right)))
}

fn candidates(decode: Vec<Entry<'_>>, prefill: Vec<Entry<'_>>, encoders: Vec<Candidate>) -> Vec<Candidate> {
    let candidate = |entry: Entry<'_>| Candidate {
        instance: entry.seen.instance(),
        cost: entry.cost,
        chosen: entry.is_chosen,
        rejected: entry.rejected.map(|rejection| rejection.text()),
    };
    decode
        .into_iter()
        .chain(prefill)
        .map(candidate)
        .chain(encoders)
        .collect()
}

/// The refusal when nobody can be chosen. The client hears what it can do about it; who was considered is for us.
fn refuse(decode: Vec<Entry<'_>>, prefill: Vec<Entry<'_>>) -> Refusal {
    // Where only the partner is missing, the partners' reasons are the reasons.
    let reasons: Vec<&Rejection> = decode
        .iter()
        .chain(&prefill)
        .filter_map(|entry| entry.rejected.as_ref())
        .filter(|rejection| !matches!(rejection, Rejection::NoPartner | Rejection::Unlike(_)))
        .collect();
    let all_are = |kind: fn(&Rejection) -> bool| !reasons.is_empty() && reasons.iter().all(|reason| kind(reason));
    let longest = reasons.iter().filter_map(|reason| match reason {
        Rejection::Context { context, .. } => Some(*context),
        _ => None,
    });
    let error = if all_are(|reason| matches!(reason, Rejection::Context { .. })) {
        let message = format!(
            "the prompt does not fit a context of {} tokens",
            longest.max().unwrap_or(0)
        );
        RequestError::new(ErrorKind::ContextLength, message)
    } else if all_are(|reason| matches!(reason, Rejection::Full { .. })) {
        RequestError::new(ErrorKind::Overloaded, "every instance is full").retry_after(RETRY_AFTER_MS)
    } else {
        RequestError::new(ErrorKind::Unavailable, "no instance can serve now").retry_after(RETRY_AFTER_MS)
    };
    Refusal {
        error,
        candidates: candidates(decode, prefill, Vec::new()),
    }
}

#[cfg(test)]
mod tests;
