use sha2::{Digest, Sha256};

use super::*;
use crate::{Sha256Digest, Silent};

fn artifact(sources: Vec<Source>) -> Artifact {
    Artifact {
        name: "tiny".into(),
        file_name: "tiny.gguf".into(),
        size: 5,
        sha256: Sha256Digest(Sha256::digest(b"right").into()),
        sources,
    }
}

#[test]
fn a_file_put_by_hand_is_used() {
    let cache = tempfile::tempdir().unwrap();
    let store = Store::new(cache.path());
    let artifact = artifact(vec![]);
    assert_eq!(store.locate(&artifact).unwrap(), None);
    fs::create_dir_all(store.folder("tiny")).unwrap();
    let file = store.folder("tiny").join("tiny.gguf");
    fs::write(&file, "right").unwrap();
    assert_eq!(store.locate(&artifact).unwrap(), Some(file.clone()));
    assert_eq!(store.ensure(&artifact, &Silent).unwrap(), file);
}

#[test]
fn a_path_source_is_used_where_it_lies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("elsewhere.gguf");
    fs::write(&path, "right").unwrap();
    // A cache that cannot be written to does no harm.
    let store = Store::new("/dev/null/cache");
    assert_eq!(
        store
            .ensure(&artifact(vec![Source::Path(path.clone())]), &Silent)
            .unwrap(),
        path
    );
}

#[test]
fn everything_that_was_tried_is_told() {
    let cache = tempfile::tempdir().unwrap();
    let store = Store::new(cache.path());
    let folder = store.folder("tiny");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("tiny.gguf"), "wrong").unwrap();
    let error = store
        .ensure(&artifact(vec![Source::Path("/nowhere/a".into())]), &Silent)
        .unwrap_err();
    let expected = format!(
        "cannot get tiny.gguf (5 bytes, sha256 {right})
  tried the cache, {folder}/tiny.gguf
    its sha256 is {wrong} instead of {right}
  tried path /nowhere/a
    No such file or directory (os error 2)
put the file into {folder} by hand, or make one of its sources reachable",
        right = Sha256Digest(Sha256::digest(b"right").into()),
        wrong = Sha256Digest(Sha256::digest(b"wrong").into()),
        folder = folder.display(),
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_cache_that_cannot_be_made_is_named() {
    let error = Store::new("/dev/null/cache")
        .ensure(&artifact(vec![]), &Silent)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot create /dev/null/cache/models/tiny: Not a directory (os error 20); the cache folder is set by CLUSTER_CACHE"
    );
}

#[test]
fn names_cannot_lead_out_of_the_cache() {
    let store = Store::new("/nowhere");
    for name in ["", "..", ".hidden", "a/b", "a b", "ü"] {
        let artifact = Artifact {
            file_name: name.into(),
            ..artifact(vec![])
        };
        assert!(matches!(store.locate(&artifact), Err(FetchError::Name(wrong)) if wrong == name));
        let artifact = Artifact {
            name: name.into(),
            file_name: "f".into(),
            ..artifact
        };
        assert!(matches!(store.ensure(&artifact, &Silent), Err(FetchError::Name(_))));
    }
}
