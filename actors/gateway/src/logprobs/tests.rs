use super::*;

fn token(bytes: &[u8], logprob: Option<f32>, top: &[(&[u8], f32)]) -> TextLogprob {
    TextLogprob {
        id: 0,
        bytes: bytes.to_vec(),
        logprob,
        top: top
            .iter()
            .map(|(bytes, logprob)| (0, bytes.to_vec(), *logprob))
            .collect(),
    }
}

fn shaped(api: Api, tokens: &[TextLogprob], offset: &mut usize) -> String {
    serde_json::to_string(&shape(api, tokens, offset)).unwrap()
}

#[test]
fn chat_tells_the_bytes_of_each_token() {
    let tokens = [token(
        b"\xe2\x82",
        Some(-0.5),
        &[(b"\xe2\x82", -0.5), (b"a", f32::NEG_INFINITY)],
    )];
    assert_eq!(
        shaped(Api::Chat, &tokens, &mut 0),
        concat!(
            r#"{"content":[{"token":"�","logprob":-0.5,"bytes":[226,130],"top_logprobs":["#,
            r#"{"token":"�","logprob":-0.5,"bytes":[226,130]},{"token":"a","logprob":-9999.0,"bytes":[97]}]}],"refusal":null}"#
        )
    );
}

#[test]
fn completions_count_characters_over_calls_and_list_the_chosen_token() {
    let mut offset = 0;
    let prompt = [token("é".as_bytes(), None, &[])];
    assert_eq!(
        shaped(Api::Completions, &prompt, &mut offset),
        r#"{"tokens":["é"],"token_logprobs":[null],"top_logprobs":[null],"text_offset":[0]}"#
    );
    // One character cut over two tokens: both begin where it begins, and it counts once.
    let cut = [
        token(b"\xe2\x82", Some(-1.0), &[(b"b", -0.25)]),
        token(b"\xac", Some(-2.0), &[(b"\xac", -2.0)]),
        token(b"!", Some(-3.0), &[]),
    ];
    assert_eq!(
        shaped(Api::Completions, &cut, &mut offset),
        concat!(
            r#"{"tokens":["bytes:\\xe2\\x82","bytes:\\xac","!"],"token_logprobs":[-1.0,-2.0,-3.0],"#,
            r#""top_logprobs":[{"b":-0.25,"bytes:\\xe2\\x82":-1.0},{"bytes:\\xac":-2.0},{"!":-3.0}],"text_offset":[1,2,2]}"#
        )
    );
    assert_eq!(offset, 3);
}
