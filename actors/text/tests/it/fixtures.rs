//! Tokenizers of the fixtures, and the reference implementation on the same vocabularies.

use std::{fs, path::PathBuf, sync::OnceLock};

use cluster_messages::{ChatMessage, ChatPrompt, Content, JsonText, MediaFile, MediumKind, Part, ToolCall};
use cluster_text::{GgufVocabulary, JsonFiles, Tokenizer, TokenizerSource};
use serde_json::{Value, json};

pub(crate) const CHATML: &str = "{% for message in messages %}{{ '<s>' + message.role + '\\n' + message.content + '</s>\\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<s>assistant\\n' }}{% endif %}";

const MUSE_TOKENIZER: &[u8] = include_bytes!("../fixtures/muse/tokenizer.json");

pub(crate) fn muse_files() -> JsonFiles {
    JsonFiles {
        tokenizer: MUSE_TOKENIZER.to_vec(),
        tokenizer_config: Some(include_bytes!("../fixtures/muse/tokenizer_config.json").to_vec()),
        chat_template: Some(include_str!("../fixtures/muse/chat_template.jinja").to_owned()),
        generation_config: Some(include_bytes!("../fixtures/muse/generation_config.json").to_vec()),
    }
}

pub(crate) fn muse() -> &'static Tokenizer {
    static MUSE: OnceLock<Tokenizer> = OnceLock::new();
    MUSE.get_or_init(|| Tokenizer::new(TokenizerSource::Json(muse_files())).unwrap())
}

/// A file of the demonstration model that the repository ships.
fn nano_file(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../topologies/models/muse-nano");
    fs::read(folder.join(name)).unwrap()
}

pub(crate) fn nano() -> &'static Tokenizer {
    static NANO: OnceLock<Tokenizer> = OnceLock::new();
    let files = || JsonFiles {
        tokenizer: nano_file("tokenizer.json"),
        tokenizer_config: Some(nano_file("tokenizer_config.json")),
        chat_template: Some(String::from_utf8(nano_file("chat_template.jinja")).unwrap()),
        generation_config: Some(nano_file("generation_config.json")),
    };
    NANO.get_or_init(|| Tokenizer::new(TokenizerSource::Json(files())).unwrap())
}

/// Requests to the demonstration model and its recorded answers.
pub(crate) fn nano_cases() -> Value {
    serde_json::from_slice(&nano_file("expected.json")).unwrap()
}

/// The request of such a case as a client would send it.
pub(crate) fn nano_prompt(case: &Value) -> ChatPrompt {
    let messages = case["messages"].as_array().unwrap().iter();
    let mut messages: Vec<ChatMessage> = messages.map(|message| chat_message(message).unwrap()).collect();
    for call in messages.iter_mut().flat_map(|message| &mut message.tool_calls) {
        // Here they are written as in a request: JSON in a string.
        call.arguments.0 = serde_json::from_str(&call.arguments.0).unwrap();
    }
    ChatPrompt {
        messages,
        tools: case["tools"].is_array().then(|| JsonText(case["tools"].to_string())),
        reasoning_effort: case["reasoning_effort"].as_str().map(str::to_owned),
        ..ChatPrompt::default()
    }
}

pub(crate) fn muse_reference() -> tokenizers::Tokenizer {
    tokenizers::Tokenizer::from_bytes(MUSE_TOKENIZER).unwrap()
}

pub(crate) fn cases() -> Value {
    serde_json::from_str(include_str!("../fixtures/muse/chat-cases.json")).unwrap()
}

fn llama_lists() -> Value {
    serde_json::from_str(include_str!("../fixtures/llama-tiny-vocabulary.json")).unwrap()
}

/// A byte-level vocabulary of 320 tokens as a GGUF file has it: `<unk>`, `<s>`, `</s>`, the bytes and 59 merges.
pub(crate) fn llama_vocabulary(pre: &str) -> GgufVocabulary {
    let lists = llama_lists();
    GgufVocabulary {
        model: "gpt2".to_owned(),
        pre: Some(pre.to_owned()),
        tokens: serde_json::from_value(lists["tokens"].clone()).unwrap(),
        token_types: serde_json::from_value(lists["token_type"].clone()).unwrap(),
        merges: serde_json::from_value(lists["merges"].clone()).unwrap(),
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        chat_template: Some(CHATML.to_owned()),
        ..GgufVocabulary::default()
    }
}

pub(crate) fn llama(pre: &str) -> Tokenizer {
    Tokenizer::new(TokenizerSource::Vocabulary(llama_vocabulary(pre))).unwrap()
}

/// The same vocabulary as a tokenizer.json with the given rules, read by the reference implementation.
pub(crate) fn llama_reference(normalizer: Value, pre_tokenizer: Value) -> tokenizers::Tokenizer {
    let lists = llama_lists();
    let tokens: Vec<String> = serde_json::from_value(lists["tokens"].clone()).unwrap();
    let vocabulary: serde_json::Map<String, Value> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), json!(id)))
        .collect();
    let added: Vec<Value> = (0..3)
        .map(|id| {
            json!({
                "id": id, "content": tokens[id], "special": true,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
        .collect();
    let file = json!({
        "version": "1.0", "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": lists["merges"]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    });
    tokenizers::Tokenizer::from_bytes(serde_json::to_vec(&file).unwrap()).unwrap()
}

pub(crate) fn user(text: &str) -> ChatMessage {
    message("user", text)
}

pub(crate) fn message(role: &str, text: &str) -> ChatMessage {
    ChatMessage {
        role: role.to_owned(),
        content: Some(Content::Text(text.to_owned())),
        ..ChatMessage::default()
    }
}

pub(crate) fn prompt(messages: Vec<ChatMessage>) -> ChatPrompt {
    ChatPrompt {
        messages,
        ..ChatPrompt::default()
    }
}

/// A case of the fixtures as a client would send it; none if it has videos.
pub(crate) fn chat_prompt(case: &Value) -> Option<ChatPrompt> {
    let messages = case["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(chat_message)
        .collect::<Option<_>>()?;
    let mut args = case["kwargs"].as_object().unwrap().clone();
    let tools = args.remove("tools").map(|tools| JsonText(tools.to_string()));
    Some(ChatPrompt {
        reasoning_effort: None,
        messages,
        tools,
        template_args: Some(JsonText(Value::Object(args).to_string())),
        continue_final: false,
    })
}

fn chat_message(message: &Value) -> Option<ChatMessage> {
    let text = |field: &str| message[field].as_str().map(str::to_owned);
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    Some(ChatMessage {
        role: text("role")?,
        content: content(&message["content"])?,
        name: text("name"),
        reasoning: text("reasoning_content"),
        tool_calls: calls.map(tool_call).collect(),
        tool_call_id: text("tool_call_id"),
    })
}

fn content(content: &Value) -> Option<Option<Content>> {
    match content {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(Content::Text(text.clone()))),
        Value::Array(parts) => parts
            .iter()
            .map(content_part)
            .collect::<Option<_>>()
            .map(|parts| Some(Content::Parts(parts))),
        _ => None,
    }
}

fn content_part(part: &Value) -> Option<Part> {
    let kind = match part["type"].as_str()? {
        "text" => return Some(Part::Text(part["text"].as_str()?.to_owned())),
        "image" | "image_url" => MediumKind::Image,
        "audio" => MediumKind::Audio,
        _ => return None,
    };
    let bytes = Default::default();
    Some(Part::Media(MediaFile { kind, bytes }))
}

fn tool_call(call: &Value) -> ToolCall {
    ToolCall {
        id: call["id"].as_str().unwrap().to_owned(),
        name: call["function"]["name"].as_str().unwrap().to_owned(),
        arguments: JsonText(call["function"]["arguments"].to_string()),
    }
}
