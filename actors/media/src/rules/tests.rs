use super::*;

fn rules(rules: &[&str]) -> HostRules {
    HostRules::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
}

#[test]
fn exact_names_and_names_below_are_allowed_and_nothing_else() {
    let rules = rules(&["pics.example.com", "*.cdn.example.org", "files.example.net:8443"]);
    for allowed in [
        "http://pics.example.com/a.png",
        "https://PICS.example.com./a.png?x=1#y",
        "https://pics.example.com:443/",
        "https://a.b.cdn.example.org/",
        "https://files.example.net:8443/",
    ] {
        assert!(rules.check(allowed).is_ok(), "{allowed}");
    }
    for refused in [
        "http://example.com/",
        "http://a.pics.example.com/",
        "http://evilpics.example.com/",
        "http://cdn.example.org/",
        "http://evilcdn.example.org/",
        "http://pics.example.com.evil.test/",
        "http://pics.example.com:22/",
        "http://pics.example.com:443/",
        "https://files.example.net/",
    ] {
        assert!(matches!(rules.check(refused), Err(AddressError::Host(_))), "{refused}");
    }
}

#[test]
fn addresses_in_every_spelling_are_refused_even_when_allowed() {
    let rules = rules(&["127.0.0.1", "[::1]", "localhost", "169.254.169.254"]);
    for inside in [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://0.0.0.0/",
    ] {
        assert!(matches!(rules.check(inside), Err(AddressError::Inside(_))), "{inside}");
    }
}

#[test]
fn other_schemes_user_names_and_nonsense_are_refused() {
    let rules = rules(&["example.com"]);
    for scheme in [
        "file:///etc/hostname",
        "ftp://example.com/a",
        "gopher://example.com/",
        "javascript:1",
    ] {
        assert!(matches!(rules.check(scheme), Err(AddressError::Scheme(_))), "{scheme}");
    }
    for user in [
        "http://example.com@127.0.0.1/",
        "http://u:p@example.com/",
        "http://:p@example.com/",
    ] {
        let refused = rules.check(user);
        assert!(
            matches!(refused, Err(AddressError::UserInfo | AddressError::Inside(_))),
            "{user}"
        );
    }
    for nonsense in ["", "a.png", "//example.com/a", "http://", "http://exa mple.com/"] {
        assert_eq!(rules.check(nonsense), Err(AddressError::NotAUrl), "{nonsense}");
    }
    let long = format!("http://example.com/{}", "x".repeat(URL_BYTES_MAX));
    assert_eq!(rules.check(&long), Err(AddressError::NotAUrl));
}

#[test]
fn without_rules_nothing_is_fetched() {
    let refused = HostRules::default().check("https://example.com/a.png");
    assert_eq!(refused, Err(AddressError::FetchesNothing));
}

#[test]
fn a_redirect_is_checked_like_the_first_address() {
    let rules = rules(&["example.com"]);
    let from = rules.check("https://example.com/a/b.png?q").unwrap();
    assert_eq!(
        (from.path(), from.authority(), from.port),
        ("/a/b.png?q", "example.com", 443)
    );
    assert_eq!(rules.check_redirect(&from, "../c.png").unwrap().path(), "/c.png");
    for location in [
        "http://10.0.0.1/",
        "//localhost/",
        "file:///etc/passwd",
        "https://example.com:22/",
    ] {
        assert!(rules.check_redirect(&from, location).is_err(), "{location}");
    }
}

#[test]
fn rules_that_name_no_host_are_refused() {
    for rule in [
        "",
        "*",
        "*.",
        "a b",
        "*.10.0.0.1",
        "http://example.com",
        "example.com:x",
        "a.*.com",
        "example.com/path",
    ] {
        assert!(rule.parse::<HostRule>().is_err(), "{rule}");
    }
    for rule in [
        "example.com",
        "*.example.com",
        "example.com:8080",
        "*.example.com:8080",
        "1.2.3.4",
        "1.2.3.4:80",
    ] {
        assert_eq!(rule.parse::<HostRule>().unwrap().to_string(), rule);
    }
    let rules = rules(&["[2606:4700::1111]:8080"]);
    assert!(rules.check("http://[2606:4700::1111]:8080/").is_ok());
}
