//! The one table of request fields: which API has it, and how it is read. What is not in the table is accepted, has no
//! effect, and is listed in the header `x-cluster-ignored-fields`. What is in the table is honoured or refused.
//!
//! Later APIs and fields are further rows.

mod conversation;
mod draft;
mod inert;
mod parts;
mod prompt;
mod sampling;
mod tools;

use cluster_messages::{ErrorKind, Header, TextRequest};

pub(crate) use self::draft::Draft;
use crate::{
    error::{ApiError, Fault},
    json::Json,
    media::Link,
    read::{Node, Path},
    routes::Api,
    settings::Limits,
};

type Reader = fn(&mut Draft<'_>, Node<'_>) -> Result<(), ApiError>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Both,
    Chat,
    Completions,
}

impl On {
    fn covers(self, api: Api) -> bool {
        match self {
            On::Both => true,
            On::Chat => api == Api::Chat,
            On::Completions => api == Api::Completions,
        }
    }
}

/// The fields, the frequent ones first.
const FIELDS: &[(&str, On, Reader)] = &[
    ("model", On::Both, draft::model),
    ("messages", On::Chat, conversation::messages),
    ("prompt", On::Completions, prompt::prompt),
    ("stream", On::Both, draft::stream),
    ("stream_options", On::Both, draft::stream_options),
    ("max_tokens", On::Both, draft::max_tokens),
    ("max_completion_tokens", On::Chat, draft::max_completion_tokens),
    ("temperature", On::Both, sampling::temperature),
    ("top_p", On::Both, sampling::top_p),
    ("top_k", On::Both, sampling::top_k),
    ("min_p", On::Both, sampling::min_p),
    ("seed", On::Both, sampling::seed),
    ("frequency_penalty", On::Both, sampling::frequency_penalty),
    ("presence_penalty", On::Both, sampling::presence_penalty),
    ("repetition_penalty", On::Both, sampling::repetition_penalty),
    ("logit_bias", On::Both, sampling::logit_bias),
    ("n", On::Both, draft::choices),
    ("stop", On::Both, draft::stop),
    ("stop_token_ids", On::Both, draft::stop_token_ids),
    ("min_tokens", On::Both, draft::min_tokens),
    ("ignore_eos", On::Both, draft::ignore_eos),
    ("logprobs", On::Chat, draft::chat_logprobs),
    ("top_logprobs", On::Chat, draft::top_logprobs),
    ("logprobs", On::Completions, draft::completions_logprobs),
    ("echo", On::Completions, prompt::echo),
    ("best_of", On::Completions, prompt::best_of),
    ("suffix", On::Completions, prompt::suffix),
    ("tools", On::Chat, tools::tools),
    ("tool_choice", On::Chat, tools::tool_choice),
    ("parallel_tool_calls", On::Chat, tools::parallel_tool_calls),
    ("reasoning_effort", On::Chat, tools::reasoning_effort),
    ("chat_template_kwargs", On::Chat, conversation::template_args),
    ("continue_final_message", On::Chat, conversation::continue_final),
    ("add_generation_prompt", On::Chat, conversation::add_generation_prompt),
    ("priority", On::Both, draft::priority),
    ("cache_salt", On::Both, draft::cache_salt),
    // Notes of the client for itself: checked, without effect on the answer.
    ("user", On::Both, inert::note),
    ("safety_identifier", On::Both, inert::note),
    ("prompt_cache_key", On::Both, inert::note),
    ("prompt_cache_retention", On::Both, inert::note),
    ("metadata", On::Both, inert::metadata),
    // Not served yet: only the value that asks for nothing is accepted.
    ("response_format", On::Both, inert::response_format),
    ("functions", On::Chat, inert::empty_list),
    ("function_call", On::Chat, inert::function_call),
    ("modalities", On::Chat, inert::modalities),
    ("service_tier", On::Both, inert::service_tier),
    ("store", On::Both, inert::only_false),
    ("audio", On::Chat, inert::refused),
    ("prediction", On::Chat, inert::refused),
    ("verbosity", On::Chat, inert::refused),
    ("web_search_options", On::Chat, inert::refused),
    ("guided_json", On::Both, inert::refused),
    ("guided_regex", On::Both, inert::refused),
    ("guided_choice", On::Both, inert::refused),
    ("guided_grammar", On::Both, inert::refused),
    ("structured_outputs", On::Both, inert::refused),
    ("regex", On::Both, inert::refused),
    ("ebnf", On::Both, inert::refused),
    ("json_schema", On::Both, inert::refused),
];

/// A request that passed every check that needs no tokens.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) text: TextRequest,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    /// Fields that nobody here knows.
    pub(crate) ignored: Vec<String>,
    /// Files that are yet to be fetched into `text`.
    pub(crate) links: Vec<Link>,
}

/// Reads a body into a request. `null` is the same as an absent field.
pub(crate) fn read(api: Api, body: &Json<'_>, limits: &Limits, header: Header) -> Result<Call, ApiError> {
    let Json::Object(entries) = body else {
        let message = format!("the body must be a JSON object, not {}", body.kind());
        return Err(ApiError::new(Fault::Request(ErrorKind::Invalid), message));
    };
    let mut draft = Draft::new(api, limits);
    for (name, value) in entries {
        let field = FIELDS.iter().find(|(field, on, _)| field == name && on.covers(api));
        match field {
            None => draft.ignore(name),
            Some(_) if *value == Json::Null => {}
            Some((name, _, reader)) => {
                let path = Path::Field(name);
                reader(&mut draft, Node { json: value, path })?;
            }
        }
    }
    draft.finish(header)
}

#[cfg(test)]
mod tests;
