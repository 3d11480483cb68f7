//! Makes the plan.

use cluster_messages::{ActorPath, NodeId, Role};
use cluster_topologies::{
    Holder, Name, Problem, Resolved, RoleName,
    schema::{Encoder, Fallback, Parallel, Tier, Worker},
};

use crate::{
    CacheSettings, Device, DeviceRow, EncoderSettings, Encoding, Endpoint, Instance, Inventory, ModelFacts, Passed,
    Plan, PlannedModel, Settings, WorkerSettings,
    devices::{Chosen, Devices, Wanted},
    fit::{self, Fit},
    memory::{self, rounded},
    place::Nodes,
    plan::role_of,
    reach, split,
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
    split::check(resolved, facts, &mut problems);
    build(resolved, inventory, facts, previous, problems)
}

/// The same for a model that is cut as it comes: ranks share heads and experts unevenly, and some may have none.
pub(crate) fn build(
    resolved: &Resolved,
    inventory: &Inventory,
    facts: &ModelFacts,
    previous: Option<&Plan>,
    mut problems: Vec<Problem>,
) -> Result<Plan, Vec<Problem>> {
    let nodes = Nodes::find(resolved, inventory, &mut problems);
    context_within(resolved, facts, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let devices = Devices::of(&nodes, &Wanted::all(resolved), &resolved.accelerators);
    let mut draft = Draft {
        resolved,
        facts,
        previous,
        nodes,
        devices,
        fits: Vec::new(),
        problems,
        instances: Vec::new(),
        device_rows: Vec::new(),
    };
    draft.place_all();
    draft.finish(inventory)
}

fn context_within(resolved: &Resolved, facts: &ModelFacts, problems: &mut Vec<Problem>) {
    if let Some(longest) = resolved.model.context.filter(|longest| *longest > facts.context) {
        let message = format!("{longest} tokens of context; the model has {}", facts.context);
        let help = format!("set it to {} or less, or leave it out", facts.context);
        problems.push(Problem::new("context-over", "model.context", message, help));
    }
}

struct Draft<'a> {
    resolved: &'a Resolved,
    facts: &'a ModelFacts,
    previous: Option<&'a Plan>,
    nodes: Nodes<'a>,
    devices: Devices<'a>,
    /// What an instance of each role that computes tokens holds.
    fits: Vec<Fit>,
    problems: Vec<Problem>,
    instances: Vec<Instance>,
    device_rows: Vec<DeviceRow>,
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
        if let Some(encoder) = &resolved.encoder {
            self.place_encoders(encoder);
        }
        self.place_workers();
        let workers: Vec<Role> = resolved.workers().map(|(role, _)| role_of(role)).collect();
        let router = &resolved.router;
        let settings = Settings::Router { policy: router.policy };
        let node = router.node.as_ref();
        self.place(Role::Router, router.replicas, node, &settings, vec![workers]);
        let tokenizer = &resolved.tokenizer;
        let needs = vec![vec![Role::Router]];
        let node = tokenizer.node.as_ref();
        self.place(Role::Tokenizer, tokenizer.replicas, node, &Settings::Tokenizer, needs);
    }

    fn place_encoders(&mut self, encoder: &'a Encoder) {
        let wanted = Wanted::by_encoder(encoder);
        let chosen = self.take_devices(&wanted);
        let first = self.instances.len();
        let settings = Settings::Encoder(EncoderSettings::from(encoder));
        self.place_computing(&wanted, &chosen, &settings, Vec::new());
        let uses = Uses {
            weights_bytes: self.facts.rank_weights_bytes(encoder.parallel, Holder::Encoder),
            kv_bytes: 0,
            activation_bytes: self.facts.encoder_activation_bytes(encoder.parallel.tensor),
        };
        for index in first..self.instances.len() {
            self.instances[index].threads = 1;
            self.add_device_rows(index, &wanted, uses);
        }
        self.check_shares(first, &wanted);
    }

    /// The accelerators of each replica; none for roles on processor cores.
    fn take_devices(&mut self, wanted: &Wanted<'_>) -> Vec<Chosen> {
        match self.devices.take(wanted) {
            Ok(chosen) => chosen,
            Err(problem) => {
                self.problems.push(problem);
                Vec::new()
            }
        }
    }

    /// Adds the replicas of a role that computes, each on its accelerators or on a machine's cores.
    fn place_computing(&mut self, wanted: &Wanted<'_>, chosen: &[Chosen], settings: &Settings, needs: Vec<Vec<Role>>) {
        let role = role_of(wanted.role);
        let first = self.instances.len();
        if chosen.is_empty() {
            self.place(role, wanted.replicas, wanted.node, settings, needs);
        } else {
            for (ordinal, (devices, reason)) in (0..).zip(chosen) {
                let node = devices[0].node.clone();
                self.nodes.count(&node);
                let path = ActorPath::new(role, ordinal);
                let mut instance = instance(path, node, settings.clone(), needs.clone(), reason.clone());
                instance.devices.clone_from(devices);
                self.instances.push(instance);
            }
        }
        for instance in &mut self.instances[first..] {
            instance.parallel = wanted.parallel;
        }
    }

    fn add_device_rows(&mut self, index: usize, wanted: &Wanted<'_>, uses: Uses) {
        let instance = &self.instances[index];
        for device in &instance.devices {
            let Some((kind, capacity_bytes)) = self.nodes.accelerator(device) else {
                continue;
            };
            self.device_rows.push(DeviceRow {
                device: device.clone(),
                kind: kind.to_owned(),
                instance: instance.path,
                share: wanted.share,
                weights_bytes: uses.weights_bytes,
                kv_bytes: uses.kv_bytes,
                activation_bytes: uses.activation_bytes,
                capacity_bytes,
            });
        }
    }

    /// Reports a role whose share of an accelerator is too small. Roles that keep pages were fitted into theirs.
    fn check_shares(&mut self, first: usize, wanted: &Wanted<'_>) {
        let paths: Vec<ActorPath> = self.instances[first..].iter().map(|instance| instance.path).collect();
        let over = self
            .device_rows
            .iter()
            .find(|row| paths.contains(&row.instance) && row.used_bytes() > row.limit_bytes());
        if let Some(row) = over {
            let message = format!(
                "a rank of {} needs {} (weights {}, activations {}) and may use {} of {}",
                wanted.role,
                rounded(row.used_bytes()),
                rounded(row.weights_bytes),
                rounded(row.activation_bytes),
                rounded(row.limit_bytes()),
                rounded(row.capacity_bytes)
            );
            let needed = row.used_bytes() as f64 / row.capacity_bytes as f64;
            let help = format!(
                "raise its memory_fraction to {:.2}, or spread it over more ranks",
                (needed * 100.0).ceil() / 100.0
            );
            let at = format!("roles.{}.memory_fraction", wanted.role);
            self.problems.push(Problem::new("memory-over", &at, message, help));
        }
    }

    fn place_workers(&mut self) {
        let first = self.instances.len();
        let mut computing: Vec<Computing<'a>> = Vec::new();
        for (name, worker) in self.resolved.workers() {
            let role = role_of(name);
            let start = self.instances.len();
            let wanted = Wanted::by_worker(name, worker);
            let chosen = self.take_devices(&wanted);
            let capacity = self.smallest(&chosen);
            let fit = fit::fit(self.resolved, self.facts, (name, worker), capacity, &mut self.problems);
            // What is wrong with kv_cache is wrong for each role alike.
            self.problems.dedup();
            let settings = Settings::Worker(self.worker_settings(worker, &fit));
            self.place_computing(&wanted, &chosen, &settings, self.worker_needs(role));
            let uses = Uses {
                weights_bytes: fit.weights_bytes,
                kv_bytes: fit.kv_bytes(),
                activation_bytes: fit.activation_bytes,
            };
            for index in start..self.instances.len() {
                self.add_device_rows(index, &wanted, uses);
                let instance = &mut self.instances[index];
                instance.folds = worker.folds.iter().map(|fold| role_of(*fold)).collect();
                computing.push(Computing {
                    node: instance.node.clone(),
                    worker,
                    at: format!("roles.{name}"),
                    on_cores: instance.devices.is_empty(),
                    kv_reason: fit.reason.clone(),
                });
            }
            self.fits.push(fit);
        }
        let machines = self.nodes.machines().collect::<Vec<_>>();
        let shares = threads::share(&computing, machines.into_iter(), &mut self.problems);
        let placed = self.instances[first..].iter_mut().zip(shares).zip(computing);
        for ((instance, (threads, reason)), one) in placed {
            instance.threads = threads;
            instance.reasons.extend(reason);
            instance.reasons.push(one.kv_reason);
        }
    }

    /// The memory of the smallest accelerator among the chosen.
    fn smallest(&self, chosen: &[Chosen]) -> Option<u64> {
        let devices = chosen.iter().flat_map(|(devices, _)| devices);
        devices
            .filter_map(|device| self.nodes.accelerator(device))
            .map(|(_, bytes)| bytes)
            .min()
    }

    fn worker_settings(&self, worker: &Worker, fit: &Fit) -> WorkerSettings {
        let kv = &self.resolved.kv_cache;
        WorkerSettings {
            block_tokens: kv.page_tokens,
            blocks: fit.rows.iter().map(|row| row.blocks).collect(),
            classes: fit.rows.clone(),
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

    fn finish(mut self, inventory: &Inventory) -> Result<Plan, Vec<Problem>> {
        let memory = memory::rows(self.nodes.machines(), &self.instances, self.facts);
        memory::check(&memory, &mut self.problems);
        let links = reach::check(self.resolved, &self.instances, inventory, &mut self.problems);
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        let resolved = self.resolved;
        let context = self.fits.iter().map(|fit| fit.context).min();
        let context = context.expect("every topology has a decode role");
        let mut plan = Plan {
            topology: resolved.name.to_string(),
            generation: 1,
            parent: None,
            model: planned_model(resolved, context),
            endpoint: Endpoint {
                host: resolved.router.host,
                port: resolved.router.port,
            },
            limits: resolved.limits.clone(),
            links: resolved.links.clone(),
            restart: resolved.restart.clone(),
            encoding: encoding(resolved, self.facts),
            emulation: None,
            instances: self.instances,
            memory,
            devices: self.device_rows,
            checks: Vec::new(),
        };
        plan.checks = passed(&plan, resolved, self.facts);
        plan.checks.extend(links);
        Ok(succeed(plan, self.previous))
    }
}

/// What a rank uses of its accelerator.
#[derive(Clone, Copy)]
struct Uses {
    weights_bytes: u64,
    kv_bytes: u64,
    activation_bytes: u64,
}

fn encoding(resolved: &Resolved, facts: &ModelFacts) -> Encoding {
    if let Some(encoder) = &resolved.encoder {
        return Encoding::Apart {
            settings: encoder.into(),
            fallback: encoder.fallback,
        };
    }
    let is_inside = resolved
        .workers()
        .any(|(_, worker)| worker.folds.contains(&RoleName::Encoder));
    if is_inside && facts.towers.is_some() {
        return Encoding::Inside((&Encoder::default()).into());
    }
    Encoding::None
}

fn instance(path: ActorPath, node: NodeId, settings: Settings, needs: Vec<Vec<Role>>, reason: String) -> Instance {
    Instance {
        path,
        node,
        folds: Vec::new(),
        parallel: Parallel::default(),
        threads: 0,
        devices: Vec::new(),
        settings,
        needs,
        reasons: vec![reason],
    }
}

pub(crate) fn host_bytes(tiers: &[Tier]) -> u64 {
    let host = tiers.iter().map(|tier| match tier {
        Tier::Host(size) => size.bytes(),
        Tier::Disk(_) => 0,
    });
    host.sum()
}

fn planned_model(resolved: &Resolved, context: u32) -> PlannedModel {
    PlannedModel {
        origin: resolved.model.origin.clone(),
        served_names: resolved.model.served_names.clone(),
        context,
        arithmetic: resolved.model.arithmetic,
        kv_dtype: resolved.kv_cache.dtype,
    }
}

/// The checks that held, with their figures.
pub(crate) fn passed(plan: &Plan, resolved: &Resolved, facts: &ModelFacts) -> Vec<Passed> {
    let mut list = vec![Passed {
        rule: "roles".into(),
        detail: wiring(plan),
    }];
    list.extend(split::passed(resolved, facts));
    let used = plan
        .memory
        .iter()
        .filter(|row| plan.devices.is_empty() || row.used_bytes() > 0);
    list.extend(used.map(|row| Passed {
        rule: "memory".into(),
        detail: format!(
            "{} of {} on {}",
            rounded(row.used_bytes()),
            rounded(row.limit_bytes()),
            row.node
        ),
    }));
    list.extend(fullest(&plan.devices));
    let context = plan.model.context;
    let shortened = if context < facts.context {
        format!(" of the model's {}", facts.context)
    } else {
        String::new()
    };
    let pages = match facts.classes.len() {
        1 => format!("{} bytes a token", facts.kv_bytes_per_token(plan.model.kv_dtype)),
        classes => format!("{classes} classes"),
    };
    list.push(Passed {
        rule: "context".into(),
        detail: format!("{context} tokens{shortened}, in pages of {pages}"),
    });
    list
}

/// The accelerator with the least room left, over all roles that share it.
fn fullest(rows: &[DeviceRow]) -> Option<Passed> {
    let used = |device: &Device| {
        rows.iter()
            .filter(|row| row.device == *device)
            .map(DeviceRow::used_bytes)
            .sum::<u64>()
    };
    // Of several that are equally full, the first.
    let row = rows
        .iter()
        .rev()
        .max_by_key(|row| used(&row.device) * 1000 / row.capacity_bytes)?;
    Some(Passed {
        rule: "devices".into(),
        detail: format!(
            "at most {} of {} used, on {} device {}",
            rounded(used(&row.device)),
            rounded(row.capacity_bytes),
            row.device.node,
            row.device.index
        ),
    })
}

fn wiring(plan: &Plan) -> String {
    let count = |role: Role| plan.of_role(role).count();
    let media = match &plan.encoding {
        Encoding::None => "",
        Encoding::Inside(_) => "; media are encoded inside",
        Encoding::Apart {
            fallback: Fallback::Fail,
            ..
        } => "; media are encoded apart",
        Encoding::Apart { .. } => "; media are encoded apart, or where prompts are computed if no encoder answers",
    };
    match count(Role::Prefill) {
        0 => format!("{} decode with prefill inside{media}", count(Role::Decode)),
        prefill => format!(
            "{prefill} prefill to {} decode, pages alike{media}",
            count(Role::Decode)
        ),
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
