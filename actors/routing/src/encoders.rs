//! Who encodes each medium of a request: the same file goes to the same encoder, whose cache then has it, unless that one has
//! more than its share of the work.
//!
//! Every pair of digest and encoder has a score (rendezvous hashing): an encoder that comes or goes moves only the files
//! whose best it is. The best one below the bound takes the file (Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with
//! Bounded Loads, arXiv 1608.01350).

use std::cmp::Reverse;

use cluster_messages::{ActorPath, Candidate, Cost, InstanceRef, MediumDigest, Role, Route};

use crate::{View, view::Seen};

/// An encoder's load is at most this many quarters of the mean: 1.25 times.
const SHARE_QUARTERS: u64 = 5;

/// Who encodes, and who was considered.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Encoders {
    /// One for each of the route's media; empty when no encoder can take any.
    pub chosen: Vec<InstanceRef>,
    /// For each file the encoders that were looked at, up to the one that took it; `Cost::total` is its place in the file's
    /// own order.
    pub candidates: Vec<Candidate>,
}

/// Chooses an encoder for each of the route's media.
pub fn choose_encoders(route: &Route, view: &View) -> Encoders {
    if route.media.is_empty() {
        return Encoders::default();
    }
    let mut encoders = Encoders::default();
    let mut open = Vec::new();
    // One that seems to hang may only be slow: it is better than none.
    let may_hang = !view
        .of_role(Role::Encoder)
        .any(|seen| rejection(route, seen, false).is_none());
    for seen in view.of_role(Role::Encoder) {
        match rejection(route, seen, may_hang) {
            Some(reason) => encoders
                .candidates
                .push(candidate(seen.instance(), 0, 0.0, Some(reason.into()))),
            None => open.push(Open {
                instance: seen.instance(),
                load: seen.load(),
            }),
        }
    }
    if open.is_empty() {
        return encoders;
    }
    for (index, digest) in route.media.iter().enumerate() {
        let before = route.media[..index].iter().position(|other| other == digest);
        // A file that comes twice is encoded once.
        let chosen = match before {
            Some(before) => encoders.chosen[before],
            None => place(*digest, &mut open, &mut encoders.candidates),
        };
        encoders.chosen.push(chosen);
    }
    encoders
}

/// An encoder that can take work.
struct Open {
    instance: InstanceRef,
    load: u32,
}

/// Gives the file to the first encoder of its order that has room below the bound.
fn place(digest: MediumDigest, open: &mut [Open], candidates: &mut Vec<Candidate>) -> InstanceRef {
    open.sort_by_key(|encoder| (Reverse(score(digest, encoder.instance.path)), encoder.instance.path));
    let bound = bound(open);
    let taker = open.iter().position(|encoder| encoder.load < bound);
    let taker = taker.expect("the bound is above the mean, so the least loaded is below it");
    for (rank, encoder) in open[..=taker].iter().enumerate() {
        let rejected = (rank != taker).then(|| format!("it has its share: {} files of at most {bound}", encoder.load));
        candidates.push(candidate(encoder.instance, encoder.load, rank as f64, rejected));
    }
    open[taker].load += 1;
    open[taker].instance
}

/// The load that nobody may exceed, the file to be placed included: some encoder is always below it.
fn bound(open: &[Open]) -> u32 {
    let total = open.iter().map(|encoder| u64::from(encoder.load)).sum::<u64>() + 1;
    let bound = (total * SHARE_QUARTERS).div_ceil(4 * open.len() as u64);
    u32::try_from(bound).unwrap_or(u32::MAX)
}

fn rejection(route: &Route, seen: &Seen, may_hang: bool) -> Option<&'static str> {
    if route.exclude.contains(&seen.instance()) {
        Some("it already failed this request")
    } else if seen.is_draining {
        Some("it is draining")
    } else if seen.is_suspected() && !may_hang {
        Some("it makes no progress")
    } else {
        None
    }
}

fn candidate(instance: InstanceRef, load: u32, total: f64, rejected: Option<String>) -> Candidate {
    Candidate {
        instance,
        cost: Cost {
            load: f64::from(load),
            total,
            ..Cost::default()
        },
        chosen: rejected.is_none(),
        rejected,
    }
}

/// How much an encoder is a file's own. The path and not the life: a restarted encoder gets its files again.
fn score(digest: MediumDigest, path: ActorPath) -> u64 {
    let (high, low) = ((digest.0 >> 64) as u64, digest.0 as u64);
    mix(mix(high) ^ mix(low ^ u64::from(path.ordinal)))
}

/// The finalizer of SplitMix64: every bit of the input reaches every bit of the output.
const fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests;
