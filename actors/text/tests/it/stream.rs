//! Tokens to text through detokenizer and stop matcher, however the stream is cut.

use std::sync::OnceLock;

use cluster_text::{Specials, StopMatcher, Tokenizer};
use proptest::prelude::*;

use crate::fixtures::{llama, muse};

proptest! {
    /// Whatever a model emits, the pieces joined are what decoding everything at once gives.
    #[test]
    fn pieces_joined_equal_the_whole(
        ids in prop::collection::vec(0u32..330, 0..60), step in 1usize..5, skip in any::<bool>(),
    ) {
        static LLAMA: OnceLock<Tokenizer> = OnceLock::new();
        let tokenizer = LLAMA.get_or_init(|| llama("smollm"));
        let shown = ids.iter().filter(|id| !(skip && tokenizer.is_special(**id)));
        let bytes: Vec<u8> = shown.flat_map(|id| tokenizer.token_bytes(*id)).copied().collect();
        let mut detokenizer = tokenizer.detokenizer(skip);
        let mut text = String::new();
        for chunk in ids.chunks(step) {
            // A clone goes on from the same place.
            detokenizer = detokenizer.clone();
            text += &detokenizer.push(chunk);
        }
        text += &detokenizer.finish();
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_stop_over_tokens_never_shows() {
    let tokenizer = muse();
    let ids = tokenizer.encode("The quick brown fox jumps", Specials::AsText);
    let (mut detokenizer, mut matcher) = (tokenizer.detokenizer(true), StopMatcher::new(&["own fox"]));
    let mut text = String::new();
    for (index, id) in ids.iter().enumerate() {
        let pushed = matcher.push(&detokenizer.push(&[*id]));
        text += &pushed.text;
        if pushed.stopped {
            assert!(index + 1 < ids.len(), "the stop is seen before the end");
            break;
        }
    }
    assert_eq!(text, "The quick br");
}
