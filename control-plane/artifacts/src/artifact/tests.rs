use super::*;

#[test]
fn a_digest_reads_what_it_prints() {
    let text = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
    let digest: Sha256Digest = text.parse().unwrap();
    assert_eq!(digest.0[0], 0xb1);
    assert_eq!(digest.to_string(), text);
}

#[test]
fn what_is_no_digest_is_refused() {
    for text in ["", "b179", &"g".repeat(64), &"+1".repeat(32), &"é".repeat(32)] {
        assert_eq!(text.parse::<Sha256Digest>(), Err(DigestError(text.into())));
    }
}
