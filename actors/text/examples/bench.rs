//! Measures the two hot paths: `cargo run --release -p cluster-text --example bench [TOKENIZER_JSON]`.
//!
//! Without an argument the small vocabulary of the tests is used. Prints the time for 2 KB of text to ids, cold (the first time
//! on this thread), warm, and of words that no cache has; and for one token back to text through a detokenizer and a matcher of four stop strings.
//!
//! On two shared cores of an AMD EPYC with the 49,152 tokens of SmolLM2: 63 µs warm, 0.3 ms of unseen words, 58 ns a token back;
//! the first text of a process takes 0.9 ms, because the expression for words compiles as it goes.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::{
    error::Error,
    hint::black_box,
    time::{Duration, Instant},
};

use cluster_text::{JsonFiles, Specials, StopMatcher, Tokenizer, TokenizerSource};

const SMALL: &[u8] = include_bytes!("../tests/fixtures/muse/tokenizer.json");
const SOURCE: &str = include_str!("../src/tokenizer.rs");
const PROMPT_LEN: usize = 2_048;
const ROUNDS: u32 = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let tokenizer = match std::env::args().nth(1) {
        Some(path) => std::fs::read(path)?,
        None => SMALL.to_vec(),
    };
    let started = Instant::now();
    let files = JsonFiles {
        tokenizer,
        ..JsonFiles::default()
    };
    let tokenizer = Tokenizer::new(TokenizerSource::Json(files))?;
    println!(
        "vocabulary of {} tokens, read in {:?}",
        tokenizer.vocabulary_len(),
        started.elapsed()
    );
    encode(&tokenizer);
    decode(&tokenizer);
    Ok(())
}

fn encode(tokenizer: &Tokenizer) {
    let text = &SOURCE[..PROMPT_LEN];
    let started = Instant::now();
    let ids = tokenizer.encode(text, Specials::Parse);
    println!(
        "encode {PROMPT_LEN} bytes to {} ids: {:?} cold",
        ids.len(),
        started.elapsed()
    );
    let warm = per_round(|| {
        black_box(tokenizer.encode(black_box(text), Specials::Parse));
    });
    println!("encode {PROMPT_LEN} bytes: {warm:?} warm");
    let mut texts = (0..ROUNDS).map(unseen_words).collect::<Vec<_>>().into_iter();
    let unseen = per_round(|| {
        black_box(texts.next().map(|text| tokenizer.encode(&text, Specials::Parse)));
    });
    println!("encode {PROMPT_LEN} bytes: {unseen:?} of words never seen before");
}

/// Invented words, other ones for every `round`: no cache helps.
fn unseen_words(round: u32) -> String {
    let mut state = u64::from(round) + 1;
    let mut text = String::with_capacity(PROMPT_LEN);
    while text.len() < PROMPT_LEN {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let letter = b"etaoin shrdlu cmfw ypvb etaoin e"[(state >> 59) as usize];
        text.push(char::from(letter));
    }
    text
}

fn decode(tokenizer: &Tokenizer) {
    let ids = tokenizer.encode(SOURCE, Specials::AsText);
    let round = per_round(|| {
        let mut detokenizer = tokenizer.detokenizer(true);
        let mut matcher = StopMatcher::new(&["\n\nUser:", "</answer>", "<|end|>", "\n    fn decode_what_is_not_there"]);
        for id in &ids {
            black_box(matcher.push(&detokenizer.push(&[*id])));
        }
    });
    println!(
        "detokenize and match stops: {:?} a token over {} tokens",
        round / ids.len() as u32,
        ids.len()
    );
}

fn per_round(mut work: impl FnMut()) -> Duration {
    let started = Instant::now();
    for _ in 0..ROUNDS {
        work();
    }
    started.elapsed() / ROUNDS
}
