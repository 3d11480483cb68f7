//! What a model says, told apart: reasoning, content, calls of functions.
//!
//! ```text
//! token id ─ AnswerReader::push ─▶ Reasoning("…"), Content("…"), Call { name, arguments } ─▶ the client
//! ```
//! Every family of models has its own marks for that; the table below knows them by the tokens and the template a model
//! brings. A model of no known family says only content. The result does not depend on how the tokens arrive, and the work
//! for a token does not depend on what came before it.

mod format;
mod functions;
mod muse;
mod reader;

use cluster_messages::JsonText;

pub use format::AnswerFormat;
pub use reader::AnswerReader;

/// What became certain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnswerEvent {
    /// More of the thinking.
    Reasoning(String),
    /// More of what the client asked for.
    Content(String),
    /// A call that is complete.
    Call(FunctionCall),
}

/// A function that the model wants called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionCall {
    /// Which one; not necessarily one that was declared.
    pub name: String,
    /// A JSON object.
    pub arguments: JsonText,
}

/// How models of one family mark the parts of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    /// Messages with recipients.
    Muse,
}

/// What a model of a family spells its prompts and answers with: all of it are tokens of its own, or stand in its template.
const FAMILIES: &[(Family, &[&str])] = &[(Family::Muse, &muse::SPELLINGS)];

impl Family {
    /// The family whose marks `is_spelled` knows.
    fn of(is_spelled: impl Fn(&str) -> bool) -> Option<Self> {
        let mut families = FAMILIES.iter();
        let found = families.find(|(_, spellings)| spellings.iter().all(|spelling| is_spelled(spelling)));
        found.map(|(family, _)| *family)
    }
}

/// Appends text to the last event if it is of the same channel.
fn push_text(events: &mut Vec<AnswerEvent>, is_reasoning: bool, text: &str) {
    if text.is_empty() {
        return;
    }
    match events.last_mut() {
        Some(AnswerEvent::Reasoning(last)) if is_reasoning => last.push_str(text),
        Some(AnswerEvent::Content(last)) if !is_reasoning => last.push_str(text),
        _ if is_reasoning => events.push(AnswerEvent::Reasoning(text.to_owned())),
        _ => events.push(AnswerEvent::Content(text.to_owned())),
    }
}

#[cfg(test)]
mod tests;
