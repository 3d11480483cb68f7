//! How the answers to one request are read, and what the prompt has to say for that.

use std::sync::Arc;

use cluster_messages::{ChatPrompt, RequestError, ToolChoice};

use super::{Family, functions::Functions, muse};
use crate::{Specials, Tokenizer};

/// How the answers to one request are read.
#[derive(Clone, Debug, Default)]
pub struct AnswerFormat {
    pub(super) way: Option<Way>,
    opening: Vec<u32>,
}

/// For a model of a known family.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) family: Family,
    pub(super) functions: Arc<Functions>,
    /// The message that the prompt has begun already.
    pub(super) start: Option<muse::Recipient>,
}

impl AnswerFormat {
    /// All of the answer is content.
    pub fn plain() -> Self {
        Self::default()
    }

    /// The format of answers to `chat` by a model of `family`.
    ///
    /// A function that must be called is opened for the model, by the header of a message to it. Nothing keeps a model from
    /// answering in words otherwise, so `required` is served only when there is just one function to open.
    pub(crate) fn new(tokenizer: &Tokenizer, chat: &ChatPrompt, choice: &ToolChoice) -> Result<Self, RequestError> {
        let family = Family::of(|spelling| tokenizer.spells(spelling));
        let functions = match choice {
            ToolChoice::None => Functions::default(),
            ToolChoice::Auto | ToolChoice::Required | ToolChoice::Named(_) => Functions::new(chat.tools.as_ref())?,
        };
        let Some(family) = family else {
            return if functions.names().is_empty() && matches!(choice, ToolChoice::Auto | ToolChoice::None) {
                Ok(Self::plain())
            } else {
                let problem = "calls in the answers of this model can not be read by this server; leave tools out";
                Err(RequestError::invalid("tools", problem))
            };
        };
        check_names(&functions)?;
        let called = called(&functions, choice)?;
        if called.is_some() && chat.continue_final {
            let problem = "a call can not be forced while continue_final_message continues another message";
            return Err(RequestError::invalid("tool_choice", problem));
        }
        let start = match called {
            Some(name) => Some(muse::recipient_named(name, true)),
            None => chat.continue_final.then_some(muse::Recipient::Client),
        };
        let opening = called.map_or_else(Vec::new, |name| {
            let mut header = tokenizer.encode(&format!(" to={name}"), Specials::AsText);
            header.extend(tokenizer.encode(muse::BODY, Specials::Parse));
            header
        });
        let functions = Arc::new(functions);
        let way = Some(Way {
            family,
            functions,
            start,
        });
        Ok(Self { way, opening })
    }

    /// What the prompt has to end with, behind what the template writes: the header of a call that must be made.
    pub fn opening(&self) -> &[u32] {
        &self.opening
    }
}

fn check_names(functions: &Functions) -> Result<(), RequestError> {
    let reserved = |name: &String| muse::RESERVED_NAMES.contains(&name.as_str());
    match functions.names().iter().position(reserved) {
        None => Ok(()),
        Some(index) => {
            let problem = format!(
                "this model does not know functions called {}; use another name",
                muse::RESERVED_NAMES.join(", ")
            );
            Err(RequestError::invalid(format!("tools[{index}].function.name"), problem))
        }
    }
}

/// The function that must be called.
fn called<'f>(functions: &'f Functions, choice: &'f ToolChoice) -> Result<Option<&'f str>, RequestError> {
    let wrong = |problem: String| Err(RequestError::invalid("tool_choice", problem));
    match (choice, functions.names()) {
        (ToolChoice::Auto | ToolChoice::None, _) => Ok(None),
        (ToolChoice::Required | ToolChoice::Named(_), []) => wrong("needs tools to choose from; send tools".to_owned()),
        (ToolChoice::Named(name), names) if names.contains(name) => Ok(Some(name)),
        (ToolChoice::Named(name), _) => {
            let name: String = name.chars().take(64).collect();
            wrong(format!("the function `{name}` is not among the tools; declare it"))
        }
        (ToolChoice::Required, [only]) => Ok(Some(only)),
        (ToolChoice::Required, names) => wrong(format!(
            "`required` can not be promised for {} functions; name one of them, or use `auto`",
            names.len()
        )),
    }
}
