use std::fs;

use super::SHIPPED;
use crate::Store;

#[test]
fn a_shipped_model_is_written_whole_and_mended() {
    let cache = tempfile::tempdir().unwrap();
    let store = Store::new(cache.path());
    let folder = store.ensure_shipped("muse-nano").unwrap().unwrap();
    let (_, files) = SHIPPED[0];
    for (name, bytes) in files {
        assert_eq!(fs::read(folder.join(name)).unwrap(), *bytes, "{name}");
    }
    fs::write(folder.join("config.json"), "{}").unwrap();
    fs::remove_file(folder.join("tokenizer.json")).unwrap();
    assert_eq!(store.ensure_shipped("muse-nano").unwrap(), Some(folder.clone()));
    for (name, bytes) in files {
        assert_eq!(fs::read(folder.join(name)).unwrap(), *bytes, "{name}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), files.len());
}

#[test]
fn other_names_are_not_shipped() {
    let cache = tempfile::tempdir().unwrap();
    assert_eq!(Store::new(cache.path()).ensure_shipped("muse").unwrap(), None);
    assert!(!cache.path().join("models").exists());
}
