//! Conversations with pictures and sounds: where they lie among the tokens.

use cluster_messages::{ChatMessage, ChatPrompt, Content, ErrorKind, JsonText, MediaFile, MediumKind, Part};
use cluster_text::{JsonFiles, MediaSupport, MediumPlace, Tokenizer, TokenizerSource};

use crate::fixtures::{llama, muse, muse_files, nano, nano_cases, nano_prompt, prompt, user};

fn medium(kind: MediumKind) -> Part {
    Part::Media(MediaFile {
        kind,
        bytes: Default::default(),
    })
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

fn parts(parts: Vec<Part>) -> ChatPrompt {
    let content = Some(Content::Parts(parts));
    prompt(vec![ChatMessage { content, ..user("") }])
}

#[test]
fn the_recorded_prompts_of_a_trained_model_are_reproduced() {
    let tokenizer = nano();
    let mut pictures = 0;
    for case in nano_cases()["cases"].as_array().unwrap() {
        let chat = nano_prompt(case);
        let rendered = tokenizer.template().unwrap().render(&chat, 0).unwrap();
        assert_eq!(
            rendered.text(),
            case["prompt_text"].as_str().unwrap(),
            "{}",
            case["name"]
        );
        let grids: Vec<[u32; 3]> = serde_json::from_value(case["image_grids"].clone()).unwrap_or_default();
        let counts: Vec<u32> = grids.iter().map(|grid| grid.iter().product()).collect();
        let ids: Vec<u32> = serde_json::from_value(case["prompt_ids"].clone()).unwrap();
        let (found, places) = tokenizer.encode_chat_media(&chat, &counts, 0).unwrap();
        assert_eq!(found, ids, "{}", case["name"]);
        let patch = tokenizer.special_id("<|patch|>").unwrap();
        let counted = ids.iter().filter(|id| **id == patch).count() as u32;
        assert_eq!(places.iter().map(|place| place.tokens).sum::<u32>(), counted);
        for place in &places {
            let span = &ids[place.first as usize..][..place.tokens as usize];
            assert!(span.iter().all(|id| *id == patch));
        }
        pictures += places.len();
    }
    assert!(pictures >= 10, "{pictures}");
}

#[test]
fn every_medium_is_opened_widened_and_closed() {
    let tokenizer = muse();
    let chat = parts(vec![
        text("Compare "),
        medium(MediumKind::Image),
        text("<|patch|> with "),
        medium(MediumKind::Audio),
        medium(MediumKind::Image),
    ]);
    let (ids, places) = tokenizer.encode_chat_media(&chat, &[2, 3, 1], 0).unwrap();
    let spelled: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).copied().collect();
    let spelled = String::from_utf8(spelled).unwrap();
    let expected = "Compare <|image_start|><|patch|><|patch|><|image_end|><|patch|> with <|soft_audio_start|><|audio|><|audio|>\
                    <|audio|><|soft_audio_end|><|image_start|><|patch|><|image_end|><|eot|>";
    assert!(spelled.contains(expected), "{spelled}");
    let patch = tokenizer.special_id("<|patch|>").unwrap();
    assert_eq!(
        ids.iter().filter(|id| **id == patch).count(),
        3,
        "a typed placeholder is text"
    );
    let kinds: Vec<_> = places.iter().map(|place| (place.kind, place.tokens)).collect();
    assert_eq!(
        kinds,
        [(MediumKind::Image, 2), (MediumKind::Audio, 3), (MediumKind::Image, 1)]
    );
    let first = ids.iter().position(|id| *id == patch).unwrap() as u32;
    assert_eq!(
        places[0],
        MediumPlace {
            kind: MediumKind::Image,
            first,
            tokens: 2
        }
    );
}

#[test]
fn counts_have_to_fit() {
    let chat = parts(vec![medium(MediumKind::Image)]);
    for counts in [&[][..], &[1, 1], &[0]] {
        let error = muse().encode_chat_media(&chat, counts, 0).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal);
    }
    let chat = parts(vec![text("a"), medium(MediumKind::Image)]);
    let silent = ChatPrompt {
        template_args: Some(JsonText(r#"{"add_generation_prompt": false}"#.into())),
        messages: vec![ChatMessage {
            role: "function".into(),
            ..chat.messages[0].clone()
        }],
        ..ChatPrompt::default()
    };
    let error = muse().encode_chat_media(&silent, &[4], 0).unwrap_err();
    assert_eq!(
        (error.kind, error.param.as_deref()),
        (ErrorKind::Invalid, Some("messages"))
    );
}

#[test]
fn a_model_without_places_refuses_the_part_by_name() {
    let chat = parts(vec![text("a"), medium(MediumKind::Image)]);
    let refusal = |tokenizer: &Tokenizer, chat: &ChatPrompt| tokenizer.encode_chat_media(chat, &[1], 0).unwrap_err();
    let error = refusal(&llama("smollm"), &chat);
    assert_eq!(error.param.as_deref(), Some("messages[0].content[1]"));
    assert!(
        error.message.starts_with("this model does not take pictures"),
        "{error}"
    );
    assert_eq!(llama("smollm").media_support(), MediaSupport::default());

    // As in the published tokenizer, which calls the delimiters of sounds reserved.
    let mut files = muse_files();
    let json = String::from_utf8(files.tokenizer).unwrap();
    files.tokenizer = json.replace("<|soft_audio_end|>", "<|reserved_7|>").into_bytes();
    let deaf = Tokenizer::new(TokenizerSource::Json(JsonFiles { ..files })).unwrap();
    assert_eq!(
        deaf.media_support(),
        MediaSupport {
            image: true,
            audio: false
        }
    );
    let error = refusal(&deaf, &parts(vec![medium(MediumKind::Audio)]));
    assert_eq!(error.param.as_deref(), Some("messages[0].content[0]"));
    assert!(error.message.starts_with("this model does not take sounds"), "{error}");
}
