//! Jinja as the `transformers` library sets it up for chat templates.

use std::borrow::Cow;

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, syntax::SyntaxConfig, value::Kwargs,
};
use minijinja_contrib::pycompat;

use super::python;

/// Steps, and blocks of 64 bytes of output, after which a template is stopped: a second or two of work. A plain conversation of a
/// thousand messages takes some ten thousand steps. Templates that look up the call of every tool result in the whole
/// conversation need the rest; they get to about 700 rounds of calls.
pub(super) const FUEL: u64 = 10_000_000;

/// The same for a conversation of one message.
pub(super) const PROBE_FUEL: u64 = 100_000;

pub(super) fn python_like() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_unknown_method_callback(pycompat::unknown_method_callback);
    environment.add_filter("tojson", to_json);
    environment.add_function("raise_exception", raise_exception);
    environment
}

/// What a template said when it refused.
pub(super) fn raised(error: &Error) -> Option<&str> {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    loop {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return Some(message);
        }
        cause = cause.source()?;
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raised by the template").with_source(Raised(message)))
}

fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let separators = match options.get::<Option<Vec<String>>>("separators")? {
        None => None,
        Some(separators) => Some(
            <[String; 2]>::try_from(separators)
                .map_err(|_| Error::new(ErrorKind::InvalidOperation, "the separators of tojson are not two"))?,
        ),
    };
    let style = python::JsonStyle {
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent: options.get::<Option<usize>>("indent")?,
        separators,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    python::to_json(value, &style)
}

/// Training marks the model's own words by `{% generation %}`. For serving they are transparent.
pub(super) fn without_generation_marks(source: &str) -> String {
    let mut rest = source;
    let mut plain = String::with_capacity(source.len());
    while let Some(start) = rest.find("{%") {
        let Some(len) = rest[start..].find("%}") else {
            break;
        };
        let tag = &rest[start + 2..start + len];
        plain.push_str(&rest[..start + 2]);
        plain.push_str(&transparent(tag));
        plain.push_str("%}");
        rest = &rest[start + len + 2..];
    }
    plain + rest
}

fn transparent(tag: &str) -> Cow<'_, str> {
    match tag.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+')) {
        word @ "generation" => Cow::Owned(tag.replace(word, "if true")),
        word @ "endgeneration" => Cow::Owned(tag.replace(word, "endif")),
        _ => Cow::Borrowed(tag),
    }
}
