//! Makes the plan.

use cluster_messages::{ActorPath, NodeId, Role};
use cluster_topologies::{
    ByteSize, Name, Problem, Resolved,
    schema::{KvCache, Tier, Worker},
};

use crate::{
    CacheSettings, Endpoint, Instance, Inventory, ModelFacts, Passed, Plan, PlannedModel, Settings, WorkerSettings,
    memory::{self, rounded},
    place::Nodes,
    plan::role_of,
    threads::{self, Computing},
};

/// Places `resolved` on the machines of `inventory`. Placements of `previous` are kept where they can be, and a plan that
/// would equal it is it: applying a file twice changes nothing.
///
/// Problems name fields of the topology; `Document::locate` finds their lines.
pub fn plan(
    resolved: &Resolved,
    inventory: &Inventory,
    facts: &ModelFacts,
    previous: Option<&Plan>,
) -> Result<Plan, Vec<Problem>> {
    let mut problems = Vec::new();
    refuse_accelerators(resolved, &mut problems);
    let nodes = Nodes::find(resolved, inventory, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let kv = fit_kv(resolved, facts, &mut problems);
    let mut draft = Draft {
        resolved,
        previous,
        nodes,
        kv,
        problems,
        instances: Vec::new(),
    };
    draft.place_all();
    draft.finish(facts)
}

/// Plans for accelerators come with their issue; until then nothing is claimed about them.
fn refuse_accelerators(resolved: &Resolved, problems: &mut Vec<Problem>) {
    for (index, node) in resolved.nodes.iter().enumerate() {
        if node.accelerator.as_str() != "cpu" {
            let message = format!("placing roles on {} accelerators: not supported yet", node.accelerator);
            let help = "plan for nodes with 'accelerator: cpu'";
            let at = format!("nodes.{index}.accelerator");
            problems.push(Problem::new("not-supported-yet", &at, message, help));
        }
    }
}

/// How many pages an instance that computes has, and how long a sequence can be.
#[derive(Clone, Copy)]
struct KvFit {
    blocks: u32,
    context: u32,
    bytes_per_token: u64,
}

fn fit_kv(resolved: &Resolved, facts: &ModelFacts, problems: &mut Vec<Problem>) -> KvFit {
    let kv = &resolved.kv_cache;
    let memory = kv.memory.unwrap_or(KvCache::MEMORY_ON_CORES);
    let bytes_per_token = facts.kv_bytes_per_token(kv.dtype);
    let blocks = memory.bytes() / (bytes_per_token * u64::from(kv.page_tokens));
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let tokens = u64::from(blocks) * u64::from(kv.page_tokens);
    let longest = resolved.model.context.unwrap_or(facts.context);
    if longest > facts.context {
        let message = format!("{longest} tokens of context; the model has {}", facts.context);
        let help = format!("set it to {} or less, or leave it out", facts.context);
        problems.push(Problem::new("context-over", "model.context", message, help));
    }
    // A length that was asked for must fit; one that was not is shortened to what fits.
    let is_short = resolved.model.context.is_some() && tokens < u64::from(longest);
    if blocks == 0 || is_short {
        let wanted = if is_short { longest } else { kv.page_tokens };
        let pages = wanted.div_ceil(kv.page_tokens);
        let needed = u64::from(pages) * u64::from(kv.page_tokens) * bytes_per_token;
        let message = format!("{memory} hold {tokens} tokens of {bytes_per_token} bytes; {wanted} are needed");
        let help = format!("set it to at least {}", ByteSize(needed.next_multiple_of(1 << 20)));
        problems.push(Problem::new("kv-too-small", "kv_cache.memory", message, help));
    }
    KvFit {
        blocks,
        context: longest.min(u32::try_from(tokens).unwrap_or(u32::MAX)),
        bytes_per_token,
    }
}

struct Draft<'a> {
    resolved: &'a Resolved,
    previous: Option<&'a Plan>,
    nodes: Nodes<'a>,
    kv: KvFit,
    problems: Vec<Problem>,
    instances: Vec<Instance>,
}

impl<'a> Draft<'a> {
    /// Adds all instances in the order in which they start: who is needed comes before who needs.
    fn place_all(&mut self) {
        let resolved = self.resolved;
        if let Some(cache) = &resolved.cache {
            let settings = Settings::Cache(CacheSettings {
                host_bytes: host_bytes(&resolved.kv_cache.tiers),
            });
            self.place(Role::Cache, cache.replicas, cache.node.as_ref(), &settings, Vec::new());
        }
        self.place_workers();
        let workers: Vec<Role> = resolved.workers().map(|(role, _)| role_of(role)).collect();
        let router = &resolved.router;
        let settings = Settings::Router { policy: router.policy };
        self.place(
            Role::Router,
            router.replicas,
            router.node.as_ref(),
            &settings,
            vec![workers],
        );
        let tokenizer = &resolved.tokenizer;
        let needs = vec![vec![Role::Router]];
        self.place(
            Role::Tokenizer,
            tokenizer.replicas,
            tokenizer.node.as_ref(),
            &Settings::Tokenizer,
            needs,
        );
    }

    fn place_workers(&mut self) {
        let first = self.instances.len();
        let mut computing: Vec<Computing<'a>> = Vec::new();
        for (name, worker) in self.resolved.workers() {
            let role = role_of(name);
            let start = self.instances.len();
            let settings = Settings::Worker(self.worker_settings(worker));
            self.place(
                role,
                worker.replicas,
                worker.node.as_ref(),
                &settings,
                self.worker_needs(role),
            );
            for instance in &mut self.instances[start..] {
                instance.folds = worker.folds.iter().map(|fold| role_of(*fold)).collect();
                computing.push(Computing {
                    node: instance.node.clone(),
                    worker,
                    at: format!("roles.{name}"),
                });
            }
        }
        let shares = threads::share(
            &computing,
            self.nodes.machines().collect::<Vec<_>>().into_iter(),
            &mut self.problems,
        );
        for (instance, (threads, reason)) in self.instances[first..].iter_mut().zip(shares) {
            instance.threads = threads;
            instance.reasons.push(reason);
            instance.reasons.push(kv_reason(self.kv, &self.resolved.kv_cache));
        }
    }

    fn worker_settings(&self, worker: &Worker) -> WorkerSettings {
        let kv = &self.resolved.kv_cache;
        WorkerSettings {
            block_tokens: kv.page_tokens,
            blocks: vec![self.kv.blocks],
            running_max: worker.running_max,
            waiting_max: worker.waiting_max,
            step_tokens: worker.step_tokens,
            prefix_reuse: kv.prefix_reuse,
            offload: self.resolved.cache.is_some(),
        }
    }

    /// A decode instance without prefill inside cannot serve before a prefill instance lives.
    fn worker_needs(&self, role: Role) -> Vec<Vec<Role>> {
        if role == Role::Decode && self.resolved.is_split() {
            return vec![vec![Role::Prefill]];
        }
        Vec::new()
    }

    fn place(&mut self, role: Role, replicas: u32, wanted: Option<&Name>, settings: &Settings, needs: Vec<Vec<Role>>) {
        for ordinal in 0..replicas {
            let path = ActorPath::new(role, ordinal);
            let (node, reason) = self
                .nodes
                .choose(path, wanted, self.previous)
                .expect("a resolved topology has nodes, and roles ask only for declared ones");
            self.instances
                .push(instance(path, node, settings.clone(), needs.clone(), reason));
        }
    }

    fn finish(mut self, facts: &ModelFacts) -> Result<Plan, Vec<Problem>> {
        let memory = memory::rows(self.nodes.machines(), &self.instances, facts, self.kv.bytes_per_token);
        memory::check(&memory, &mut self.problems);
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        let resolved = self.resolved;
        let mut plan = Plan {
            topology: resolved.name.to_string(),
            generation: 1,
            parent: None,
            model: planned_model(resolved, self.kv),
            endpoint: Endpoint {
                host: resolved.router.host,
                port: resolved.router.port,
            },
            limits: resolved.limits.clone(),
            links: resolved.links.clone(),
            restart: resolved.restart.clone(),
            instances: self.instances,
            memory,
            checks: Vec::new(),
        };
        plan.checks = passed(&plan, self.kv, facts);
        Ok(succeed(plan, self.previous))
    }
}

fn instance(path: ActorPath, node: NodeId, settings: Settings, needs: Vec<Vec<Role>>, reason: String) -> Instance {
    Instance {
        path,
        node,
        folds: Vec::new(),
        threads: 0,
        devices: Vec::new(),
        settings,
        needs,
        reasons: vec![reason],
    }
}

fn host_bytes(tiers: &[Tier]) -> u64 {
    let host = tiers.iter().map(|tier| match tier {
        Tier::Host(size) => size.bytes(),
        Tier::Disk(_) => 0,
    });
    host.sum()
}

fn planned_model(resolved: &Resolved, kv: KvFit) -> PlannedModel {
    PlannedModel {
        origin: resolved.model.origin.clone(),
        served_names: resolved.model.served_names.clone(),
        context: kv.context,
        arithmetic: resolved.model.arithmetic,
        kv_dtype: resolved.kv_cache.dtype,
    }
}

fn kv_reason(kv: KvFit, cache: &KvCache) -> String {
    let memory = cache.memory.unwrap_or(KvCache::MEMORY_ON_CORES);
    format!(
        "{} blocks: {memory} hold that many of {} tokens at {} bytes of {}",
        kv.blocks,
        cache.page_tokens,
        kv.bytes_per_token,
        cache.dtype.name()
    )
}

/// The checks that held, with their figures.
fn passed(plan: &Plan, kv: KvFit, facts: &ModelFacts) -> Vec<Passed> {
    let mut list = vec![Passed {
        rule: "roles".into(),
        detail: wiring(plan),
    }];
    list.extend(plan.memory.iter().map(|row| Passed {
        rule: "memory".into(),
        detail: format!(
            "{} of {} on {}",
            rounded(row.used_bytes()),
            rounded(row.limit_bytes()),
            row.node
        ),
    }));
    let shortened = if kv.context < facts.context {
        format!(" of the model's {}", facts.context)
    } else {
        String::new()
    };
    list.push(Passed {
        rule: "context".into(),
        detail: format!(
            "{} tokens{shortened}, in pages of {} bytes a token",
            kv.context, kv.bytes_per_token
        ),
    });
    list
}

fn wiring(plan: &Plan) -> String {
    let count = |role: Role| plan.of_role(role).count();
    match count(Role::Prefill) {
        0 => format!("{} decode with prefill inside", count(Role::Decode)),
        prefill => format!("{prefill} prefill to {} decode, pages alike", count(Role::Decode)),
    }
}

/// Numbers `plan` after `previous`, unless nothing changed.
fn succeed(mut plan: Plan, previous: Option<&Plan>) -> Plan {
    let Some(previous) = previous else {
        return plan;
    };
    plan.generation = previous.generation;
    plan.parent = previous.parent;
    // Where an instance "runs already" is news only for the reasons; they do not make a new plan.
    if without_reasons(&plan) == without_reasons(previous) {
        return previous.clone();
    }
    plan.generation = previous.generation + 1;
    plan.parent = Some(previous.generation);
    plan
}

fn without_reasons(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.instances.iter_mut().for_each(|instance| instance.reasons.clear());
    plan
}
