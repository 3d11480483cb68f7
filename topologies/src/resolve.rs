//! A topology with its model found and nothing optional left that does not mean "absent".

use serde::{Deserialize, Serialize};

use crate::suggest::nearest;
use crate::{
    AcceleratorFile, Catalogue, ModelFile, ModelSource, Name, Problem, RoleName, Topology,
    schema::{
        Arithmetic, Cache, Encoder, ExpertArithmetic, KvCache, KvDtype, Limits, Links, Node, Restart, Router,
        Tokenizer, Worker,
    },
};

/// What is to be brought up. Made only from a topology that passed its checks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Resolved {
    /// The cluster's name.
    pub name: Name,
    /// What is served.
    pub model: ResolvedModel,
    /// The machines; at least one.
    pub nodes: Vec<Node>,
    /// The kinds of accelerators that nodes have, each once.
    pub accelerators: Vec<AcceleratorFile>,
    /// How state is kept.
    pub kv_cache: KvCache,
    /// The tokenizer role.
    pub tokenizer: Tokenizer,
    /// The router role and the endpoint.
    pub router: Router,
    /// The encoder role, when it runs apart.
    pub encoder: Option<Encoder>,
    /// The prefill role, when it runs apart.
    pub prefill: Option<Worker>,
    /// The decode role.
    pub decode: Worker,
    /// The cache role.
    pub cache: Option<Cache>,
    /// How state moves.
    pub links: Links,
    /// What is refused at the door.
    pub limits: Limits,
    /// What happens after an instance died.
    pub restart: Restart,
    /// What stands in for missing hardware.
    pub emulate: Option<StandIn>,
}

impl Resolved {
    /// Whether prompts are computed by instances of their own.
    pub const fn is_split(&self) -> bool {
        self.prefill.is_some()
    }

    /// Whether the topology needs more than the processor of one machine: accelerators, or several machines.
    pub fn needs_hardware(&self) -> bool {
        self.nodes.len() > 1 || self.nodes.iter().any(Node::has_accelerators)
    }

    /// The figures of a kind of accelerator.
    pub fn accelerator(&self, kind: &Name) -> Option<&AcceleratorFile> {
        self.accelerators.iter().find(|file| file.name == *kind)
    }

    /// The roles that compute, in the order of the request path.
    pub fn workers(&self) -> impl Iterator<Item = (RoleName, &Worker)> {
        let prefill = self.prefill.iter().map(|worker| (RoleName::Prefill, worker));
        prefill.chain([(RoleName::Decode, &self.decode)])
    }
}

/// The model, found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ResolvedModel {
    /// Where it comes from.
    pub origin: ModelOrigin,
    /// The names clients may ask for; at least one, the first is the one in answers.
    pub served_names: Vec<String>,
    /// The longest sequence asked for; none: as long as the model allows.
    pub context: Option<u32>,
    /// How quantized weights are multiplied.
    pub arithmetic: Arithmetic,
    /// The format of the weights, where a source offers several.
    pub quantization: Option<Name>,
    /// The format they are turned into while they are loaded.
    pub requantize: Option<Name>,
    /// What experts with quantized weights compute with.
    pub experts: ExpertArithmetic,
}

/// The small model that stands in where hardware is emulated.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StandIn {
    /// Where it comes from.
    pub origin: ModelOrigin,
    /// What it is called.
    pub name: String,
    /// How it keeps keys and values.
    pub kv_dtype: KvDtype,
}

/// Where a model comes from. Paths are as written: relative ones mean the topology file's folder.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ModelOrigin {
    /// A model file that says where to fetch it.
    File(Box<ModelFile>),
    /// A file or folder.
    Path(String),
    /// A script of answers.
    Scripted(String),
    /// The simulated model.
    Simulated,
}

/// Fills in what a topology leaves open. The topology must have passed `check`; what only the catalogue can tell is
/// reported here.
pub fn resolve(topology: &Topology, catalogue: &Catalogue) -> Result<Resolved, Vec<Problem>> {
    let mut problems = Vec::new();
    let accelerators = accelerators(topology, catalogue, &mut problems);
    let emulate = stand_in(topology, catalogue, &mut problems);
    let model = model(topology, catalogue, &mut problems);
    let roles = &topology.roles;
    let (Some(model), Some(tokenizer), Some(router), Some(decode)) =
        (model, &roles.tokenizer, &roles.router, &roles.decode)
    else {
        return Err(problems);
    };
    Ok(Resolved {
        name: topology.name.clone(),
        model,
        nodes: nodes(topology),
        accelerators,
        kv_cache: kv_cache(topology, decode),
        tokenizer: tokenizer.clone(),
        router: router.clone(),
        encoder: roles.encoder.clone(),
        prefill: roles.prefill.clone(),
        decode: decode.clone(),
        cache: roles.cache.clone(),
        links: topology.links.clone(),
        limits: topology.limits.clone(),
        restart: topology.restart.clone(),
        emulate,
    })
}

/// How state is kept. What decode says itself comes first; prefill was checked to say the same.
fn kv_cache(topology: &Topology, decode: &Worker) -> KvCache {
    let own = decode.kv_cache.unwrap_or_default();
    let common = &topology.kv_cache;
    KvCache {
        page_tokens: own.page_tokens.unwrap_or(common.page_tokens),
        dtype: own.dtype.unwrap_or(common.dtype),
        ..common.clone()
    }
}

fn nodes(topology: &Topology) -> Vec<Node> {
    if topology.nodes.is_empty() {
        return vec![Node::local()];
    }
    topology.nodes.clone()
}

/// The kinds of accelerators that are declared.
fn accelerators(topology: &Topology, catalogue: &Catalogue, problems: &mut Vec<Problem>) -> Vec<AcceleratorFile> {
    let mut found: Vec<AcceleratorFile> = Vec::new();
    for (index, node) in topology
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| node.has_accelerators())
    {
        let kind = &node.accelerator;
        match catalogue.accelerator(kind.as_str()) {
            Some(file) if !found.contains(file) => found.push(file.clone()),
            Some(_) => {}
            None => {
                let known: Vec<&str> = catalogue.accelerators().map(|file| file.name.as_str()).collect();
                let message = format!("there is no accelerator file '{kind}'");
                let help = match nearest(kind.as_str(), known.iter().copied()) {
                    Some(near) => format!("did you mean '{near}'?"),
                    None => format!(
                        "add accelerators/{kind}.yaml beside this file, or use one of cpu, {}",
                        known.join(", ")
                    ),
                };
                let at = format!("nodes.{index}.accelerator");
                problems.push(Problem::new("unknown-accelerator", &at, message, help));
            }
        }
    }
    found
}

fn stand_in(topology: &Topology, catalogue: &Catalogue, problems: &mut Vec<Problem>) -> Option<StandIn> {
    let emulate = topology.emulate.as_ref()?;
    let origin = origin(&emulate.model, "emulate.model", catalogue, problems)?;
    let name = match &origin {
        ModelOrigin::File(file) => file.name.to_string(),
        other => own_names(other).remove(0),
    };
    let kv_dtype = emulate.kv_dtype;
    Some(StandIn { origin, name, kv_dtype })
}

fn model(topology: &Topology, catalogue: &Catalogue, problems: &mut Vec<Problem>) -> Option<ResolvedModel> {
    let declared = &topology.model;
    let origin = origin(&declared.source, "model.source", catalogue, problems)?;
    if let ModelOrigin::File(file) = &origin {
        problems.extend(context_problem(declared.context, file));
        problems.extend(quantization_problem(declared.quantization.as_ref(), file));
    }
    if !problems.is_empty() {
        return None;
    }
    let mut served_names = declared.served_names.clone();
    if served_names.is_empty() {
        served_names = own_names(&origin);
    }
    Some(ResolvedModel {
        origin,
        served_names,
        context: declared.context,
        arithmetic: declared.arithmetic,
        quantization: declared.quantization.clone(),
        requantize: declared.requantize.clone(),
        experts: declared.experts,
    })
}

fn origin(source: &ModelSource, at: &str, catalogue: &Catalogue, problems: &mut Vec<Problem>) -> Option<ModelOrigin> {
    let name = match source {
        ModelSource::Path(path) => return Some(ModelOrigin::Path(path.clone())),
        ModelSource::Scripted(file) => return Some(ModelOrigin::Scripted(file.clone())),
        ModelSource::Simulated => return Some(ModelOrigin::Simulated),
        ModelSource::Catalogue(name) => name,
    };
    if let Some(file) = catalogue.get(name.as_str()) {
        return Some(ModelOrigin::File(Box::new(file.clone())));
    }
    let help = match catalogue.nearest(name.as_str()) {
        Some(near) => format!("did you mean '{near}'? Other models: add models/{name}.yaml beside this file"),
        None => format!("add models/{name}.yaml beside this file, or write a path that starts with ./ or /"),
    };
    problems.push(Problem::new(
        "unknown-model",
        at,
        format!("there is no model file '{name}'"),
        help,
    ));
    None
}

fn context_problem(context: Option<u32>, file: &ModelFile) -> Option<Problem> {
    let wanted = context.filter(|context| *context > file.context)?;
    let message = format!("{wanted} tokens of context; {} has {}", file.name, file.context);
    let help = format!("set it to {} or less, or leave it out", file.context);
    Some(Problem::new("context-over", "model.context", message, help))
}

fn quantization_problem(wanted: Option<&Name>, file: &ModelFile) -> Option<Problem> {
    let wanted = wanted.filter(|name| file.quantization(Some(name)).is_none())?;
    let offered: Vec<&str> = file.quantizations.iter().map(|one| one.name.as_str()).collect();
    let message = format!("{} is not offered as '{wanted}'", file.name);
    let help = match offered.as_slice() {
        [] => "leave it out: the weights have one format".into(),
        names => format!("use one of {}", names.join(", ")),
    };
    Some(Problem::new(
        "unknown-quantization",
        "model.quantization",
        message,
        help,
    ))
}

/// The names of a model that was given none.
fn own_names(origin: &ModelOrigin) -> Vec<String> {
    let name = match origin {
        ModelOrigin::File(file) => return file.served_names.clone(),
        ModelOrigin::Path(path) => {
            let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
            last.strip_suffix(".gguf").unwrap_or(last)
        }
        ModelOrigin::Scripted(_) => "scripted",
        ModelOrigin::Simulated => "simulated",
    };
    vec![name.to_owned()]
}
