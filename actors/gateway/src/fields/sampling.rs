//! The fields that say how tokens are chosen.

use super::Draft;
use crate::{error::ApiError, read::Node};

/// As near to zero as a range can come that excludes it.
const ABOVE_ZERO: f64 = 1e-6;

type Outcome = Result<(), ApiError>;

pub(super) fn temperature(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    draft.sampling.temperature = node.number(0.0..=2.0)?;
    Ok(())
}

pub(super) fn top_p(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    // The API allows 0. It means the best token alone, as does the smallest positive number.
    draft.sampling.top_p = node.number(0.0..=1.0)?.max(f32::MIN_POSITIVE);
    Ok(())
}

pub(super) fn top_k(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    // -1 and 0 both say "all" in the engines clients come from.
    let value = node.integer(-1..=i128::from(i32::MAX))?.max(0);
    draft.sampling.top_k = u32::try_from(value).expect("the range lies within u32");
    Ok(())
}

pub(super) fn min_p(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    draft.sampling.min_p = node.number(0.0..=1.0)?;
    Ok(())
}

pub(super) fn seed(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    let value = node.integer(i128::from(i64::MIN)..=i128::from(u64::MAX))?;
    // Negative seeds are as good as any other 64 bits.
    draft.seed = Some(value as u64);
    Ok(())
}

pub(super) fn frequency_penalty(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    draft.sampling.penalties.frequency = node.number(-2.0..=2.0)?;
    Ok(())
}

pub(super) fn presence_penalty(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    draft.sampling.penalties.presence = node.number(-2.0..=2.0)?;
    Ok(())
}

pub(super) fn repetition_penalty(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    draft.sampling.penalties.repetition = node.number(ABOVE_ZERO..=2.0)?;
    Ok(())
}

/// Token ids (as keys) to biases from -100 to 100.
pub(super) fn logit_bias(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    let entries = node.object()?;
    let most = draft.limits.logit_bias_max;
    if entries.len() > most {
        return Err(node.wrong(format!("{} entries are too many; at most {most}", entries.len())));
    }
    let mut biases = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let id = key.parse::<u32>().map_err(|_| {
            let key: String = key.chars().take(32).collect();
            node.wrong(format!("the key '{key}' is not a token id; use decimal digits"))
        })?;
        let bias = Node { json: value, ..node }.number(-100.0..=100.0)?;
        biases.push((id, bias));
    }
    biases.sort_unstable_by_key(|(id, _)| *id);
    // `5` and `05` are different keys for one token.
    if let Some(pair) = biases.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(node.wrong(format!("the token {} appears twice", pair[0].0)));
    }
    draft.sampling.logit_bias = biases;
    Ok(())
}
