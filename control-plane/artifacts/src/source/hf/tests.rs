mod hub;

use std::{fs, path::PathBuf, time::Duration};

use hub::{Hub, Manner};
use sha2::{Digest, Sha256};

use crate::{Artifact, FetchError, HfSettings, Sha256Digest, Silent, Source, Store};

fn content() -> Vec<u8> {
    (0..100_000u32).map(|index| (index % 251) as u8).collect()
}

fn artifact() -> Artifact {
    Artifact {
        name: "tiny".into(),
        file_name: "tiny.gguf".into(),
        size: 100_000,
        sha256: Sha256Digest(Sha256::digest(content()).into()),
        sources: vec![Source::Hf {
            repo: "owner/tiny".into(),
            file: "folder/tiny.gguf".into(),
            revision: "main".into(),
        }],
    }
}

struct Site {
    hub: Hub,
    cache: tempfile::TempDir,
}

impl Site {
    fn new(content: &[u8], manner: Manner) -> Self {
        Self {
            hub: Hub::start(content, manner),
            cache: tempfile::tempdir().unwrap(),
        }
    }

    fn ensure(&self) -> Result<PathBuf, FetchError> {
        let settings = HfSettings {
            endpoint: format!("{}/", self.hub.endpoint),
            token: Some("secret".into()),
            ..HfSettings::default()
        };
        Store::new(self.cache.path())
            .with_hf(settings)
            .ensure(&artifact(), &Silent)
    }

    fn folder(&self) -> PathBuf {
        self.cache.path().join("models/tiny")
    }

    /// What an interrupted run leaves.
    fn leave_part(&self, bytes: &[u8]) {
        let blobs = self.folder().join("tiny.gguf.download/hf/models--owner--tiny/blobs");
        fs::create_dir_all(&blobs).unwrap();
        fs::write(blobs.join("e1.part"), bytes).unwrap();
    }
}

/// The reason given for the one source.
fn reason(result: Result<PathBuf, FetchError>) -> String {
    match result {
        Err(FetchError::Unreachable(unreachable)) => unreachable.attempts[0].reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_whole_file_is_fetched_once() {
    let site = Site::new(&content(), Manner::Good);
    let path = site.ensure().unwrap();
    assert_eq!(path, site.folder().join("tiny.gguf"));
    assert_eq!(fs::read(&path).unwrap(), content());
    assert!(!site.folder().join("tiny.gguf.download").exists());

    let asked = site.hub.asked();
    assert_eq!(asked[0].path, "/owner/tiny/resolve/main/folder/tiny.gguf");
    assert_eq!(asked[0].authorization.as_deref(), Some("Bearer secret"));
    site.ensure().unwrap();
    assert_eq!(site.hub.asked(), asked);
}

#[test]
fn what_an_interrupted_run_left_is_not_fetched_again() {
    let site = Site::new(&content(), Manner::Good);
    site.leave_part(&content()[..60_000]);
    assert_eq!(fs::read(site.ensure().unwrap()).unwrap(), content());
    assert_eq!(site.hub.ranges(), ["bytes=60000-"]);
}

#[test]
fn a_broken_connection_is_taken_up_again() {
    let site = Site::new(&content(), Manner::BreaksOnceAfter(20_000));
    assert_eq!(fs::read(site.ensure().unwrap()).unwrap(), content());
    assert_eq!(site.hub.ranges(), ["bytes=0-", "bytes=20000-"]);
}

#[test]
fn a_server_that_cannot_resume_is_asked_for_the_whole() {
    let site = Site::new(&content(), Manner::IgnoresRanges);
    site.leave_part(&content()[..60_000]);
    assert_eq!(fs::read(site.ensure().unwrap()).unwrap(), content());
    assert_eq!(site.hub.ranges(), ["bytes=60000-", "bytes=0-"]);
}

#[test]
fn a_part_with_wrong_bytes_is_replaced() {
    let site = Site::new(&content(), Manner::Good);
    site.leave_part(&[7; 60_000]);
    assert_eq!(fs::read(site.ensure().unwrap()).unwrap(), content());
    assert_eq!(site.hub.ranges(), ["bytes=60000-", "bytes=0-"]);
}

#[test]
fn a_part_as_long_as_the_file_is_dropped() {
    let site = Site::new(&content(), Manner::Good);
    site.leave_part(&[7; 100_000]);
    assert_eq!(fs::read(site.ensure().unwrap()).unwrap(), content());
    assert_eq!(site.hub.ranges(), ["bytes=0-"]);
}

#[test]
fn other_bytes_are_refused_and_removed() {
    let mut other = content();
    other[99_999] ^= 1;
    let site = Site::new(&other, Manner::Good);
    let found = Sha256Digest(Sha256::digest(&other).into());
    assert_eq!(
        reason(site.ensure()),
        format!(
            "the file was removed: its sha256 is {found} instead of {}",
            artifact().sha256
        )
    );
    assert!(!site.folder().join("tiny.gguf").exists());
    let blob = site.folder().join("tiny.gguf.download/hf/models--owner--tiny/blobs/e1");
    assert!(!blob.exists());

    let site = Site::new(&content()[1..], Manner::Good);
    assert_eq!(
        reason(site.ensure()),
        "the file was removed: it has 99999 bytes instead of 100000"
    );
}

#[test]
fn a_missing_file_is_named() {
    let site = Site::new(&content(), Manner::NotFound);
    let error = site.ensure().unwrap_err().to_string();
    let expected = format!(
        "cannot get tiny.gguf (100000 bytes, sha256 {})
  tried hf://owner/tiny/folder/tiny.gguf at main
    request error: http status: 404
put the file into {} by hand, or make one of its sources reachable",
        artifact().sha256,
        site.folder().display()
    );
    assert_eq!(error, expected);
    assert_eq!(site.hub.asked().len(), 1);
}

#[test]
fn a_mute_server_is_given_up() {
    let site = Site::new(&content(), Manner::Mute);
    let settings = HfSettings {
        endpoint: site.hub.endpoint.clone(),
        connect_timeout: Duration::from_millis(20),
        ..HfSettings::default()
    };
    let store = Store::new(site.cache.path()).with_hf(settings);
    assert_eq!(
        reason(store.ensure(&artifact(), &Silent)),
        format!("{} was silent for 20ms", site.hub.endpoint)
    );
}
