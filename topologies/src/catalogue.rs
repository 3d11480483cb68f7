//! Models and accelerators by name, and the files that are shipped inside the program.

use std::collections::BTreeMap;

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

/// The text of a shipped topology file, asked for as `local` or as any path that ends in `local.yaml`.
pub fn shipped_topology(name: &str) -> Option<&'static str> {
    let stem = name.rsplit('/').next().unwrap_or(name);
    let stem = stem.strip_suffix(".yaml").unwrap_or(stem);
    let found = SHIPPED_TOPOLOGIES.iter().find(|(shipped, _)| *shipped == stem);
    found.map(|(_, text)| *text)
}

#[cfg(test)]
mod tests;
