//! One file on its way from text to a checked topology.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::{
    Catalogue, Place, Problem, Problems, Resolved, Topology,
    catalogue::shipped_topology,
    check,
    extend::{Bases, extend},
    resolve,
    schema::whole_schema,
    shape::fit,
    tree::{Tree, Value},
};

static TOPOLOGY_SCHEMA: LazyLock<Json> = LazyLock::new(|| whole_schema().to_value());

/// A file that was read, its places at hand, so that what is found later can be reported with line and column.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    text: String,
    tree: Option<Tree>,
    topology: Option<Topology>,
    problems: Vec<Problem>,
    /// What the file extends, and where it says so.
    base: Option<(String, Place)>,
}

impl Document {
    /// Reads and checks `text`, which may extend a shipped file. `file` is only its name, for messages.
    pub fn read(text: &str, file: &str) -> Self {
        Self::read_with(text, file, &|base| shipped_topology(base).map(str::to_owned))
    }

    /// Reads and checks `text`, which may extend a file that `bases` has.
    pub fn read_with(text: &str, file: &str, bases: Bases<'_>) -> Self {
        let mut problems = Vec::new();
        let tree = Tree::read(text, &mut problems);
        let base = tree.as_ref().and_then(base_of);
        let tree = tree.map(|tree| extend(tree, bases, &mut problems));
        // Without its base a file lacks almost everything; saying so would hide the cause.
        let is_whole = problems.iter().all(|problem| problem.at != "extends");
        let topology = tree
            .as_ref()
            .filter(|_| is_whole)
            .and_then(|tree| from_tree(tree, &TOPOLOGY_SCHEMA, &mut problems));
        if let Some(topology) = &topology {
            let faulty: Vec<String> = problems.iter().map(|problem| problem.at.clone()).collect();
            let found = check(topology).into_iter();
            problems.extend(found.filter(|problem| !faulty.iter().any(|path| covers(path, &problem.at))));
        }
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
            tree,
            topology,
            problems,
            base,
        }
    }

    /// The topology, when nothing is wrong with the file.
    pub fn topology(&self) -> Result<&Topology, Problems> {
        match &self.topology {
            Some(topology) if self.problems.is_empty() => Ok(topology),
            _ => Err(self.locate(Vec::new())),
        }
    }

    /// The topology with its model found and its defaults filled. What the catalogue lacks is reported together with
    /// everything else that is wrong.
    pub fn resolve(&self, catalogue: &Catalogue) -> Result<Resolved, Problems> {
        let resolved = self.topology.as_ref().map(|topology| resolve(topology, catalogue));
        match resolved {
            Some(Ok(resolved)) if self.problems.is_empty() => Ok(resolved),
            Some(Err(further)) => Err(self.locate(further)),
            _ => Err(self.locate(Vec::new())),
        }
    }

    /// What was found in this file and what was found later, with places.
    pub fn locate(&self, further: Vec<Problem>) -> Problems {
        let mut list = self.problems.clone();
        list.extend(further);
        for problem in &mut list {
            if problem.place.is_none() {
                self.place(problem);
            }
        }
        Problems::new(&self.file, &self.text, list)
    }

    /// Says where a problem stands. A field that the base sets has no line here; its name says what is meant.
    fn place(&self, problem: &mut Problem) {
        problem.place = self.tree.as_ref().map(|tree| tree.place_of(&problem.at));
        if let Some((base, named_at)) = &self.base
            && problem.place == Some(*named_at)
        {
            problem.message = format!("{} as in {base}: {}", problem.at, problem.message);
        }
    }
}

/// What a file extends, and where it says so.
fn base_of(tree: &Tree) -> Option<(String, Place)> {
    let Value::Map(entries) = &tree.value else { return None };
    let asked = &entries.iter().find(|entry| entry.key == "extends")?.tree;
    match &asked.value {
        Value::Text(base) => Some((base.clone(), asked.place)),
        _ => None,
    }
}

/// Reads and checks a topology file.
pub fn parse(text: &str, file: &str) -> Result<Topology, Problems> {
    Document::read(text, file).topology().cloned()
}

/// Reads, checks and resolves a topology file.
pub fn load(text: &str, file: &str, catalogue: &Catalogue) -> Result<Resolved, Problems> {
    Document::read(text, file).resolve(catalogue)
}

/// Reads any file described by a schema, as far as it can be read.
pub(crate) fn read<T: DeserializeOwned + JsonSchema>(
    text: &str,
    schema: &Json,
    problems: &mut Vec<Problem>,
) -> (Option<Tree>, Option<T>) {
    let tree = Tree::read(text, problems);
    let value = tree.as_ref().and_then(|tree| from_tree(tree, schema, problems));
    (tree, value)
}

fn from_tree<T: DeserializeOwned>(tree: &Tree, schema: &Json, problems: &mut Vec<Problem>) -> Option<T> {
    if tree.value == Value::Null {
        let help = "start from a shipped file, such as topologies/local.yaml";
        problems.push(Problem::new("empty-file", "", "the file says nothing", help));
        return None;
    }
    let json = fit(tree, schema, problems)?;
    match serde_json::from_value(json) {
        Ok(value) => Some(value),
        Err(error) => {
            problems.push(Problem::new("wrong-form", "", error.to_string(), "correct the value"));
            None
        }
    }
}

/// Whether `path` is `inner` or contains it. What follows from a fault is not reported again.
fn covers(path: &str, inner: &str) -> bool {
    inner
        .strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
