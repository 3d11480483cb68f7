//! A request while it is read, the fields that stand for themselves, and the checks that need more than one field.

use std::collections::BTreeSet;

use cluster_messages::{ChatPrompt, Header, Sampling, TextInput, TextRequest, ToolChoice};

use super::Call;
use crate::{
    error::ApiError,
    json::Json,
    media::Link,
    read::{Node, Path},
    routes::Api,
    settings::Limits,
};

/// What the API promises when `max_tokens` is absent from a completion.
const COMPLETION_TOKENS_DEFAULT: u32 = 16;
/// A debug header, not a store.
const IGNORED_MAX: usize = 32;
const SALT_BYTES_MAX: usize = 256;

/// A request while it is read.
pub(crate) struct Draft<'l> {
    pub(super) api: Api,
    pub(super) limits: &'l Limits,
    pub(super) chat: ChatPrompt,
    pub(super) prompt: Option<TextInput>,
    pub(super) sampling: Sampling,
    pub(super) seed: Option<u64>,
    pub(super) best_of: Option<u32>,
    pub(super) echo: bool,
    pub(super) generation_prompt: Option<bool>,
    /// Pictures and sounds so far.
    pub(super) media: usize,
    pub(super) links: Vec<Link>,
    pub(super) tool_choice: ToolChoice,
    pub(super) parallel_tool_calls: bool,
    model: Option<String>,
    stream: bool,
    include_usage: Option<bool>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    min_tokens: u32,
    stop: Vec<String>,
    stop_token_ids: Vec<u32>,
    ignore_eos: bool,
    choices: u32,
    logprobs: Option<u8>,
    chat_logprobs: bool,
    top_logprobs: Option<u8>,
    priority: i32,
    cache_salt: String,
    ignored: BTreeSet<String>,
}

impl<'l> Draft<'l> {
    pub(super) fn new(api: Api, limits: &'l Limits) -> Self {
        Self {
            api,
            limits,
            chat: ChatPrompt::default(),
            prompt: None,
            sampling: Sampling::default(),
            seed: None,
            best_of: None,
            echo: false,
            generation_prompt: None,
            media: 0,
            links: Vec::new(),
            tool_choice: ToolChoice::default(),
            parallel_tool_calls: true,
            model: None,
            stream: false,
            include_usage: None,
            max_tokens: None,
            max_completion_tokens: None,
            min_tokens: 0,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            choices: 1,
            logprobs: None,
            chat_logprobs: false,
            top_logprobs: None,
            priority: 0,
            cache_salt: String::new(),
            ignored: BTreeSet::new(),
        }
    }

    /// Notes a field that has no effect.
    pub(super) fn ignore(&mut self, path: impl ToString) {
        if self.ignored.len() < IGNORED_MAX {
            self.ignored.insert(path.to_string());
        }
    }

    pub(super) fn finish(mut self, header: Header) -> Result<Call, ApiError> {
        let Some(model) = self.model.take() else {
            return Err(ApiError::invalid("model", "is missing; name one of GET /v1/models"));
        };
        let max_tokens = self.answer_tokens_max()?;
        if let Some(max) = max_tokens
            && self.min_tokens > max
        {
            let rule = format!("{} is more than the {max} tokens the answer may have", self.min_tokens);
            return Err(ApiError::invalid("min_tokens", rule));
        }
        self.check_choices()?;
        self.check_stream_options()?;
        super::tools::finish(&mut self.chat, &self.tool_choice)?;
        let logprobs = self.logprobs()?;
        // Without a seed of its own a request draws by its id: fresh each time, and the same wherever it is moved.
        self.sampling.seed = self.seed.unwrap_or(header.request.0 as u64);
        Ok(Call {
            stream: self.stream,
            include_usage: self.include_usage == Some(true),
            links: std::mem::take(&mut self.links),
            ignored: std::mem::take(&mut self.ignored).into_iter().collect(),
            text: TextRequest {
                header,
                model,
                max_tokens,
                min_tokens: self.min_tokens,
                stop: std::mem::take(&mut self.stop),
                stop_token_ids: std::mem::take(&mut self.stop_token_ids),
                ignore_eos: self.ignore_eos,
                tool_choice: std::mem::take(&mut self.tool_choice),
                parallel_tool_calls: self.parallel_tool_calls,
                choices: self.choices,
                logprobs,
                echo: self.echo,
                cache_salt: std::mem::take(&mut self.cache_salt),
                priority: self.priority,
                sampling: std::mem::take(&mut self.sampling),
                input: self.input()?,
            },
        })
    }

    fn input(self) -> Result<TextInput, ApiError> {
        match self.api {
            Api::Chat => super::conversation::finish(self.chat, self.generation_prompt).map(TextInput::Chat),
            Api::Completions => self
                .prompt
                .ok_or_else(|| ApiError::invalid("prompt", "is missing; send a string or a list of token ids")),
        }
    }

    fn answer_tokens_max(&self) -> Result<Option<u32>, ApiError> {
        match (self.max_tokens, self.max_completion_tokens) {
            (Some(old), Some(new)) if old != new => {
                let rule = format!("{old} contradicts max_completion_tokens {new}; send one of them");
                Err(ApiError::invalid("max_tokens", rule))
            }
            (old, new) => {
                let default = (self.api == Api::Completions).then_some(COMPLETION_TOKENS_DEFAULT);
                Ok(old.or(new).or(default))
            }
        }
    }

    fn check_choices(&self) -> Result<(), ApiError> {
        match self.best_of {
            Some(best) if best != self.choices => {
                let rule = format!(
                    "{best} differs from n = {}; ranking answers is not supported",
                    self.choices
                );
                Err(ApiError::invalid("best_of", rule))
            }
            _ => Ok(()),
        }
    }

    fn check_stream_options(&self) -> Result<(), ApiError> {
        if self.include_usage.is_some() && !self.stream {
            return Err(ApiError::invalid(
                "stream_options",
                "is only allowed when stream is true",
            ));
        }
        Ok(())
    }

    fn logprobs(&self) -> Result<Option<u8>, ApiError> {
        if self.api == Api::Completions {
            return Ok(self.logprobs);
        }
        match (self.chat_logprobs, self.top_logprobs) {
            (false, None) => Ok(None),
            (true, top) => Ok(Some(top.unwrap_or(0))),
            (false, Some(_)) => Err(ApiError::invalid(
                "top_logprobs",
                "is only allowed when logprobs is true",
            )),
        }
    }
}

pub(super) fn model(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.model = Some(node.text()?.to_owned());
    Ok(())
}

pub(super) fn stream(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.stream = node.boolean()?;
    Ok(())
}

pub(super) fn stream_options(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    // Present at all, it needs `stream`; whatever it asks for.
    draft.include_usage = Some(false);
    for (key, value) in node.object()? {
        let option = Node {
            json: value,
            path: Path::Key(&node.path, key),
        };
        match (&**key, value) {
            (_, Json::Null) => {}
            ("include_usage", _) => draft.include_usage = Some(option.boolean()?),
            ("include_obfuscation" | "continuous_usage_stats", _) => {
                if option.boolean()? {
                    return Err(option.wrong("is not supported; leave it out"));
                }
            }
            _ => draft.ignore(option.path),
        }
    }
    Ok(())
}

pub(super) fn max_tokens(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    // A completion of nothing still has the prompt's text and log-probabilities to give; a chat has nothing.
    let least = if draft.api == Api::Completions { 0 } else { 1 };
    draft.max_tokens = Some(node.unsigned(least..=u32::MAX)?);
    Ok(())
}

pub(super) fn max_completion_tokens(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.max_completion_tokens = Some(node.unsigned(1..=u32::MAX)?);
    Ok(())
}

pub(super) fn min_tokens(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.min_tokens = node.unsigned(0..=u32::MAX)?;
    Ok(())
}

pub(super) fn choices(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.choices = node.unsigned(1..=draft.limits.choices_max)?;
    Ok(())
}

/// A string or a list of strings.
pub(super) fn stop(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    let limits = draft.limits;
    let texts = match node.json {
        Json::List(items) if items.len() > limits.stop_max => {
            let rule = format!("{} strings are too many; send at most {}", items.len(), limits.stop_max);
            return Err(node.wrong(rule));
        }
        Json::List(items) => items.iter().collect(),
        _ => vec![node.json],
    };
    for json in texts {
        let text = Node { json, ..node }.text()?;
        if text.is_empty() {
            return Err(node.wrong("an empty string would stop every answer; send at least one character"));
        }
        if text.len() > limits.stop_bytes_max {
            let rule = format!(
                "a string of {} bytes is too long; at most {}",
                text.len(),
                limits.stop_bytes_max
            );
            return Err(node.wrong(rule));
        }
        draft.stop.push(text.to_owned());
    }
    Ok(())
}

pub(super) fn stop_token_ids(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    let items = node.list()?;
    if items.len() > draft.limits.stop_token_ids_max {
        let rule = format!(
            "{} ids are too many; at most {}",
            items.len(),
            draft.limits.stop_token_ids_max
        );
        return Err(node.wrong(rule));
    }
    draft.stop_token_ids = token_ids(node, items)?;
    Ok(())
}

pub(super) fn ignore_eos(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.ignore_eos = node.boolean()?;
    Ok(())
}

pub(super) fn chat_logprobs(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.chat_logprobs = node.boolean()?;
    Ok(())
}

pub(super) fn top_logprobs(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.top_logprobs = Some(alternatives(draft, node)?);
    Ok(())
}

pub(super) fn completions_logprobs(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.logprobs = Some(alternatives(draft, node)?);
    Ok(())
}

fn alternatives(draft: &Draft<'_>, node: Node<'_>) -> Result<u8, ApiError> {
    let count = node.unsigned(0..=u32::from(draft.limits.top_logprobs_max))?;
    Ok(u8::try_from(count).expect("the limit is a u8"))
}

pub(super) fn priority(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    let value = node.integer(i128::from(i32::MIN)..=i128::from(i32::MAX))?;
    draft.priority = i32::try_from(value).expect("the range is that of i32");
    Ok(())
}

pub(super) fn cache_salt(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    let salt = node.text()?;
    if salt.len() > SALT_BYTES_MAX {
        return Err(node.wrong(format!("{} bytes are too many; at most {SALT_BYTES_MAX}", salt.len())));
    }
    draft.cache_salt = salt.to_owned();
    Ok(())
}

/// A list of token ids. Whether the vocabulary has them is the tokenizer's to say.
pub(super) fn token_ids(node: Node<'_>, items: &[Json<'_>]) -> Result<Vec<u32>, ApiError> {
    let ids = items.iter().enumerate().map(|(index, json)| {
        let path = Path::Index(&node.path, index);
        Node { json, path }.unsigned(0..=u32::MAX)
    });
    // The field as a whole is at fault in the eyes of the API; the message names the entry.
    ids.collect::<Result<_, _>>().map_err(|error| ApiError {
        param: Some(node.path.to_string()),
        ..error
    })
}
