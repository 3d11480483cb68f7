//! From the instances of a plan to actors that can be started. The plan has decided everything; this only translates.

use std::sync::Arc;

use cluster_engine::Config;
use cluster_messages::Role;
use cluster_plan::{EncoderSettings, Encoding, Instance, Plan, Settings, WorkerSettings as Planned};
use cluster_roles::{
    CacheSpec, DecodeSpec, EncoderSpec, MediaPolicy, PrefillSpec, RoleSpec, RouterSpec, TextModel, TokenizerSpec,
    WorkerSettings,
};
use cluster_routing::Policy;
use cluster_topologies::schema::{Fallback, Policy as Declared};

use crate::model::Factories;

/// How to start every instance of `plan`, in the plan's order.
pub(crate) fn of_plan(plan: &Plan, model: &Factories, text: &Arc<TextModel>) -> Vec<Arc<dyn RoleSpec>> {
    plan.instances
        .iter()
        .filter_map(|instance| of_instance(plan, instance, model, text))
        .collect()
}

/// None for an encoder of a model that takes no media; the plan refuses to contain one.
fn of_instance(
    plan: &Plan,
    instance: &Instance,
    model: &Factories,
    text: &Arc<TextModel>,
) -> Option<Arc<dyn RoleSpec>> {
    let path = instance.path;
    Some(match &instance.settings {
        Settings::Tokenizer => Arc::new(TokenizerSpec {
            path,
            requests_max: plan.limits.requests_max,
            model: text.clone(),
            media: media_policy(&plan.encoding),
        }),
        Settings::Router { policy } => Arc::new(RouterSpec {
            path,
            policy: policy_of(*policy),
        }),
        Settings::Cache(cache) => Arc::new(CacheSpec {
            path,
            bytes_max: cache.host_bytes as usize,
        }),
        Settings::Encoder(encoder) => Arc::new(EncoderSpec {
            path,
            settings: model.media()?.settings(encoder, instance.parallel.tensor),
        }),
        Settings::Worker(worker) => {
            let settings = WorkerSettings {
                engine: engine_config(worker),
                folds: instance.folds.clone(),
                needs: instance.needs.clone(),
                factory: model.spread(instance.parallel, instance.threads),
                encoder: own_encoder(plan, instance).and_then(|(own, ranks)| Some(model.media()?.settings(own, ranks))),
            };
            match path.role {
                Role::Prefill => Arc::new(PrefillSpec::new(path, settings)),
                Role::Decode => Arc::new(DecodeSpec::new(path, settings)),
                _ => return None,
            }
        }
    })
}

fn media_policy(encoding: &Encoding) -> MediaPolicy {
    let usual = MediaPolicy::default();
    match encoding {
        Encoding::None | Encoding::Inside(_) => usual,
        Encoding::Apart { settings, fallback } => MediaPolicy {
            apart: true,
            fallback_local: *fallback == Fallback::Local,
            stall: settings.timeout.into(),
            ..usual
        },
    }
}

/// How an instance that computes prompts encodes their media itself, if it ever does, and over how many ranks: as many as
/// the encoders it helps out, so that a file has the same embeddings whoever makes them.
fn own_encoder<'a>(plan: &'a Plan, instance: &Instance) -> Option<(&'a EncoderSettings, u32)> {
    let computes_prompts = instance.path.role == Role::Prefill || instance.folds.contains(&Role::Prefill);
    match &plan.encoding {
        Encoding::None => None,
        Encoding::Inside(settings) => instance.folds.contains(&Role::Encoder).then_some((settings, 1)),
        Encoding::Apart { settings, fallback } => {
            let encoders = plan.of_role(Role::Encoder).map(|encoder| encoder.parallel.tensor);
            let ranks = encoders.max().unwrap_or(1);
            (computes_prompts && *fallback == Fallback::Local).then_some((settings, ranks))
        }
    }
}

fn engine_config(planned: &Planned) -> Config {
    Config {
        block_tokens: planned.block_tokens,
        blocks: planned.blocks.clone(),
        running_max: planned.running_max,
        waiting_max: planned.waiting_max,
        step_tokens: planned.step_tokens,
        tier: planned.offload,
        prefix_cache: planned.prefix_reuse,
    }
}

fn policy_of(declared: Declared) -> Policy {
    match declared {
        Declared::KvAware => Policy::kv_aware(),
        Declared::RoundRobin => Policy::RoundRobin,
        Declared::LeastLoaded => Policy::LeastLoaded,
    }
}
