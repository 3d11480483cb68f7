use super::*;
use crate::Source;

fn artifact_of(bytes: &[u8]) -> Artifact {
    Artifact {
        name: "m".into(),
        file_name: "f".into(),
        size: bytes.len() as u64,
        sha256: Sha256Digest(Sha256::digest(bytes).into()),
        sources: Vec::<Source>::new(),
    }
}

#[test]
fn a_copy_knows_its_size_and_hash() {
    let mut to = Vec::new();
    let copied = copy(&b"abc"[..], &mut to, 3, &|_| {}).unwrap();
    assert_eq!(to, b"abc");
    assert_eq!(copied.size, 3);
    assert_eq!(
        copied.sha256.to_string(),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn an_endless_source_is_cut_off() {
    let copied = copy(io::repeat(0), io::sink(), 10, &|_| {}).unwrap();
    assert!(matches!(
        copied.check(10, copied.sha256),
        Err(Mismatch::Size { expected: 10, .. })
    ));
}

#[test]
fn a_full_disk_is_an_error_of_the_writing_side() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let error = match copy(&b"abc"[..], full, 3, &|_| {}) {
        Err(CopyError::Write(error)) => error,
        other => panic!("{other:?}"),
    };
    let error = crate::FetchError::storing(&artifact_of(b"abc"), "write", "/cache/m/f.partial".into(), error);
    assert_eq!(
        error.to_string(),
        "no space left in /cache/m for f (3 B); free some, or set CLUSTER_CACHE to a folder on another disk"
    );
}

#[test]
fn a_record_spares_the_hashing_until_the_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (file, record) = (folder.path().join("f"), folder.path().join("f.verified"));
    let artifact = artifact_of(b"right");
    fs::write(&file, b"right").unwrap();
    let right_time = fs::metadata(&file).unwrap().modified().unwrap();
    assert_eq!(check_file(&file, &artifact, &record).unwrap(), Ok(()));

    // Other bytes under the old time of change go unnoticed: proof that the record is used.
    fs::write(&file, b"wrong").unwrap();
    let handle = File::options().write(true).open(&file).unwrap();
    handle.set_modified(right_time).unwrap();
    assert_eq!(check_file(&file, &artifact, &record).unwrap(), Ok(()));

    handle
        .set_modified(right_time + std::time::Duration::from_nanos(1_000_000))
        .unwrap();
    assert!(matches!(
        check_file(&file, &artifact, &record).unwrap(),
        Err(Mismatch::Digest { .. })
    ));

    fs::write(&file, b"longer").unwrap();
    assert_eq!(
        check_file(&file, &artifact, &record).unwrap(),
        Err(Mismatch::Size { found: 6, expected: 5 })
    );
}

#[test]
fn a_broken_record_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let (file, record) = (folder.path().join("f"), folder.path().join("f.verified"));
    fs::write(&file, b"wrong").unwrap();
    fs::write(&record, b"{").unwrap();
    assert!(check_file(&file, &artifact_of(b"right"), &record).unwrap().is_err());
}
