//! `tests/bad/NAME.yaml` and, beside it, `NAME.expected`: the whole report, readable as a diff.

use std::{fs, path::PathBuf};

use cluster_topologies::{Catalogue, load};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/bad")
}

fn names() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder())
        .expect("the folder of bad files is part of the sources")
        .map(|entry| entry.expect("a file that was just listed").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .filter_map(|path| path.with_extension("").file_name()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn report(name: &str) -> String {
    let text = fs::read_to_string(folder().join(format!("{name}.yaml"))).expect("a file that was just listed");
    match load(&text, &format!("{name}.yaml"), &Catalogue::shipped()) {
        Ok(_) => "nothing is wrong\n".into(),
        Err(problems) => format!("{problems}\n"),
    }
}

#[test]
fn every_bad_file_is_reported_as_expected() {
    let names = names();
    assert!(names.len() >= 20, "only {} bad files were found", names.len());
    let mut wrong = Vec::new();
    for name in names {
        let expected = fs::read_to_string(folder().join(format!("{name}.expected"))).unwrap_or_default();
        let report = report(&name);
        if report != expected {
            wrong.push(format!(
                "=== {name}.expected\n{expected}=== but the report is\n{report}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
