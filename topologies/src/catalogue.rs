//! Models and accelerators by name, and the files that are shipped inside the program.

use std::{collections::BTreeMap, sync::LazyLock};

use crate::{AcceleratorFile, ModelFile, suggest::nearest};

/// A shipped file: its name without the ending, and its text.
type Shipped = (&'static str, &'static str);

macro_rules! shipped {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../", $folder, $name, ".yaml")))),*]
    };
}

const SHIPPED_MODELS: &[Shipped] = shipped!("models/":
    "smollm2-135m-instruct",
    "muse-nano",
    "muse-spark-open-816b-a42b",
    "deepseek-v4-flash",
    "deepseek-v4-pro",
);

const SHIPPED_ACCELERATORS: &[Shipped] = shipped!("accelerators/":
    "b200",
    "b300",
    "gb200",
    "gb300",
    "gb10",
    "generic",
    "h200",
    "mi355x",
    "xeon-6980p",
);

const SHIPPED_TOPOLOGIES: &[Shipped] = shipped!("":
    "local",
    "local-pd",
    "muse-nano",
    "epd-b300",
    "muse-spark-b300-latency",
    "muse-spark-b300-sp",
    "muse-spark-b300-throughput",
    "muse-spark-gb200",
    "muse-spark-gb200-disagg",
    "muse-spark-gb200-kv",
    "muse-spark-gb300",
    "muse-spark-gb300-disagg",
    "muse-spark-gb300-kv",
    "muse-spark-gb300-small-batch",
    "muse-spark-gb300-tp8",
    "muse-spark-h200",
    "muse-spark-h200-bf16",
    "muse-spark-mi355x",
    "muse-spark-mi355x-nvfp4",
    "muse-spark-xeon",
    "deepseek-v4-flash-b200-balanced",
    "deepseek-v4-flash-b200-latency",
    "deepseek-v4-flash-b200-throughput",
    "deepseek-v4-flash-spark",
    "deepseek-v4-pro-b200-agentic",
    "deepseek-v4-pro-b200-agentic-dp8",
    "deepseek-v4-pro-b200-balanced",
    "deepseek-v4-pro-b200-latency",
    "deepseek-v4-pro-b200-throughput",
    "deepseek-v4-pro-mi355x-pd-256",
    "deepseek-v4-pro-mi355x-pd-8",
    "deepseek-v4-pro-mi355x-pd-96",
);

/// The models and accelerators a topology can refer to by name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Catalogue {
    models: BTreeMap<String, ModelFile>,
    accelerators: BTreeMap<String, AcceleratorFile>,
}

impl Catalogue {
    /// What is shipped with the program.
    pub fn shipped() -> Self {
        static SHIPPED: LazyLock<Catalogue> = LazyLock::new(Catalogue::read_shipped);
        SHIPPED.clone()
    }

    fn read_shipped() -> Self {
        let mut catalogue = Self::default();
        for (name, text) in SHIPPED_MODELS {
            let model = ModelFile::parse(text, name).expect("shipped model files are tested");
            catalogue.insert(model);
        }
        for (name, text) in SHIPPED_ACCELERATORS {
            let accelerator = AcceleratorFile::parse(text, name).expect("shipped accelerator files are tested");
            catalogue.insert_accelerator(accelerator);
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

    /// Adds a kind of accelerator; one of the same name that is there already makes way.
    pub fn insert_accelerator(&mut self, accelerator: AcceleratorFile) {
        self.accelerators.insert(accelerator.name.to_string(), accelerator);
    }

    /// The kind of accelerator of that name.
    pub fn accelerator(&self, name: &str) -> Option<&AcceleratorFile> {
        self.accelerators.get(name)
    }

    /// All kinds of accelerators, by name.
    pub fn accelerators(&self) -> impl Iterator<Item = &AcceleratorFile> {
        self.accelerators.values()
    }

    /// The model someone probably meant.
    pub(crate) fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.models.keys().map(String::as_str))
    }
}

/// The topology files shipped with the program, name and text.
pub fn shipped_topologies() -> &'static [Shipped] {
    SHIPPED_TOPOLOGIES
}

/// What a topology file is for: its first comment, up to the first stop.
pub fn purpose(text: &str) -> String {
    let comment: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix('#'))
        .map(str::trim)
        .collect();
    let comment = comment.join(" ");
    let ends = [". ", ": ", "; "].into_iter().filter_map(|stop| comment.find(stop));
    let first = &comment[..ends.min().unwrap_or(comment.len())];
    first.trim_end_matches('.').to_owned()
}

/// The shipped topologies that someone who wrote `name` may have meant: those with the word in their names, or else the one
/// whose name differs by a slip.
pub fn similar_topologies(name: &str) -> Vec<&'static str> {
    let stem = stem(name);
    let names = || SHIPPED_TOPOLOGIES.iter().map(|(shipped, _)| *shipped);
    let with_word: Vec<_> = names()
        .filter(|shipped| stem.len() >= 3 && shipped.contains(stem))
        .collect();
    if with_word.is_empty() {
        return nearest(stem, names()).into_iter().collect();
    }
    with_word
}

/// The text of a shipped topology file, asked for as `local` or as any path that ends in `local.yaml`.
pub fn shipped_topology(name: &str) -> Option<&'static str> {
    let stem = stem(name);
    let found = SHIPPED_TOPOLOGIES.iter().find(|(shipped, _)| *shipped == stem);
    found.map(|(_, text)| *text)
}

/// The last part of a path without its ending.
fn stem(name: &str) -> &str {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.strip_suffix(".yaml").unwrap_or(file)
}

#[cfg(test)]
mod tests;
