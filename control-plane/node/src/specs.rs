//! From the instances of a plan to actors that can be started. The plan has decided everything; this only translates.

use std::sync::Arc;

use cluster_engine::Config;
use cluster_messages::Role;
use cluster_plan::{Instance, Plan, Settings, WorkerSettings as Planned};
use cluster_roles::{
    CacheSpec, DecodeSpec, MediaPolicy, PrefillSpec, RoleSpec, RouterSpec, TextModel, TokenizerSpec, WorkerSettings,
};
use cluster_routing::Policy;
use cluster_topologies::schema::Policy as Declared;

use crate::model::Factories;

/// How to start every instance of `plan`, in the plan's order.
pub(crate) fn of_plan(plan: &Plan, model: &Factories, text: &Arc<TextModel>) -> Vec<Arc<dyn RoleSpec>> {
    plan.instances
        .iter()
        .filter_map(|instance| of_instance(plan, instance, model, text))
        .collect()
}

/// None for roles that do not exist yet; the plan refuses to contain them.
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
            media: MediaPolicy::default(),
        }),
        Settings::Router { policy } => Arc::new(RouterSpec {
            path,
            policy: policy_of(*policy),
        }),
        Settings::Cache(cache) => Arc::new(CacheSpec {
            path,
            bytes_max: cache.host_bytes as usize,
        }),
        // The plan has encoders only under emulation.
        Settings::Encoder(_) => return None,
        Settings::Worker(worker) => {
            let settings = WorkerSettings {
                engine: engine_config(worker),
                folds: instance.folds.clone(),
                needs: instance.needs.clone(),
                factory: model.of_threads(instance.threads),
                encoder: None,
            };
            match path.role {
                Role::Prefill => Arc::new(PrefillSpec::new(path, settings)),
                Role::Decode => Arc::new(DecodeSpec::new(path, settings)),
                _ => return None,
            }
        }
    })
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
