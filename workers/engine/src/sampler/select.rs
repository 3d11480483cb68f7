//! The best logits of a row, without sorting the row.

use std::cmp::Ordering;

/// A token that may be chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Candidate {
    pub(crate) logit: f32,
    pub(crate) id: u32,
}

/// Better first: falling logit, then rising id.
fn order(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit
        .partial_cmp(&a.logit)
        .unwrap_or(Ordering::Equal)
        .then(a.id.cmp(&b.id))
}

/// The lowest id among the highest logits; none if no logit is above minus infinity.
pub(crate) fn argmax(logits: &[f32]) -> Option<u32> {
    let highest = highest(logits);
    if highest == f32::NEG_INFINITY {
        return None;
    }
    logits.iter().position(|logit| *logit == highest).map(|id| id as u32)
}

/// The highest logit; those that are not numbers do not count.
pub(crate) fn highest(logits: &[f32]) -> f32 {
    // Sixteen independent maxima, which the compiler keeps in vector registers.
    let mut lanes = [f32::NEG_INFINITY; 16];
    let chunks = logits.chunks_exact(16);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, logit) in lanes.iter_mut().zip(chunk) {
            *lane = if *logit > *lane { *logit } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(
        f32::NEG_INFINITY,
        |best, logit| if *logit > best { *logit } else { best },
    )
}

/// Fills `out` with the `count` best tokens (fewer if fewer are above minus infinity), best first.
pub(crate) fn best(logits: &[f32], count: usize, out: &mut Vec<Candidate>) {
    out.clear();
    if count == 0 {
        return;
    }
    let full = 2 * count + 64;
    // What the best `count` so far are at least. Ids rise, so a later token with the same logit is worse.
    let mut floor = f32::NEG_INFINITY;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > floor {
            out.push(Candidate {
                logit: *logit,
                id: id as u32,
            });
            if out.len() == full {
                out.select_nth_unstable_by(count - 1, order);
                out.truncate(count);
                floor = out[count - 1].logit;
            }
        }
    }
    if out.len() > count {
        out.select_nth_unstable_by(count - 1, order);
        out.truncate(count);
    }
    out.sort_unstable_by(order);
}
