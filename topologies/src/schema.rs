//! What a topology file can say. Every default is written here, once, in a `Default`.
//!
//! A new field is a new row: it appears in the JSON Schema, is checked for name, type and range, and gets its default
//! without another line. A field that is declared here but not served yet has a row in `unsupported.rs` too.

mod links;
mod model;
mod roles;

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};

pub use links::{Carrier, Limits, Links, MediaLimits, Restart};
pub use model::{Arithmetic, Emulate, ExpertArithmetic, KvCache, KvDtype, Model, Tier};
pub use roles::{
    Cache, Encoder, Fallback, Parallel, Policy, RoleName, Roles, Router, Speculation, Tokenizer, Worker, WorkerKv,
};

use crate::{ByteSize, Name};

/// A topology: a model, the roles that serve it, and the machines they need.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Names the cluster in `cluster status` and `cluster down`.
    pub name: Name,
    /// What is served.
    pub model: Model,
    /// The machines. None: the one machine on which the file is brought up, its CPU only.
    #[serde(default)]
    pub nodes: Vec<Node>,
    /// How the state of running sequences is kept.
    #[serde(default)]
    pub kv_cache: KvCache,
    /// Who does the work.
    pub roles: Roles,
    /// How state moves between roles.
    #[serde(default)]
    pub links: Links,
    /// What is refused at the door.
    #[serde(default)]
    pub limits: Limits,
    /// What happens after an instance died.
    #[serde(default)]
    pub restart: Restart,
    /// What stands in for declared hardware that is not here.
    #[serde(default)]
    pub emulate: Option<Emulate>,
}

/// One machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Roles refer to it by this name.
    pub name: Name,
    /// The kind of its accelerators; `cpu`: none, the roles run on its cores.
    #[serde(default = "cpu")]
    pub accelerator: Name,
    /// How many accelerators it must have.
    #[serde(default)]
    pub count: u32,
    /// Its main memory. None: that of the usual machine around such accelerators.
    #[serde(default)]
    pub memory: Option<ByteSize>,
    /// Machines of the same domain reach each other's accelerators directly.
    #[serde(default)]
    pub link_domain: Option<Name>,
    /// What else it must be labelled with.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl Node {
    /// Whether roles run on something else than its processor cores.
    pub fn has_accelerators(&self) -> bool {
        self.accelerator != cpu()
    }

    /// The one machine on which a file that names no nodes is brought up.
    pub fn local() -> Self {
        Self {
            name: "local".parse().expect("'local' is a name"),
            accelerator: cpu(),
            count: 0,
            memory: None,
            link_domain: None,
            labels: BTreeMap::new(),
        }
    }
}

fn cpu() -> Name {
    "cpu".parse().expect("'cpu' is a name")
}

/// The JSON Schema of topology files, for editors. A file that extends another need not be whole.
pub fn json_schema() -> Schema {
    let mut schema = whole_schema();
    schema.insert("required".into(), serde_json::json!(["name"]));
    schema
}

/// The schema of a topology once everything it extends is in it.
pub(crate) fn whole_schema() -> Schema {
    let mut schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<Topology>();
    let extends = serde_json::json!({
        "description": "The topology that this file differs from: the name of a shipped one, or a path.",
        "type": ["string", "null"],
    });
    let fields = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut);
    fields
        .expect("a topology is a mapping with fields")
        .insert("extends".into(), extends);
    schema
}
