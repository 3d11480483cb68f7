//! Models inside the program: small ones that must be there without any network.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
};

use crate::{FetchError, Store};

/// A model's files by name.
type Files = &'static [(&'static str, &'static [u8])];

macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../../topologies/models/", $folder, "/", $name)))),+]
    };
}

const SHIPPED: &[(&str, Files)] = &[(
    "muse-nano",
    files!("muse-nano":
        "config.json",
        "generation_config.json",
        "processor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "model.safetensors",
    ),
)];

impl Store {
    /// The folder of a model that is part of the program, written to the cache if it is not there or not right. None: no model
    /// of that name is part of the program.
    pub fn ensure_shipped(&self, name: &str) -> Result<Option<PathBuf>, FetchError> {
        let Some((_, files)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) else {
            return Ok(None);
        };
        let folder = self.folder(name);
        let storing = |action, path: &Path| {
            let path = path.to_owned();
            move |source| FetchError::Cache { action, path, source }
        };
        fs::create_dir_all(&folder).map_err(storing("create", &folder))?;
        for (file, bytes) in *files {
            let path = folder.join(file);
            put(&path, bytes).map_err(storing("write", &path))?;
        }
        Ok(Some(folder))
    }
}

/// Makes `path` hold `bytes`. Whoever reads it meanwhile sees the old file or the new one, never a part.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    let partial = path.with_extension(format!("partial-{}", process::id()));
    fs::write(&partial, bytes)?;
    fs::rename(&partial, path)
}

#[cfg(test)]
mod tests;
