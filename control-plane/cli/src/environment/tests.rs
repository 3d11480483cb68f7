use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Environment, Failure> {
    Environment::from_lookup(|name| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| value.into())
    })
}

#[test]
fn folders_follow_the_variables_in_order() {
    let home = read(&[("HOME", "/h"), ("CLUSTER_CACHE", "")]).unwrap();
    assert_eq!(home.cache, PathBuf::from("/h/.cache/cluster"));
    assert_eq!(home.state, PathBuf::from("/h/.local/state/cluster"));

    let shared = read(&[("XDG_CACHE_HOME", "/c"), ("XDG_STATE_HOME", "/s")]).unwrap();
    assert_eq!(shared.cache, PathBuf::from("/c/cluster"));
    assert_eq!(shared.state, PathBuf::from("/s/cluster"));

    let own = read(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c"), ("CLUSTER_CACHE", "/own")]).unwrap();
    assert_eq!(own.cache, PathBuf::from("/own"));
}

#[test]
fn without_any_folder_it_says_which_variable_is_missing() {
    let failure = read(&[]).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "error: HOME is not set, so there is no place for files"
    );
}

#[test]
fn the_hub_can_be_another_one() {
    let plain = read(&[("HOME", "/h")]).unwrap();
    assert_eq!(
        (plain.hf.endpoint.as_str(), plain.hf.token),
        ("https://huggingface.co", None)
    );
    let other = read(&[("HOME", "/h"), ("HF_ENDPOINT", "http://mirror"), ("HF_TOKEN", "t")]).unwrap();
    assert_eq!(
        (other.hf.endpoint.as_str(), other.hf.token.as_deref()),
        ("http://mirror", Some("t"))
    );
}
