//! A validated text request → token ids and limits, or the reason why not. Pure; nothing is reserved before it agrees.

use std::sync::Arc;

use cluster_messages::{
    BlockHash, ChatMessage, ChatPrompt, Content, ErrorKind, Fingerprint, FinishReason, Generation, JsonText, MediaFile,
    Medium, MediumDigest, MediumSource, Part, RequestError, Sampling, TextInput, TextRequest, blocks,
};
use cluster_text::{AnswerFormat, MediumPlace, Tokenizer};

use super::attempt::Reached;
use crate::media::{Measured, MediaMeasure, field_of};

/// A model as the tokenizer sees it.
pub struct TextModel {
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// The longest sequence in tokens.
    pub context: u32,
    /// The model's fingerprint: the start of block hashes.
    pub fingerprint: Fingerprint,
    /// Tokens of a KV block.
    pub block_tokens: u32,
    /// Looks at pictures and sounds; none where they are not taken.
    pub media: Option<Arc<dyn MediaMeasure>>,
}

/// A request that fits the model.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) request: TextRequest,
    pub(crate) prompt: Vec<u32>,
    /// The media of the prompt, as files.
    pub(crate) media: Vec<Medium>,
    pub(crate) stop_tokens: Vec<u32>,
    pub(crate) max_tokens: u32,
    pub(crate) blocks: Vec<BlockHash>,
    /// How the answers are read.
    pub(crate) format: AnswerFormat,
}

impl TextModel {
    /// Turns a request into tokens and checks everything that depends on the model. `now_s` is the time for templates that
    /// print a date, in seconds since 1970.
    pub(crate) fn prepare(&self, request: TextRequest, now_s: u64) -> Result<Prepared, RequestError> {
        self.check_ids("stop_token_ids", request.stop_token_ids.iter().copied())?;
        self.check_ids("logit_bias", request.sampling.logit_bias.iter().map(|(id, _)| *id))?;
        let format = match &request.input {
            TextInput::Chat(chat) => self.tokenizer.answer_format(chat, &request.tool_choice)?,
            TextInput::Text(_) | TextInput::Tokens(_) => AnswerFormat::plain(),
        };
        let (mut prompt, media) = self.encode(&request.input, &request.cache_salt, now_s)?;
        prompt.extend_from_slice(format.opening());
        let field = match &request.input {
            TextInput::Chat(_) => "messages",
            TextInput::Text(_) | TextInput::Tokens(_) => "prompt",
        };
        let max_tokens = self.fit(field, prompt.len(), request.max_tokens)?;
        let mut stop_tokens = request.stop_token_ids.clone();
        if !request.ignore_eos {
            stop_tokens.extend_from_slice(self.tokenizer.eos_ids());
        }
        let root = blocks::root(self.fingerprint, &request.cache_salt);
        let blocks = blocks::chain(root, &prompt, &media, self.block_tokens as usize);
        Ok(Prepared {
            request,
            prompt,
            media,
            stop_tokens,
            max_tokens,
            blocks,
            format,
        })
    }

    fn check_ids(&self, field: &str, ids: impl Iterator<Item = u32>) -> Result<(), RequestError> {
        let size = self.tokenizer.vocabulary_len();
        for id in ids {
            if id as usize >= size {
                let message =
                    format!("'{field}' names token {id}, but the vocabulary has {size} tokens: use ids below {size}");
                return Err(RequestError::invalid(field, message));
            }
        }
        Ok(())
    }

    fn encode(&self, input: &TextInput, salt: &str, now_s: u64) -> Result<(Vec<u32>, Vec<Medium>), RequestError> {
        let (prompt, media) = match input {
            TextInput::Chat(chat) => self.encode_chat(chat, salt, now_s)?,
            TextInput::Text(text) => (self.tokenizer.encode_completion(text), Vec::new()),
            TextInput::Tokens(tokens) => {
                self.check_ids("prompt", tokens.iter().copied())?;
                (tokens.clone(), Vec::new())
            }
        };
        if prompt.is_empty() {
            return Err(RequestError::invalid(
                "prompt",
                "the prompt is empty: send at least one token",
            ));
        }
        Ok((prompt, media))
    }

    /// A conversation with room for each of its media.
    fn encode_chat(&self, chat: &ChatPrompt, salt: &str, now_s: u64) -> Result<(Vec<u32>, Vec<Medium>), RequestError> {
        let files = files_of(chat);
        let measured = files.iter().map(|(place, file)| self.measure(place, file));
        let measured = measured.collect::<Result<Vec<_>, _>>()?;
        let counts: Vec<u32> = measured.iter().map(|medium| medium.tokens).collect();
        let (prompt, places) = self.tokenizer.encode_chat_media(chat, &counts, now_s)?;
        let medium = |(((_, file), measured), place): ((&(String, &MediaFile), &Measured), MediumPlace)| Medium {
            kind: place.kind,
            digest: salted(measured.digest, salt),
            first: place.first,
            tokens: place.tokens,
            source: MediumSource::File((*file).clone()),
        };
        let media = files.iter().zip(&measured).zip(places).map(medium).collect();
        Ok((prompt, media))
    }

    fn measure(&self, place: &str, file: &MediaFile) -> Result<Measured, RequestError> {
        let Some(media) = &self.media else {
            let message = format!("this model is served without {}s here: send text", file.kind);
            return Err(RequestError::invalid(place, message));
        };
        media.measure(file).map_err(|error| RequestError {
            param: error.param.or_else(|| Some(place.to_owned())),
            ..error
        })
    }

    /// How many tokens of answer there is room for, at most as many as wanted, behind the prompt that came in `field`.
    fn fit(&self, field: &str, prompt_len: usize, wanted: Option<u32>) -> Result<u32, RequestError> {
        let context = self.context as usize;
        if prompt_len >= context {
            let message = format!(
                "the prompt has {prompt_len} tokens, but this model's context holds {context} with at least one of answer: \
                 shorten the prompt"
            );
            let error = RequestError::new(ErrorKind::ContextLength, message);
            return Err(RequestError {
                param: Some(field.into()),
                ..error
            });
        }
        let room = (context - prompt_len) as u32;
        Ok(wanted.map_or(room, |wanted| wanted.min(room)))
    }
}

impl Prepared {
    /// `error` in the client's terms: whoever has to do with a medium knows its number, and the client the field it sent.
    pub(crate) fn explain(&self, error: RequestError) -> RequestError {
        let TextInput::Chat(chat) = &self.request.input else {
            return error;
        };
        let Some(named) = &error.param else {
            return error;
        };
        let mut files = files_of(chat).into_iter().enumerate();
        match files.find(|(index, _)| field_of(*index) == *named) {
            Some((_, (field, _))) => RequestError {
                param: Some(field),
                ..error
            },
            None => error,
        }
    }

    /// The work of choice `index`, whose answer the client has as far as `reached`.
    pub(crate) fn generation(&self, index: u32, reached: Reached<'_>) -> Generation {
        let request = &self.request;
        let tokens = [&self.prompt, reached.tokens].concat();
        let wants_prompt = request.echo && !reached.has_echo;
        Generation {
            tokens,
            media: self.media.clone(),
            prompt_len: self.prompt.len() as u32,
            sampling: Sampling {
                seed: choice_seed(request.sampling.seed, index),
                ..request.sampling.clone()
            },
            // The engine chooses at least one token; a request that wants none drops it.
            max_tokens: self.max_tokens.max(1),
            min_tokens: request.min_tokens,
            stop_tokens: self.stop_tokens.clone(),
            logprobs: request.logprobs,
            prompt_logprobs: request.logprobs.filter(|_| wants_prompt),
            cache_salt: request.cache_salt.clone(),
            priority: request.priority,
        }
    }

    /// Why an answer of these tokens is over, if it is: whoever takes it on would have nothing to do.
    pub(crate) fn end_of(&self, tokens: &[u32]) -> Option<FinishReason> {
        if tokens.last().is_some_and(|last| self.stop_tokens.contains(last)) {
            return Some(FinishReason::Stop);
        }
        (self.max_tokens > 0 && tokens.len() >= self.max_tokens as usize).then_some(FinishReason::Length)
    }
}

/// The media of a conversation with the field each came in, in order.
fn files_of(chat: &ChatPrompt) -> Vec<(String, &MediaFile)> {
    let mut files = Vec::new();
    for (index, message) in chat.messages.iter().enumerate() {
        let Some(Content::Parts(parts)) = &message.content else {
            continue;
        };
        for (part_index, part) in parts.iter().enumerate() {
            if let Part::Media(file) = part {
                files.push((format!("messages[{index}].content[{part_index}]"), file));
            }
        }
    }
    files
}

/// How much there is to render and encode, in bytes: what decides where it is done.
pub(crate) fn size_of(input: &TextInput) -> usize {
    match input {
        TextInput::Text(text) => text.len(),
        TextInput::Tokens(tokens) => size_of_val(tokens.as_slice()),
        TextInput::Chat(chat) => {
            let json = |text: &Option<JsonText>| text.as_ref().map_or(0, |text| text.0.len());
            json(&chat.tools) + json(&chat.template_args) + chat.messages.iter().map(message_size).sum::<usize>()
        }
    }
}

fn message_size(message: &ChatMessage) -> usize {
    let content = match &message.content {
        None => 0,
        Some(Content::Text(text)) => text.len(),
        Some(Content::Parts(parts)) => parts.iter().map(part_size).sum(),
    };
    let calls = message
        .tool_calls
        .iter()
        .map(|call| call.name.len() + call.arguments.0.len());
    content + message.reasoning.as_ref().map_or(0, String::len) + calls.sum::<usize>()
}

/// A medium costs a look at its head and the hash of all of it.
fn part_size(part: &Part) -> usize {
    match part {
        Part::Text(text) => text.len(),
        Part::Media(file) => file.bytes.len(),
    }
}

/// Who shares no pages with others shares no embeddings either: the time they take would tell that somebody else sent the
/// same file.
fn salted(digest: MediumDigest, salt: &str) -> MediumDigest {
    if salt.is_empty() {
        return digest;
    }
    MediumDigest(Fingerprint::of([&digest.0.to_le_bytes(), salt.as_bytes()]).0)
}

/// Choice 0 has the request's own seed, so that `n` does not change the first answer.
fn choice_seed(seed: u64, index: u32) -> u64 {
    seed.wrapping_add(u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
