//! The fields of functions that a model may call, and of how hard it should think.

use std::collections::HashSet;

use cluster_messages::{ChatPrompt, JsonText, ToolChoice};

use super::Draft;
use crate::{
    error::ApiError,
    json::Json,
    read::{Node, Path},
};

const TOOLS_MAX: usize = 1024;
const NAME_CHARS_MAX: usize = 128;

type Outcome = Result<(), ApiError>;

/// Definitions are checked as far as calls need them and passed on as they are.
pub(super) fn tools(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    let tools = node.list()?;
    if tools.len() > TOOLS_MAX {
        return Err(node.wrong(format!("{} tools are too many; at most {TOOLS_MAX}", tools.len())));
    }
    let mut names = HashSet::new();
    for (index, json) in tools.iter().enumerate() {
        let path = Path::Index(&node.path, index);
        let name = tool(draft, Node { json, path })?;
        if names.contains(&name) {
            let rule = format!("the function '{name}' is declared twice; give every function its own name");
            return Err(node.wrong(rule));
        }
        names.insert(name);
    }
    if !tools.is_empty() {
        let text = serde_json::to_string(node.json).map_err(|_| node.wrong("has a number that cannot be kept"))?;
        draft.chat.tools = Some(JsonText(text));
    }
    Ok(())
}

fn tool(draft: &mut Draft<'_>, node: Node<'_>) -> Result<String, ApiError> {
    match member(&node, "type").map(|kind| kind.json) {
        Some(Json::Text(kind)) if kind == "function" => {}
        _ => return Err(node.wrong("only tools of the type \"function\" are supported")),
    }
    let Some(function) = member(&node, "function") else {
        return Err(node.wrong("has no function; use {\"type\": \"function\", \"function\": {\"name\": …}}"));
    };
    let mut name = None;
    for (key, json) in function.object()? {
        let field = Node {
            json,
            path: Path::Key(&function.path, key),
        };
        match (&**key, json) {
            ("name", _) => name = Some(function_name(field)?),
            (_, Json::Null) => {}
            ("description", _) => {
                field.text()?;
            }
            ("parameters", _) => {
                field.object()?;
            }
            // Nothing keeps a model to a schema here.
            ("strict", _) if !field.boolean()? => {}
            _ => draft.ignore(field.path),
        }
    }
    name.ok_or_else(|| function.wrong("has no name"))
}

/// The name stands in headers and tags that models write, so it is plain.
fn function_name(node: Node<'_>) -> Result<String, ApiError> {
    let name = node.text()?;
    let is_plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/'));
    if is_plain && (1..=NAME_CHARS_MAX).contains(&name.len()) {
        return Ok(name.to_owned());
    }
    Err(node.wrong(format!(
        "must be 1 to {NAME_CHARS_MAX} letters, digits and characters of _ - . : /"
    )))
}

/// `auto`, `none`, `required`, or a function by name.
pub(super) fn tool_choice(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    let choice = match node.json {
        Json::Text(text) if text == "auto" => ToolChoice::Auto,
        Json::Text(text) if text == "none" => ToolChoice::None,
        Json::Text(text) if text == "required" => ToolChoice::Required,
        Json::Object(_) => named(node)?,
        _ => return Err(wrong_choice(node)),
    };
    draft.tool_choice = choice;
    Ok(())
}

fn named(node: Node<'_>) -> Result<ToolChoice, ApiError> {
    match member(&node, "type").map(|kind| kind.json) {
        Some(Json::Text(kind)) if kind == "function" => {}
        _ => return Err(wrong_choice(node)),
    }
    let Some(function) = member(&node, "function") else {
        return Err(wrong_choice(node));
    };
    function.object()?;
    let Some(name) = member(&function, "name") else {
        return Err(wrong_choice(node));
    };
    Ok(ToolChoice::Named(name.text()?.to_owned()))
}

fn wrong_choice(node: Node<'_>) -> ApiError {
    node.wrong(
        "must be auto, none, required or {\"type\": \"function\", \"function\": {\"name\": …}}; nothing else is supported",
    )
}

pub(super) fn parallel_tool_calls(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    draft.parallel_tool_calls = node.boolean()?;
    Ok(())
}

/// Which levels there are depends on the model.
pub(super) fn reasoning_effort(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    draft.chat.reasoning_effort = Some(node.text()?.to_owned());
    Ok(())
}

/// Checks the choice against the tools. With `none` the model does not get to see them.
pub(super) fn finish(chat: &mut ChatPrompt, choice: &ToolChoice) -> Outcome {
    match choice {
        ToolChoice::Auto => Ok(()),
        ToolChoice::None => {
            chat.tools = None;
            Ok(())
        }
        ToolChoice::Required | ToolChoice::Named(_) if chat.tools.is_some() => Ok(()),
        ToolChoice::Required | ToolChoice::Named(_) => Err(ApiError::invalid(
            "tool_choice",
            "needs tools to choose from; send tools",
        )),
    }
}

/// The member `key` of an object, if it is one and has it.
fn member<'p>(node: &'p Node<'_>, key: &'p str) -> Option<Node<'p>> {
    let Json::Object(entries) = node.json else {
        return None;
    };
    let (_, json) = entries.iter().find(|(name, _)| name == key)?;
    Some(Node {
        json,
        path: Path::Key(&node.path, key),
    })
}
