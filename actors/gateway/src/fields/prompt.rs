//! The fields that only completions have.

use cluster_messages::TextInput;

use super::{Draft, draft};
use crate::{
    error::ApiError,
    json::Json,
    read::{Node, Path},
};

const FORMS: &str = "must be a string or a list of token ids";

/// A string, a list of token ids, or a list of exactly one of these.
pub(super) fn prompt(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.prompt = Some(match node.json {
        Json::List(items) => match items.as_slice() {
            [] => return Err(node.wrong(format!("is an empty list; it {FORMS}"))),
            [only @ (Json::Text(_) | Json::List(_))] => {
                let path = Path::Index(&node.path, 0);
                one(Node { json: only, path })?
            }
            [Json::Text(_) | Json::List(_), ..] => {
                let rule = format!(
                    "{} prompts in one request are not supported; send one request each",
                    items.len()
                );
                return Err(node.wrong(rule));
            }
            _ => one(node)?,
        },
        _ => one(node)?,
    });
    Ok(())
}

fn one(node: Node<'_>) -> Result<TextInput, ApiError> {
    match node.json {
        Json::Text(text) => Ok(TextInput::Text(text.to_string())),
        Json::List(items) if !items.is_empty() => draft::token_ids(node, items).map(TextInput::Tokens),
        _ => Err(node.wrong(FORMS)),
    }
}

pub(super) fn echo(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.echo = node.boolean()?;
    Ok(())
}

pub(super) fn best_of(draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    draft.best_of = Some(node.unsigned(1..=draft.limits.choices_max)?);
    Ok(())
}

pub(super) fn suffix(_draft: &mut Draft<'_>, node: Node<'_>) -> Result<(), ApiError> {
    if node.text()?.is_empty() {
        return Ok(());
    }
    Err(node.wrong("is not supported; leave it out"))
}
