//! A conversation as the variables of a template.

use cluster_messages::{ChatMessage, ChatPrompt, Content, JsonText, MediumKind, Part, RequestError, ToolCall};
use minijinja::Value as TemplateValue;
use serde_json::{Map, Number, Value, json};

use crate::controls::{Controls, Escapes};

/// Roles a client may use. A template may build a control token out of the role, so it is not free text.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// Variables that a client's template arguments cannot replace.
const RESERVED: [&str; 9] = [
    "messages",
    "tools",
    "continue_final_message",
    "chat_template",
    "bos_token",
    "eos_token",
    "strftime_now",
    "raise_exception",
    "namespace",
];

/// How a template wants a message's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ContentForm {
    /// A string.
    Text,
    /// A list of typed parts.
    Parts,
}

/// The levels of reasoning that a client can ask for.
const EFFORTS: [&str; 4] = ["low", "medium", "high", "xhigh"];

/// What a template expects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) content: ContentForm,
    /// The variable for the level of reasoning; none: the template knows no levels.
    pub(super) effort: Option<&'static str>,
}

impl Default for Form {
    fn default() -> Self {
        Self {
            content: ContentForm::Text,
            effort: None,
        }
    }
}

/// Variables, with the client's strings hidden.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) variables: Vec<(String, TemplateValue)>,
    /// Stands where the last message is to be continued.
    pub(super) continued_at: Option<char>,
}

impl Conversation {
    pub(super) fn new(
        prompt: &ChatPrompt,
        form: Form,
        controls: &Controls,
        escapes: &mut Escapes,
    ) -> Result<Self, RequestError> {
        if prompt.messages.is_empty() {
            return Err(RequestError::invalid(
                "messages",
                "messages is empty; send at least one message",
            ));
        }
        let mut hiding = Hiding { controls, escapes };
        let mut messages = Vec::with_capacity(prompt.messages.len());
        for (index, message) in prompt.messages.iter().enumerate() {
            messages.push(hiding.message(index, message, form.content)?);
        }
        let continued_at = if prompt.continue_final {
            Some(hiding.mark_end(&mut messages)?)
        } else {
            None
        };
        let mut variables = hiding.arguments(prompt.template_args.as_ref())?;
        if let Some(effort) = &prompt.reasoning_effort {
            set_effort(&mut variables, form.effort, effort)?;
        }
        if let Some(tools) = hiding.tools(prompt.tools.as_ref())? {
            variables.insert("tools".to_owned(), tools);
        }
        variables.insert("messages".to_owned(), messages.into());
        variables.insert("continue_final_message".to_owned(), prompt.continue_final.into());
        let generates = variables.entry("add_generation_prompt").or_insert(Value::Bool(true));
        if prompt.continue_final {
            *generates = Value::Bool(false);
        }
        Ok(Self {
            variables: template_values(variables),
            continued_at,
        })
    }

    /// One message of a user with this content.
    pub(super) fn probe(content: Value) -> Vec<(String, TemplateValue)> {
        let message = json!({"role": "user", "content": content});
        let variables = [("messages", json!([message])), ("add_generation_prompt", json!(true))];
        variables
            .map(|(name, value)| (name.to_owned(), template_value(value)))
            .into()
    }
}

fn template_values(variables: Map<String, Value>) -> Vec<(String, TemplateValue)> {
    variables
        .into_iter()
        .map(|(name, value)| (name, template_value(value)))
        .collect()
}

/// Written out, because the conversion through serde gives a meaning to certain strings.
pub(super) fn template_value(value: Value) -> TemplateValue {
    match value {
        Value::Null => TemplateValue::from(()),
        Value::Bool(flag) => flag.into(),
        Value::Number(number) => template_number(&number),
        Value::String(text) => text.into(),
        Value::Array(items) => items.into_iter().map(template_value).collect::<Vec<_>>().into(),
        Value::Object(fields) => TemplateValue::from_pairs(template_values(fields)),
    }
}

fn template_number(number: &Number) -> TemplateValue {
    if let Some(number) = number.as_i64() {
        return number.into();
    }
    match number.as_u64() {
        Some(number) => number.into(),
        None => number.as_f64().unwrap_or(f64::NAN).into(),
    }
}

/// Sets the level of reasoning, under the name that the template knows it by.
fn set_effort(variables: &mut Map<String, Value>, variable: Option<&str>, effort: &str) -> Result<(), RequestError> {
    const PARAM: &str = "reasoning_effort";
    let Some(variable) = variable else {
        let problem = "this model has no levels of reasoning; leave reasoning_effort out";
        return Err(RequestError::invalid(PARAM, problem));
    };
    if !EFFORTS.contains(&effort) {
        let effort: String = effort.chars().take(32).collect();
        let problem = format!("`{effort}` is not a level of reasoning; use {}", EFFORTS.join(", "));
        return Err(RequestError::invalid(PARAM, problem));
    }
    let given = variables.insert(variable.to_owned(), effort.into());
    match given {
        Some(given) if !given.is_null() && given != effort => {
            let problem = format!("`{effort}` contradicts chat_template_kwargs.{variable}; send one of them");
            Err(RequestError::invalid(PARAM, problem))
        }
        _ => Ok(()),
    }
}

pub(super) fn content(text: String, form: ContentForm) -> Value {
    match form {
        ContentForm::Text => Value::String(text),
        ContentForm::Parts if text.is_empty() => json!([]),
        ContentForm::Parts => json!([text_part(text)]),
    }
}

fn text_part(text: String) -> Value {
    json!({"type": "text", "text": text})
}

/// A medium as templates know it; its bytes are not theirs to see.
pub(super) fn medium(kind: MediumKind) -> Value {
    json!({"type": kind.name()})
}

/// Text parts beside each other are joined with nothing in between, before anything is hidden: two parts may spell a control
/// token together.
fn joined(content: Option<&Content>) -> Vec<Stretch> {
    let parts = match content {
        None => return Vec::new(),
        Some(Content::Text(text)) => return vec![Stretch::Text(text.clone())],
        Some(Content::Parts(parts)) => parts,
    };
    let mut stretches = Vec::new();
    for part in parts {
        match (part, stretches.last_mut()) {
            (Part::Text(more), Some(Stretch::Text(text))) => text.push_str(more),
            (Part::Text(text), _) => stretches.push(Stretch::Text(text.clone())),
            (Part::Media(file), _) => stretches.push(Stretch::Medium(file.kind)),
        }
    }
    stretches
}

/// Content between media, or a medium.
enum Stretch {
    Text(String),
    Medium(MediumKind),
}

struct Hiding<'a> {
    controls: &'a Controls,
    escapes: &'a mut Escapes,
}

impl Hiding<'_> {
    fn text(&mut self, text: &str) -> Result<String, RequestError> {
        self.escapes.hide(self.controls, text)
    }

    /// A message without content has empty content: many templates join it without asking.
    fn message(&mut self, index: usize, message: &ChatMessage, form: ContentForm) -> Result<Value, RequestError> {
        if !ROLES.contains(&message.role.as_str()) {
            let problem = format!("the role `{}` is not one of {}", message.role, ROLES.join(", "));
            return Err(RequestError::invalid(format!("messages[{index}].role"), problem));
        }
        let mut fields = Map::new();
        fields.insert("role".to_owned(), message.role.as_str().into());
        fields.insert("content".to_owned(), self.content(message.content.as_ref(), form)?);
        let optional = [
            ("name", &message.name),
            ("reasoning_content", &message.reasoning),
            ("tool_call_id", &message.tool_call_id),
        ];
        for (field, text) in optional {
            if let Some(text) = text {
                fields.insert(field.to_owned(), self.text(text)?.into());
            }
        }
        if !message.tool_calls.is_empty() {
            let mut calls = Vec::with_capacity(message.tool_calls.len());
            for (call_index, call) in message.tool_calls.iter().enumerate() {
                let place = format!("messages[{index}].tool_calls[{call_index}].function.arguments");
                calls.push(self.tool_call(&place, call)?);
            }
            fields.insert("tool_calls".to_owned(), calls.into());
        }
        Ok(fields.into())
    }

    /// Content with media is a list of parts for every template; there is no other way to say it.
    fn content(&mut self, given: Option<&Content>, form: ContentForm) -> Result<Value, RequestError> {
        let stretches = joined(given);
        match stretches.as_slice() {
            [] => return Ok(content(String::new(), form)),
            [Stretch::Text(only)] => return self.text(only).map(|text| content(text, form)),
            _ => {}
        }
        let parts = stretches.iter().map(|stretch| match stretch {
            Stretch::Text(text) => self.text(text).map(text_part),
            Stretch::Medium(kind) => Ok(medium(*kind)),
        });
        parts.collect::<Result<Vec<Value>, _>>().map(Value::from)
    }

    /// Arguments become a mapping, as templates expect; no arguments are an empty one.
    fn tool_call(&mut self, place: &str, call: &ToolCall) -> Result<Value, RequestError> {
        let arguments = if call.arguments.0.trim().is_empty() {
            "{}"
        } else {
            &call.arguments.0
        };
        let arguments = match parse(place, arguments)? {
            arguments @ Value::Object(_) => self.value(arguments)?,
            _ => {
                return Err(RequestError::invalid(
                    place,
                    "the arguments of a tool call must be a JSON object",
                ));
            }
        };
        let (id, name) = (self.text(&call.id)?, self.text(&call.name)?);
        Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
    }

    fn tools(&mut self, tools: Option<&JsonText>) -> Result<Option<Value>, RequestError> {
        let Some(tools) = tools else {
            return Ok(None);
        };
        match parse("tools", &tools.0)? {
            Value::Array(tools) if tools.is_empty() => Ok(None),
            tools @ Value::Array(_) => self.value(tools).map(Some),
            _ => Err(RequestError::invalid("tools", "tools must be a list")),
        }
    }

    fn arguments(&mut self, arguments: Option<&JsonText>) -> Result<Map<String, Value>, RequestError> {
        const PARAM: &str = "chat_template_kwargs";
        let Some(arguments) = arguments else {
            return Ok(Map::new());
        };
        let Value::Object(arguments) = parse(PARAM, &arguments.0)? else {
            return Err(RequestError::invalid(
                PARAM,
                "the arguments of the chat template must be a JSON object",
            ));
        };
        let mut variables = Map::new();
        for (name, value) in arguments {
            if RESERVED.contains(&name.as_str()) {
                return Err(RequestError::invalid(
                    PARAM,
                    format!("`{name}` is set by the server and cannot be replaced"),
                ));
            }
            variables.insert(name, self.value(value)?);
        }
        Ok(variables)
    }

    /// All strings in `value`, keys included.
    fn value(&mut self, value: Value) -> Result<Value, RequestError> {
        match value {
            Value::String(text) => self.text(&text).map(Value::String),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                let mut hidden = Map::new();
                for (key, value) in fields {
                    hidden.insert(self.text(&key)?, self.value(value)?);
                }
                Ok(Value::Object(hidden))
            }
            plain => Ok(plain),
        }
    }

    fn mark_end(&mut self, messages: &mut [Value]) -> Result<char, RequestError> {
        let nothing = || RequestError::invalid("messages", "the last message has no content to continue");
        let content = messages
            .last_mut()
            .and_then(|message| message.get_mut("content"))
            .ok_or_else(nothing)?;
        let text = match content {
            Value::Array(parts) => parts.last_mut().and_then(|part| part.get_mut("text")),
            text => Some(text),
        };
        let Some(Value::String(text)) = text.filter(|text| *text != "") else {
            return Err(nothing());
        };
        let mark = self.escapes.mark()?;
        text.push(mark);
        text.push(' ');
        Ok(mark)
    }
}

fn parse(param: &str, json: &str) -> Result<Value, RequestError> {
    serde_json::from_str(json).map_err(|error| RequestError::invalid(param, format!("not JSON: {error}")))
}
