use proptest::prelude::*;

use super::*;

#[test]
fn paths_and_ids_print_what_they_parse() {
    let path: ActorPath = "decode.3".parse().unwrap();
    assert_eq!(path, ActorPath::new(Role::Decode, 3));
    assert_eq!(path.to_string(), "decode.3");
    assert_eq!("decoder.3".parse::<ActorPath>(), Err(PathError("decoder".into())));
    assert_eq!("decode".parse::<ActorPath>(), Err(PathError("decode".into())));
    let id = RequestId(0xab);
    assert_eq!(format!("chatcmpl-{id}").parse::<RequestId>(), Ok(id));
}

#[test]
fn client_errors_are_not_instance_faults() {
    let faults = [ErrorKind::Lost, ErrorKind::Unavailable, ErrorKind::Internal];
    assert!(faults.iter().all(|kind| kind.is_instance_fault()));
    let others = [
        ErrorKind::Invalid,
        ErrorKind::ContextLength,
        ErrorKind::RateLimited,
        ErrorKind::Cancelled,
    ];
    assert!(!others.iter().any(|kind| kind.is_instance_fault()));
}

proptest! {
    /// Equal hashes exactly where model, salt and all tokens up to the block's end are equal.
    #[test]
    fn chains_share_exactly_the_common_prefix(
        a in prop::collection::vec(0u32..4, 0..40), b in prop::collection::vec(0u32..4, 0..40), size in 1usize..5,
    ) {
        let root = blocks::root(Fingerprint(1), "");
        let (x, y) = (blocks::chain(root, &a, &[], size), blocks::chain(root, &b, &[], size));
        for i in 0..x.len().min(y.len()) {
            let end = (i + 1) * size;
            prop_assert_eq!(x[i] == y[i], a[..end] == b[..end]);
        }
    }
}

#[test]
fn salt_and_model_separate_chains() {
    let chain = |model, salt| blocks::chain(blocks::root(Fingerprint(model), salt), &[1, 2], &[], 2);
    assert_ne!(chain(1, ""), chain(2, ""));
    assert_ne!(chain(1, ""), chain(1, "tenant"));
}

#[test]
fn messages_survive_a_binary_round_trip() {
    let frame = GenerateFrame::Tokens(vec![TokenOut {
        id: 7,
        logprobs: Some(Box::new(TokenLogprobs {
            chosen: -0.5,
            top: vec![(7, -0.5), (1, -2.0)],
        })),
    }]);
    let bytes = postcard::to_allocvec(&frame).unwrap();
    assert_eq!(postcard::from_bytes::<GenerateFrame>(&bytes), Ok(frame));
}
