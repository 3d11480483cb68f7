//! Whether the declared roles can serve a request together.

use crate::{
    ModelSource, Problem, RoleName, Span, Topology,
    schema::{Roles, Worker},
};

/// The roles that can compute, with their paths.
pub(super) fn workers(roles: &Roles) -> impl Iterator<Item = (RoleName, &Worker)> {
    let prefill = roles.prefill.iter().map(|worker| (RoleName::Prefill, worker));
    prefill.chain(roles.decode.iter().map(|worker| (RoleName::Decode, worker)))
}

fn declared(roles: &Roles, role: RoleName) -> bool {
    match role {
        RoleName::Tokenizer => roles.tokenizer.is_some(),
        RoleName::Router => roles.router.is_some(),
        RoleName::Encoder => roles.encoder.is_some(),
        RoleName::Prefill => roles.prefill.is_some(),
        RoleName::Decode => roles.decode.is_some(),
        RoleName::Cache => roles.cache.is_some(),
    }
}

pub(super) fn roles_are_there(topology: &Topology, problems: &mut Vec<Problem>) {
    let roles = &topology.roles;
    let required = [RoleName::Tokenizer, RoleName::Router, RoleName::Decode];
    for role in required.into_iter().filter(|role| !declared(roles, *role)) {
        let help = format!("add '{role}: {{}}' below roles");
        problems.push(Problem::new(
            "missing-role",
            &format!("roles.{role}"),
            format!("no request can be served without the role {role}"),
            help,
        ));
    }
    let folded = workers(roles).any(|(_, worker)| worker.folds.contains(&RoleName::Prefill));
    if roles.prefill.is_none() && !folded {
        let message = "nobody computes prompts: prefill is neither declared nor folded into decode";
        let help = "add 'folds: [prefill]' to roles.decode, or 'prefill: {}' below roles";
        problems.push(Problem::new("missing-role", "roles.prefill", message, help));
    }
}

/// Which roles can run inside which.
const FOLDABLE: &[(RoleName, &[RoleName])] = &[
    (RoleName::Decode, &[RoleName::Prefill, RoleName::Encoder]),
    (RoleName::Prefill, &[RoleName::Encoder]),
];

pub(super) fn folds_are_possible(topology: &Topology, problems: &mut Vec<Problem>) {
    for (role, worker) in workers(&topology.roles) {
        let possible = FOLDABLE
            .iter()
            .find(|(host, _)| *host == role)
            .map_or(&[][..], |(_, guests)| guests);
        for (index, fold) in worker.folds.iter().enumerate() {
            let mut report = |rule, message: String, help: String| {
                problems.push(Problem::new(
                    rule,
                    &format!("roles.{role}.folds.{index}"),
                    message,
                    help,
                ));
            };
            if !possible.contains(fold) {
                let names: Vec<_> = possible.iter().map(|guest| guest.name()).collect();
                let help = format!("{role} can take in {}", names.join(" and "));
                report("impossible-fold", format!("{fold} cannot run inside {role}"), help);
            } else if worker.folds[..index].contains(fold) {
                report(
                    "folded-twice",
                    format!("{fold} is folded into {role} twice"),
                    "name it once".into(),
                );
            } else if declared(&topology.roles, *fold) {
                let message = format!("{fold} is folded into {role} and declared on its own too");
                let help = format!("remove roles.{fold}, or take {fold} out of this list");
                report("role-twice", message, help);
            }
        }
    }
}

pub(super) fn cache_and_tiers_go_together(topology: &Topology, problems: &mut Vec<Problem>) {
    let tiers = &topology.kv_cache.tiers;
    if topology.roles.cache.is_some() && tiers.is_empty() {
        let help = "add 'tiers: [{ host: 256MiB }]' below kv_cache, or remove the role";
        problems.push(Problem::new(
            "cache-without-tier",
            "roles.cache",
            "the cache role has nowhere to keep pages",
            help,
        ));
    }
    if topology.roles.cache.is_none() && !tiers.is_empty() {
        let help = "add 'cache: {}' below roles, or remove the tiers";
        problems.push(Problem::new(
            "tier-without-cache",
            "kv_cache.tiers",
            "no role keeps the pages of the tiers",
            help,
        ));
    }
    if !topology.kv_cache.prefix_reuse && !tiers.is_empty() {
        let message = "tiers keep pages for reuse, and prefix_reuse is off";
        let help = "set prefix_reuse to true, or remove the tiers";
        problems.push(Problem::new(
            "tier-without-reuse",
            "kv_cache.prefix_reuse",
            message,
            help,
        ));
    }
}

/// Every place where a file says how many tokens a page has.
fn page_sizes(topology: &Topology) -> Vec<(String, u32)> {
    let own = workers(&topology.roles).filter_map(|(role, worker)| {
        let tokens = worker.kv_cache?.page_tokens?;
        Some((format!("roles.{role}.kv_cache.page_tokens"), tokens))
    });
    let common = ("kv_cache.page_tokens".to_owned(), topology.kv_cache.page_tokens);
    std::iter::once(common).chain(own).collect()
}

pub(super) fn pages_are_powers_of_two(topology: &Topology, problems: &mut Vec<Problem>) {
    for (at, tokens) in page_sizes(topology) {
        if !tokens.is_power_of_two() {
            let below = 1 << tokens.ilog2();
            let message = format!("a page of {tokens} tokens: the number must be a power of two");
            let help = format!("use {below} or {}", below * 2);
            problems.push(Problem::new("not-power-of-two", &at, message, help));
        }
    }
}

/// The fewest tokens of a page that models with weights compute with: the kernels take 16 at a time.
const PAGE_TOKENS_MIN: u32 = 16;

pub(super) fn pages_fill_a_kernels_tile(topology: &Topology, problems: &mut Vec<Problem>) {
    let has_weights = !matches!(topology.model.source, ModelSource::Scripted(_) | ModelSource::Simulated);
    for (at, tokens) in page_sizes(topology) {
        if has_weights && tokens < PAGE_TOKENS_MIN {
            let message = format!("a page of {tokens} tokens: models with weights need at least {PAGE_TOKENS_MIN}");
            let help = format!("use {PAGE_TOKENS_MIN}, or another power of two up to 1024");
            problems.push(Problem::new("page-too-small", &at, message, help));
        }
    }
}

pub(super) fn steps_hold_all_running(topology: &Topology, problems: &mut Vec<Problem>) {
    for (role, worker) in workers(&topology.roles) {
        if role == RoleName::Decode && worker.step_tokens < worker.running_max {
            let message = format!(
                "a step of {} tokens has no room for {} running requests",
                worker.step_tokens, worker.running_max
            );
            let help = format!(
                "set step_tokens to at least {}, or running_max lower",
                worker.running_max
            );
            problems.push(Problem::new(
                "step-too-small",
                &format!("roles.{role}.step_tokens"),
                message,
                help,
            ));
        }
    }
}

pub(super) fn served_names_are_names(topology: &Topology, problems: &mut Vec<Problem>) {
    let names = &topology.model.served_names;
    for (index, name) in names.iter().enumerate() {
        let at = format!("model.served_names.{index}");
        if name.trim().is_empty() {
            problems.push(Problem::new(
                "empty-name",
                &at,
                "a served name is empty",
                "write the name clients ask for",
            ));
        }
        if names[..index].contains(name) {
            let message = format!("the served name '{name}' is given twice");
            problems.push(Problem::new("name-twice", &at, message, "keep one of the two"));
        }
    }
}

pub(super) fn restart_waits_grow(topology: &Topology, problems: &mut Vec<Problem>) {
    let restart = &topology.restart;
    if restart.backoff > restart.backoff_max {
        let message = format!(
            "the first wait of {} is longer than the longest of {}",
            restart.backoff, restart.backoff_max
        );
        let help = format!("set backoff_max to at least {}", restart.backoff);
        problems.push(Problem::new("backoff-over-max", "restart.backoff", message, help));
    }
}

pub(super) fn spans_are_not_zero(topology: &Topology, problems: &mut Vec<Problem>) {
    let encoder = topology.roles.encoder.iter();
    let encoder = encoder.map(|encoder| ("roles.encoder.timeout", encoder.timeout));
    let spans: [(&str, Span); 3] = [
        ("limits.timeout", topology.limits.timeout),
        ("limits.media.fetch_timeout", topology.limits.media.fetch_timeout),
        ("restart.window", topology.restart.window),
    ];
    for (at, span) in spans.into_iter().chain(encoder) {
        if span.ms == 0 {
            problems.push(Problem::new(
                "zero-span",
                at,
                "a span of no time",
                "write a longer one, such as 60s",
            ));
        }
    }
}
