//! Fields that change nothing: notes of the client, and fields whose only accepted value asks for what happens anyway.

use super::Draft;
use crate::{
    error::ApiError,
    json::Json,
    read::{Node, Path},
};

const NOTE_BYTES_MAX: usize = 512;
const KEY_BYTES_MAX: usize = 64;
const METADATA_MAX: usize = 16;
const LEAVE_OUT: &str = "is not supported by this server; leave it out";

type Outcome = Result<(), ApiError>;

/// A string for the client's own use.
pub(super) fn note(_draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    let length = node.text()?.len();
    if length > NOTE_BYTES_MAX {
        return Err(node.wrong(format!("{length} bytes are too many; at most {NOTE_BYTES_MAX}")));
    }
    Ok(())
}

/// Up to 16 pairs of strings.
pub(super) fn metadata(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    let entries = node.object()?;
    if entries.len() > METADATA_MAX {
        return Err(node.wrong(format!("{} pairs are too many; at most {METADATA_MAX}", entries.len())));
    }
    for (key, json) in entries {
        if key.len() > KEY_BYTES_MAX {
            return Err(node.wrong(format!(
                "a key of {} bytes is too long; at most {KEY_BYTES_MAX}",
                key.len()
            )));
        }
        let path = Path::Key(&node.path, key);
        note(draft, Node { json, path })?;
    }
    Ok(())
}

pub(super) fn refused(_draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    Err(node.wrong(LEAVE_OUT))
}

pub(super) fn empty_list(_draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    if node.list()?.is_empty() {
        return Ok(());
    }
    Err(node.wrong(LEAVE_OUT))
}

pub(super) fn only_false(_draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    if node.boolean()? {
        return Err(node.wrong("true is not supported: answers are not stored; leave it out"));
    }
    Ok(())
}

/// The old name of `tool_choice`. Without `functions`, `none` and `auto` ask for the same.
pub(super) fn function_call(_draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    one_of(node, &["none", "auto"])
}

pub(super) fn service_tier(_draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    one_of(node, &["auto", "default"])
}

fn one_of(node: Node<'_>, accepted: &[&str]) -> Outcome {
    match node.json {
        Json::Text(text) if accepted.contains(&&**text) => Ok(()),
        _ => Err(node.wrong(format!("only {} is supported by this server", accepted.join(" or ")))),
    }
}

pub(super) fn response_format(_draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    let kind = node.object()?.iter().find(|(key, _)| key == "type");
    match kind {
        Some((_, Json::Text(text))) if text == "text" => Ok(()),
        _ => Err(node.wrong("only {\"type\": \"text\"} is supported by this server")),
    }
}

pub(super) fn modalities(_draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    match node.list()? {
        [Json::Text(only)] if only == "text" => Ok(()),
        _ => Err(node.wrong("only [\"text\"] is supported by this server")),
    }
}
