use super::*;

#[test]
fn pauses_grow_to_a_limit() {
    let pauses = [1, 2, 3, 7, 64, usize::MAX].map(|attempt| pause(attempt).as_millis());
    assert_eq!(pauses, [20, 40, 80, 1000, 1000, 1000]);
}

#[test]
fn secrets_are_not_printed() {
    let password = NatsCredentials::Password {
        name: "node".into(),
        password: "secret".into(),
    };
    for credentials in [password, NatsCredentials::Token("secret".into())] {
        let options = NatsOptions {
            credentials,
            ..NatsOptions::new("127.0.0.1:4222", "n1")
        };
        let printed = format!("{options:?}");
        assert!(!printed.contains("secret"), "{printed}");
    }
}
