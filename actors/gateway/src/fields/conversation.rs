//! The fields of a conversation: messages, and how the template is to render them.

use cluster_messages::{ChatMessage, ChatPrompt, Content, JsonText, ToolCall};

use super::{Draft, parts::part};
use crate::{
    error::ApiError,
    json::Json,
    read::{Node, Path},
};

const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

type Outcome = Result<(), ApiError>;

pub(super) fn messages(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    let items = node.list()?;
    let most = draft.limits.messages_max;
    if items.len() > most {
        return Err(node.wrong(format!("{} messages are too many; at most {most}", items.len())));
    }
    for (index, json) in items.iter().enumerate() {
        let path = Path::Index(&node.path, index);
        let message = message(draft, Node { json, path })?;
        draft.chat.messages.push(message);
    }
    Ok(())
}

/// Checks what needs the whole conversation.
pub(super) fn finish(chat: ChatPrompt, generation_prompt: Option<bool>) -> Result<ChatPrompt, ApiError> {
    let Some(last) = chat.messages.last() else {
        return Err(ApiError::invalid(
            "messages",
            "is missing or empty; send at least one message",
        ));
    };
    if chat.continue_final && last.role != "assistant" {
        let rule = format!("needs an assistant message at the end, not one of role {}", last.role);
        return Err(ApiError::invalid("continue_final_message", rule));
    }
    // The opening of a new answer is rendered exactly when no message is continued.
    if generation_prompt == Some(chat.continue_final) {
        let rule = format!(
            "must be {} when continue_final_message is {}",
            !chat.continue_final, chat.continue_final
        );
        return Err(ApiError::invalid("add_generation_prompt", rule));
    }
    Ok(chat)
}

fn message(draft: &mut Draft<'_>, node: Node<'_>) -> Result<ChatMessage, ApiError> {
    let mut message = ChatMessage::default();
    for (key, json) in node.object()? {
        let field = Node {
            json,
            path: Path::Key(&node.path, key),
        };
        match (&**key, json) {
            (_, Json::Null) => {}
            ("role", _) => message.role = role(field)?,
            ("content", _) => message.content = Some(content(draft, field)?),
            ("name", _) => message.name = Some(field.text()?.to_owned()),
            ("reasoning_content" | "reasoning", _) => message.reasoning = Some(field.text()?.to_owned()),
            ("tool_calls", _) => message.tool_calls = tool_calls(field)?,
            ("tool_call_id", _) => message.tool_call_id = Some(field.text()?.to_owned()),
            ("refusal", Json::Text(text)) => {
                message.content.get_or_insert_with(|| Content::Text(text.to_string()));
            }
            ("function_call" | "audio", _) => return Err(field.wrong("is not supported; leave it out")),
            _ => draft.ignore(field.path),
        }
    }
    check(&node, &message)?;
    Ok(message)
}

fn check(node: &Node<'_>, message: &ChatMessage) -> Outcome {
    let wrong = |key, rule: &str| Err(ApiError::invalid(Path::Key(&node.path, key).to_string(), rule));
    if message.role.is_empty() {
        return wrong("role", "is missing; use system, user, assistant or tool");
    }
    let has_calls = !message.tool_calls.is_empty();
    if has_calls && message.role != "assistant" {
        return wrong("tool_calls", "only an assistant message may have calls");
    }
    if message.content.is_none() && !has_calls {
        return wrong("content", "is missing; send a string or a list of parts");
    }
    if message.role == "tool" && message.tool_call_id.is_none() {
        return wrong("tool_call_id", "is missing; name the call that this message answers");
    }
    Ok(())
}

fn role(node: Node<'_>) -> Result<String, ApiError> {
    let role = node.text()?;
    if ROLES.contains(&role) {
        return Ok(role.to_owned());
    }
    let role: String = role.chars().take(32).collect();
    Err(node.wrong(format!("'{role}' is not a role; use {}", ROLES.join(", "))))
}

fn content(draft: &mut Draft<'_>, node: Node<'_>) -> Result<Content, ApiError> {
    match node.json {
        Json::Text(text) => Ok(Content::Text(text.to_string())),
        Json::List(items) => {
            let parts = items.iter().enumerate().map(|(index, json)| {
                let path = Path::Index(&node.path, index);
                part(draft, Node { json, path })
            });
            parts.collect::<Result<_, _>>().map(Content::Parts)
        }
        other => Err(node.wrong(format!("must be a string or a list of parts, not {}", other.kind()))),
    }
}

fn tool_calls(node: Node<'_>) -> Result<Vec<ToolCall>, ApiError> {
    let calls = node.list()?.iter().enumerate();
    let calls = calls.map(|(index, json)| {
        let path = Path::Index(&node.path, index);
        tool_call(Node { json, path })
    });
    calls.collect()
}

fn tool_call(node: Node<'_>) -> Result<ToolCall, ApiError> {
    let path = Path::Key(&node.path, "function");
    let function = Node {
        json: member(node, "function")?,
        path,
    };
    let text_of = |owner: Node<'_>, key: &str| {
        let json = member(owner, key)?;
        let path = Path::Key(&owner.path, key);
        Node { json, path }.text().map(str::to_owned)
    };
    Ok(ToolCall {
        id: text_of(node, "id")?,
        name: text_of(function, "name")?,
        arguments: JsonText(text_of(function, "arguments")?),
    })
}

fn member<'p>(node: Node<'p>, key: &str) -> Result<&'p Json<'p>, ApiError> {
    let entries = node.object()?;
    let found = entries.iter().find(|(name, _)| name == key);
    found
        .map(|(_, json)| json)
        .ok_or_else(|| ApiError::invalid(Path::Key(&node.path, key).to_string(), "is missing"))
}

/// Variables for the template, passed on as they are.
pub(super) fn template_args(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    node.object()?;
    let text = serde_json::to_string(node.json).map_err(|_| node.wrong("has a number that cannot be kept"))?;
    draft.chat.template_args = Some(JsonText(text));
    Ok(())
}

pub(super) fn continue_final(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    draft.chat.continue_final = node.boolean()?;
    Ok(())
}

pub(super) fn add_generation_prompt(draft: &mut Draft<'_>, node: Node<'_>) -> Outcome {
    draft.generation_prompt = Some(node.boolean()?);
    Ok(())
}
