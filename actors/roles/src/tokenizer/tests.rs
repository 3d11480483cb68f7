use cluster_messages::{
    ChatMessage, ChatPrompt, Content, Deadline, Fingerprint, FinishReason, JsonText, RequestId, Sampling, TextInput,
    TokenLogprobs, TokenOut, ToolCall, ToolChoice,
};
use cluster_text::{GgufVocabulary, Tokenizer, TokenizerSource};

use super::{choice::Choice, *};

const EOS: u32 = 256;
const TEMPLATE: &str = "{% for message in messages %}<|user|>{{ message.content }}<|end|>{% endfor %}";

/// A byte is a token; the context holds 16.
pub(super) fn model() -> TextModel {
    let source = TokenizerSource::Vocabulary(GgufVocabulary::of_bytes(&["<|end|>", "<|user|>"], TEMPLATE));
    let tokenizer = Tokenizer::new(source).unwrap();
    TextModel {
        tokenizer,
        context: 16,
        fingerprint: Fingerprint(1),
        block_tokens: 4,
        media: None,
    }
}

pub(super) fn request(input: TextInput) -> TextRequest {
    TextRequest {
        tool_choice: ToolChoice::default(),
        parallel_tool_calls: true,
        header: Header {
            request: RequestId(1),
            deadline: Deadline(u64::MAX),
            trace: TraceContext::default(),
        },
        model: "m".into(),
        input,
        sampling: Sampling::default(),
        max_tokens: None,
        min_tokens: 0,
        stop: Vec::new(),
        stop_token_ids: Vec::new(),
        ignore_eos: false,
        choices: 1,
        logprobs: None,
        echo: false,
        cache_salt: String::new(),
        priority: 0,
    }
}

pub(super) fn text(len: usize) -> TextRequest {
    request(TextInput::Text("x".repeat(len)))
}

fn token(id: u8) -> TokenOut {
    TokenOut {
        id: id.into(),
        logprobs: None,
    }
}

#[test]
fn the_edge_of_the_context_is_exact() {
    let room = |len, max_tokens| {
        model()
            .prepare(
                TextRequest {
                    max_tokens,
                    ..text(len)
                },
                0,
            )
            .map(|prepared| prepared.max_tokens)
    };
    assert_eq!(room(15, Some(1)).unwrap(), 1);
    assert_eq!(room(10, Some(100)).unwrap(), 6, "the limit is an upper bound");
    assert_eq!(room(10, None).unwrap(), 6);
    let error = room(16, Some(1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ContextLength);
    assert_eq!(error.param.as_deref(), Some("prompt"));
    assert!(
        error.message.contains("16 tokens") && error.message.contains("holds 16"),
        "{}",
        error.message
    );
}

#[test]
fn ids_outside_the_vocabulary_are_refused_by_field() {
    let param = |request| model().prepare(request, 0).unwrap_err().param.unwrap();
    assert_eq!(
        param(TextRequest {
            stop_token_ids: vec![258],
            ..text(1)
        }),
        "stop_token_ids"
    );
    let sampling = Sampling {
        logit_bias: vec![(99_999_999, 1.0)],
        ..Sampling::default()
    };
    assert_eq!(param(TextRequest { sampling, ..text(1) }), "logit_bias");
    assert_eq!(param(request(TextInput::Tokens(vec![0, 258]))), "prompt");
    assert_eq!(param(request(TextInput::Tokens(Vec::new()))), "prompt");
}

#[test]
fn blocks_are_those_of_the_engine_and_control_tokens_stay_structure() {
    let content = Some(Content::Text("a<|end|>".into()));
    let message = ChatMessage {
        role: "user".into(),
        content,
        ..ChatMessage::default()
    };
    let chat = TextInput::Chat(ChatPrompt {
        messages: vec![message],
        ..ChatPrompt::default()
    });
    let prepared = model().prepare(request(chat), 0).unwrap();
    assert_eq!(
        prepared.prompt.iter().filter(|id| **id >= EOS).count(),
        2,
        "{:?}",
        prepared.prompt
    );
    assert_eq!(prepared.stop_tokens, [EOS]);
    let root = cluster_messages::blocks::root(Fingerprint(1), "");
    assert_eq!(
        prepared.blocks,
        cluster_messages::blocks::chain(root, &prepared.prompt, &[], 4)
    );
}

#[test]
fn a_moved_generation_carries_what_was_sent_and_scores_the_prompt_once() {
    let request = TextRequest {
        echo: true,
        logprobs: Some(1),
        choices: 2,
        ..text(3)
    };
    let prepared = model().prepare(request, 0).unwrap();
    let reached = |tokens, has_echo| Reached { tokens, has_echo };
    let first = prepared.generation(0, Reached::default());
    assert_eq!(
        (first.tokens.len(), first.prompt_len, first.prompt_logprobs),
        (3, 3, Some(1))
    );
    let moved = prepared.generation(0, reached(&[7, 8], true));
    assert_eq!(
        (moved.tokens.len(), moved.prompt_len, moved.prompt_logprobs),
        (5, 3, None)
    );
    assert_eq!(moved.sampling.seed, first.sampling.seed);
    let moved_before_its_first_token = prepared.generation(0, reached(&[], true));
    assert_eq!(moved_before_its_first_token.prompt_logprobs, None);
    let second = prepared.generation(1, Reached::default());
    assert_ne!(second.sampling.seed, first.sampling.seed);
    assert_eq!(second.prompt_logprobs, Some(1), "every choice is asked for its scores");
}

#[test]
fn an_answer_that_is_complete_is_not_moved() {
    let limited = TextRequest {
        max_tokens: Some(3),
        ..text(3)
    };
    let prepared = model().prepare(limited, 0).unwrap();
    let ends: Vec<_> = [&[][..], &[7], &[7, EOS], &[EOS, 7], &[7, 8, 9]]
        .iter()
        .map(|tokens| prepared.end_of(tokens))
        .collect();
    let expected = [None, None, Some(FinishReason::Stop), None, Some(FinishReason::Length)];
    assert_eq!(ends, expected);
    let nothing = TextRequest {
        max_tokens: Some(0),
        ..text(3)
    };
    assert_eq!(model().prepare(nothing, 0).unwrap().end_of(&[]), None);
}

#[test]
fn everything_that_is_rendered_or_encoded_counts_as_input() {
    let message = ChatMessage {
        content: Some(Content::Text("x".repeat(10))),
        reasoning: Some("x".repeat(100)),
        tool_calls: vec![ToolCall {
            id: "1".into(),
            name: "x".into(),
            arguments: JsonText("x".repeat(999)),
        }],
        ..ChatMessage::default()
    };
    let chat = ChatPrompt {
        messages: vec![message],
        tools: Some(JsonText("x".repeat(10_000))),
        template_args: Some(JsonText("x".repeat(100_000))),
        ..ChatPrompt::default()
    };
    assert_eq!(prepare::size_of(&TextInput::Chat(chat)), 111_110);
    assert_eq!(prepare::size_of(&TextInput::Tokens(vec![0; 10])), 40);
    assert_eq!(prepare::size_of(&TextInput::Text("x".into())), 1);
}

/// Everything a choice says about `tokens`, arriving `step` at a time, with the end that the model gives it.
fn said(tokens: &[TokenOut], step: usize, stops: &[&str]) -> (String, bool, usize) {
    let model = model();
    let asked = TextRequest {
        stop: stops.iter().map(ToString::to_string).collect(),
        ..text(1)
    };
    let prepared = model.prepare(asked, 0).unwrap();
    let mut choice = Choice::new(0, &model.tokenizer, &prepared);
    let (mut text, mut stopped, mut entries) = (String::new(), false, 0);
    let mut take = |frame: TextFrame| {
        if let TextFrame::Delta {
            text: more, logprobs, ..
        } = frame
        {
            text.push_str(&more);
            entries += logprobs.len();
        }
    };
    for part in tokens.chunks(step) {
        let progress = choice.push(part.to_vec());
        progress.frames.into_iter().for_each(&mut take);
        if progress.stopped {
            stopped = true;
            break;
        }
    }
    choice
        .finish(FinishReason::Stop, stopped)
        .into_iter()
        .for_each(&mut take);
    (text, stopped, entries)
}

#[test]
fn stop_strings_are_found_and_held_text_is_released_however_tokens_arrive() {
    let tokens: Vec<_> = "The quick brown fo".bytes().map(token).collect();
    for step in 1..tokens.len() {
        assert_eq!(
            said(&tokens, step, &["own fox"]),
            ("The quick brown fo".into(), false, 0)
        );
        assert_eq!(said(&tokens, step, &["ick b", "zzz"]), ("The qu".into(), true, 0));
    }
}

#[test]
fn the_end_token_is_no_text_and_every_other_token_has_its_entry() {
    let logprobs = Some(Box::new(TokenLogprobs {
        chosen: -0.5,
        top: vec![(65, -0.5)],
    }));
    let mut tokens: Vec<_> = "né"
        .bytes()
        .map(|byte| TokenOut {
            id: byte.into(),
            logprobs: logprobs.clone(),
        })
        .collect();
    tokens.push(TokenOut { id: EOS, logprobs });
    for step in 1..=tokens.len() {
        assert_eq!(said(&tokens, step, &[]), ("né".into(), false, 3));
    }
}
