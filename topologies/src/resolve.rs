//! A topology with its model found and nothing optional left that does not mean "absent".

use serde::{Deserialize, Serialize};

use crate::{
    Catalogue, ModelFile, ModelSource, Name, Problem, RoleName, Topology,
    schema::{Arithmetic, Cache, Emulate, Encoder, KvCache, Limits, Links, Node, Restart, Router, Tokenizer, Worker},
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
    pub emulate: Option<Emulate>,
}

impl Resolved {
    /// Whether prompts are computed by instances of their own.
    pub const fn is_split(&self) -> bool {
        self.prefill.is_some()
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
        kv_cache: topology.kv_cache.clone(),
        tokenizer: tokenizer.clone(),
        router: router.clone(),
        encoder: roles.encoder.clone(),
        prefill: roles.prefill.clone(),
        decode: decode.clone(),
        cache: roles.cache.clone(),
        links: topology.links.clone(),
        limits: topology.limits.clone(),
        restart: topology.restart.clone(),
        emulate: topology.emulate.clone(),
    })
}

fn nodes(topology: &Topology) -> Vec<Node> {
    if topology.nodes.is_empty() {
        return vec![Node::local()];
    }
    topology.nodes.clone()
}

fn model(topology: &Topology, catalogue: &Catalogue, problems: &mut Vec<Problem>) -> Option<ResolvedModel> {
    let declared = &topology.model;
    let origin = origin(&declared.source, catalogue, problems)?;
    if let ModelOrigin::File(file) = &origin {
        problems.extend(context_problem(declared.context, file));
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
    })
}

fn origin(source: &ModelSource, catalogue: &Catalogue, problems: &mut Vec<Problem>) -> Option<ModelOrigin> {
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
        "model.source",
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
