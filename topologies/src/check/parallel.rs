//! Whether the ways of spreading a model over ranks go together.

use super::wiring::workers;
use crate::{
    Problem, RoleName, Topology,
    schema::{KvCache, Worker},
};

/// Experts lie whole on ranks that are all of them, or every rank holds a part of each.
pub(super) fn experts_are_whole_or_cut(topology: &Topology, problems: &mut Vec<Problem>) {
    for (role, worker) in workers(&topology.roles) {
        let (expert, ranks) = (worker.parallel.expert, worker.parallel.ranks());
        if expert != 1 && expert != ranks {
            let message = format!("experts are spread over {expert} ranks; the role has {ranks}");
            let help = format!("set expert to {ranks} for whole experts, or to 1 for a part of each on every rank");
            let at = format!("roles.{role}.parallel.expert");
            problems.push(Problem::new("expert-ranks", &at, message, help));
        }
    }
}

/// Towers are cut into heads and nothing else.
pub(super) fn towers_are_cut_as_matrices(topology: &Topology, problems: &mut Vec<Problem>) {
    let Some(encoder) = &topology.roles.encoder else { return };
    for (field, ranks) in [
        ("expert", encoder.parallel.expert),
        ("sequence", encoder.parallel.sequence),
    ] {
        if ranks != 1 {
            let message = format!("{field} ranks for the encoder: its towers have nothing to spread that way");
            let at = format!("roles.encoder.parallel.{field}");
            problems.push(Problem::new("encoder-ranks", &at, message, "leave it out; use tensor"));
        }
    }
}

/// A prompt's tokens are spread over the ranks that hold the heads and the experts, and only while prompts are computed.
pub(super) fn sequences_are_cut_as_matrices(topology: &Topology, problems: &mut Vec<Problem>) {
    for (role, worker) in workers(&topology.roles).filter(|(_, worker)| worker.parallel.sequence != 1) {
        let parallel = worker.parallel;
        let at = format!("roles.{role}.parallel.sequence");
        if role == RoleName::Decode {
            let message = "decode computes one token of a sequence at a time: there is nothing to spread";
            let help = "set it for roles.prefill, where prompts are computed apart";
            problems.push(Problem::new("sequence-ranks", &at, message, help));
        } else if parallel.sequence != parallel.tensor || parallel.expert != parallel.tensor || parallel.data != 1 {
            let message = format!(
                "tokens of a prompt over {} ranks, with tensor {}, expert {}, data {}",
                parallel.sequence, parallel.tensor, parallel.expert, parallel.data
            );
            let help = "give sequence, tensor and expert the same number, and leave data at 1";
            problems.push(Problem::new("sequence-ranks", &at, message, help));
        }
    }
}

/// Pages move from prefill to decode as they are.
pub(super) fn pages_are_alike(topology: &Topology, problems: &mut Vec<Problem>) {
    let (Some(prefill), Some(decode)) = (&topology.roles.prefill, &topology.roles.decode) else {
        return;
    };
    let common = &topology.kv_cache;
    let (pages, others) = (page_tokens(prefill, common), page_tokens(decode, common));
    let help = "say it once, below kv_cache, and remove it from the roles";
    if pages != others {
        let message = format!("prefill writes pages of {pages} tokens, decode reads pages of {others}");
        let at = "roles.decode.kv_cache.page_tokens";
        problems.push(Problem::new("pages-unlike", at, message, help));
    }
    let dtype = |worker: &Worker| worker.kv_cache.and_then(|kv| kv.dtype).unwrap_or(common.dtype).name();
    if dtype(prefill) != dtype(decode) {
        let message = format!("prefill writes {}, decode reads {}", dtype(prefill), dtype(decode));
        let at = "roles.decode.kv_cache.dtype";
        problems.push(Problem::new("pages-unlike", at, message, help));
    }
}

fn page_tokens(worker: &Worker, common: &KvCache) -> u32 {
    worker
        .kv_cache
        .and_then(|kv| kv.page_tokens)
        .unwrap_or(common.page_tokens)
}
