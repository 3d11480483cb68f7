//! Topology files as users name them: a path, or the name of one that is shipped inside the program. Model files lie in
//! `models/` beside the topology and win over shipped ones.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use cluster_topologies::{
    AcceleratorFile, Catalogue, Document, ModelFile, Problem, Resolved,
    catalogue::{shipped_topology, similar_topologies},
    unsupported,
};

use crate::failure::Failure;

/// A topology file that was read, good or bad.
#[derive(Debug)]
pub(crate) struct TopologyFile {
    document: Document,
    catalogue: Catalogue,
    /// Relative paths in the file start from here.
    pub(crate) folder: PathBuf,
}

impl TopologyFile {
    /// Reads `file`; if there is none, the shipped one of that name.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let name = file.to_string_lossy();
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => shipped_text(&name)?.to_owned(),
            Err(error) => return Err(Failure::input(format!("cannot read {name}: {error}"))),
        };
        let folder = file.parent().map(Path::to_owned).unwrap_or_default();
        let catalogue = catalogue_with(&folder)?;
        Ok(Self {
            document: Document::read_with(&text, &name, &|base| base_text(base, &folder)),
            catalogue,
            folder,
        })
    }

    /// A shipped one, whatever lies in the current folder.
    pub(crate) fn shipped(name: &str, text: &str) -> Self {
        Self {
            document: Document::read(text, name),
            catalogue: Catalogue::shipped(),
            folder: PathBuf::new(),
        }
    }

    /// The topology with everything filled in, or all that is wrong.
    pub(crate) fn resolve(&self) -> Result<Resolved, Failure> {
        Ok(self.document.resolve(&self.catalogue)?)
    }

    /// The same, refusing what can be planned but not brought up by this version.
    pub(crate) fn resolve_for_start(&self) -> Result<Resolved, Failure> {
        let resolved = self.resolve()?;
        let problems = unsupported(self.document.topology()?);
        if problems.is_empty() {
            Ok(resolved)
        } else {
            Err(self.failure(problems))
        }
    }

    /// What was found wrong after the file was read, with line and column.
    pub(crate) fn failure(&self, problems: Vec<Problem>) -> Failure {
        self.document.locate(problems).into()
    }
}

/// The file that a topology extends: a path from its own folder, else a shipped one.
fn base_text(base: &str, folder: &Path) -> Option<String> {
    let beside = folder.join(base);
    let text = fs::read_to_string(&beside).or_else(|_| fs::read_to_string(beside.with_extension("yaml")));
    text.ok().or_else(|| shipped_topology(base).map(str::to_owned))
}

fn shipped_text(name: &str) -> Result<&'static str, Failure> {
    shipped_topology(name).ok_or_else(|| {
        let remedy = match similar_topologies(name).as_slice() {
            [] => "name a topology file, or a shipped one:".into(),
            [one] => format!("did you mean '{one}'?"),
            several => format!("did you mean one of {}?", several.join(", ")),
        };
        let help = format!("{remedy} 'cluster topologies' lists what is shipped");
        Failure::input(format!("there is no file {name}\n  help: {help}"))
    })
}

/// The shipped models and accelerators, and those in `models/` and `accelerators/` below `folder`.
pub(crate) fn catalogue_with(folder: &Path) -> Result<Catalogue, Failure> {
    let mut catalogue = Catalogue::shipped();
    for path in yaml_files(&folder.join("models"))? {
        catalogue.insert(read_model(&path)?);
    }
    for path in yaml_files(&folder.join("accelerators"))? {
        let text = read_text(&path)?;
        catalogue.insert_accelerator(AcceleratorFile::parse(&text, &path.to_string_lossy())?);
    }
    Ok(catalogue)
}

fn read_text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure::input(format!("cannot read {}: {error}", path.display())))
}

fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(Failure::input(format!("cannot read {}: {error}", folder.display()))),
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    Ok(files)
}

/// Reads a model file; relative paths among its sources become paths from here.
pub(crate) fn read_model(path: &Path) -> Result<ModelFile, Failure> {
    let text = read_text(path)?;
    let mut model = ModelFile::parse(&text, &path.to_string_lossy())?;
    let folder = path.parent().unwrap_or(Path::new(""));
    for source in &mut model.sources {
        if let cluster_topologies::Source::Path(file) = source {
            *file = absolute(&folder.join(&*file)).to_string_lossy().into_owned();
        }
    }
    Ok(model)
}

/// The path from the root. Where the current folder is unknown, a relative path is as good as it gets.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

#[cfg(test)]
mod tests;
