use crate::program::Home;

const GOOD: &str = "name: mine\nmodel: { source: simulated }
roles: { tokenizer: , router: , decode: { folds: [prefill] } }\n";

#[test]
fn every_command_explains_itself_with_an_example() {
    let home = Home::new();
    let help = home.cluster(&["--help"]).ok();
    assert!(help.contains("Exit codes: 0 done, 1 failed, 2 wrong input"), "{help}");
    let commands = help
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("Options:")
        .next()
        .unwrap();
    let names: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty())
        .collect();
    for expected in [
        "up",
        "down",
        "status",
        "chat",
        "trace",
        "events",
        "check",
        "plan",
        "pull",
        "bench",
        "schema",
        "topologies",
    ] {
        assert!(names.contains(&expected), "{names:?}");
    }
    for name in names.into_iter().filter(|name| *name != "help") {
        let help = home.cluster(&[name, "--help"]).ok();
        assert!(help.contains(&format!("\n  cluster {name}")), "no example in {help}");
    }
}

#[test]
fn a_wrong_command_line_is_wrong_input() {
    let home = Home::new();
    assert!(home.cluster(&["chekc"]).failed(2).contains("'check'"));
    assert!(home.cluster(&["check"]).failed(2).contains("<FILE>"));
}

#[test]
fn good_files_are_named() {
    let home = Home::new();
    home.write("mine.yaml", GOOD);
    assert_eq!(
        home.cluster(&["check", "mine.yaml", "local", "local-pd.yaml"]).ok(),
        "mine.yaml: ok\nlocal: ok\nlocal-pd.yaml: ok\n"
    );
}

#[test]
fn all_problems_of_all_files_are_reported_and_good_files_too() {
    let home = Home::new();
    home.write("good.yaml", GOOD);
    home.write(
        "a.yaml",
        GOOD.replace("simulated", "absent").replace("router:", "ruoter:"),
    );
    home.write("b.yaml", "");
    let done = home.cluster(&["check", "a.yaml", "good.yaml", "b.yaml"]);
    assert_eq!((done.code, done.out.as_str()), (2, "good.yaml: ok\n"));
    assert!(done.err.contains("a.yaml:2:"), "{}", done.err);
    assert!(done.err.contains("a.yaml:3:"), "{}", done.err);
    assert!(done.err.contains("b.yaml:1:1: empty-file"), "{}", done.err);

    let done = home.cluster(&["check", "--json", "a.yaml", "good.yaml"]);
    assert_eq!(done.code, 2);
    let list: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(list[0]["file"], "a.yaml");
    assert_eq!(list[0]["ok"], false);
    let rules: Vec<&str> = list[0]["problems"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|problem| problem["rule"].as_str())
        .collect();
    assert!(
        rules.contains(&"unknown-model") && rules.contains(&"unknown-field"),
        "{rules:?}"
    );
    assert_eq!(
        list[1],
        serde_json::json!({ "file": "good.yaml", "ok": true, "problems": [] })
    );
}

#[test]
fn a_file_that_is_not_there_brings_near_matches() {
    let home = Home::new();
    for command in ["check", "plan", "up"] {
        let err = home.cluster(&[command, "gb300-small-batch.yaml"]).failed(2);
        let expected = "error: there is no file gb300-small-batch.yaml\n  help: did you mean \
                        'muse-spark-gb300-small-batch'? 'cluster topologies' lists what is shipped\n";
        assert_eq!(err, expected);
    }
}

#[test]
fn every_shipped_topology_is_listed_and_checked() {
    let home = Home::new();
    let list: serde_json::Value = serde_json::from_str(&home.cluster(&["topologies", "--json"]).ok()).unwrap();
    let list = list.as_array().unwrap();
    let of = |name: &str| list.iter().find(|listed| listed["name"] == name).unwrap();
    let headline = of("epd-b300");
    assert_eq!(headline["model"], "muse-spark-open-816b-a42b nvfp4");
    assert_eq!(headline["hardware"], "8 b300");
    assert_eq!(headline["emulated_with"], "muse-nano");
    assert_eq!(headline["starts"], true);
    assert_eq!(of("muse-spark-gb300-tp8")["hardware"], "2 x 4 gb300");
    assert_eq!(of("local")["hardware"], "processor");
    let speculating = of("muse-spark-b300-latency");
    assert_eq!(speculating["starts"], false);
    assert_eq!(speculating["missing"], serde_json::json!(["speculation"]));

    let table = home.cluster(&["topologies"]).ok();
    assert_eq!(table.lines().count(), list.len() + 1, "{table}");
    let all = home.cluster(&["check", "--all"]).ok();
    assert_eq!(
        all.lines().filter(|line| line.ends_with(": ok")).count(),
        list.len(),
        "{all}"
    );
}

#[test]
fn the_schema_describes_topologies() {
    let schema: serde_json::Value = serde_json::from_str(&Home::new().cluster(&["schema"]).ok()).unwrap();
    assert!(schema["properties"]["roles"].is_object());
}
