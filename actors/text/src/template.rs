//! A model's chat template: a conversation in, a prompt out.
//!
//! Templates are written for Python's Jinja as the `transformers` library sets it up; `environment` makes ours behave alike.
//! The client's strings go in hidden (see `controls`), so that only the template can write control tokens.

mod calendar;
mod conversation;
mod environment;
mod python;

use std::sync::Arc;

use cluster_messages::{ChatPrompt, MediumKind, RequestError};
use minijinja::{Environment, Value};

use crate::{
    TextError,
    controls::{Controls, Escapes, Prompt, is_stand_in},
};
use conversation::{ContentForm, Conversation, Form};

const NAME: &str = "chat template";

/// What templates call the level of reasoning.
const EFFORT_VARIABLES: [&str; 2] = ["reasoning_effort", "reasoning_strength"];

/// A template ready to render.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    controls: Arc<Controls>,
    named_tokens: Vec<(String, String)>,
    form: Form,
}

impl Template {
    /// Parses `source`. `named_tokens` are variables such as `bos_token` with their text; `controls` are the texts of the model's
    /// control tokens, which users can not write.
    pub fn new(source: &str, named_tokens: &[(String, String)], controls: &[&str]) -> Result<Self, TextError> {
        Self::with_controls(source, named_tokens, Arc::new(Controls::new(controls.iter().copied())?))
    }

    pub(crate) fn with_controls(
        source: &str,
        named_tokens: &[(String, String)],
        controls: Arc<Controls>,
    ) -> Result<Self, TextError> {
        if source.contains(is_stand_in) {
            return Err(TextError::Template(
                "it writes characters from U+100000 on, which are reserved".to_owned(),
            ));
        }
        let mut environment = environment::python_like();
        environment
            .add_template_owned(NAME, environment::without_generation_marks(source))
            .map_err(|error| TextError::Template(format!("{error:#}")))?;
        let mut template = Self {
            environment,
            controls,
            named_tokens: named_tokens.to_vec(),
            form: Form::default(),
        };
        template.environment.set_fuel(Some(environment::PROBE_FUEL));
        template.form = Form {
            content: template.probe_content_form(),
            effort: template.effort_variable(),
        };
        template.environment.set_fuel(Some(environment::FUEL));
        Ok(template)
    }

    /// Renders `prompt`; `now_s` is the time for templates that print a date, in seconds since 1970, UTC.
    ///
    /// A template that refuses the conversation gives an invalid request.
    pub fn render(&self, prompt: &ChatPrompt, now_s: u64) -> Result<Prompt, RequestError> {
        let mut escapes = Escapes::default();
        let conversation = Conversation::new(prompt, self.form, &self.controls, &mut escapes)?;
        let rendered = self.render_variables(conversation.variables, now_s).map_err(|error| {
            let reason = escapes.restore(&error.reason).into_owned();
            RequestError::invalid(
                error.param,
                format!("the model's chat template {}: {reason}", error.what),
            )
        })?;
        let rendered = match conversation.continued_at {
            Some(mark) => before_mark(&rendered, mark)?,
            None => rendered,
        };
        Ok(Prompt { rendered, escapes })
    }

    fn render_variables(&self, variables: Vec<(String, Value)>, now_s: u64) -> Result<String, Refusal> {
        let strftime = move |format: &str| calendar::strftime(format, now_s);
        let named = self
            .named_tokens
            .iter()
            .map(|(name, token)| (name.clone(), Value::from(token.as_str())));
        let given = [
            ("tools".to_owned(), Value::from(())),
            ("documents".to_owned(), Value::from(())),
            ("strftime_now".to_owned(), Value::from_function(strftime)),
        ];
        // The later ones of equal names count.
        let variables = Value::from_pairs(named.chain(given).chain(variables));
        let template = self.environment.get_template(NAME).map_err(Refusal::new)?;
        template.render(variables).map_err(Refusal::new)
    }

    /// Some templates want content as a string, others as a list of parts. Tries a message both ways and looks where its text
    /// comes out.
    fn probe_content_form(&self) -> ContentForm {
        const PROBE: &str = "content probe";
        let comes_out = |form: ContentForm| {
            let variables = Conversation::probe(conversation::content(PROBE.to_owned(), form));
            self.render_variables(variables, 0)
                .is_ok_and(|text| text.contains(PROBE))
        };
        if !comes_out(ContentForm::Text) && comes_out(ContentForm::Parts) {
            ContentForm::Parts
        } else {
            ContentForm::Text
        }
    }

    /// The variable that the template reads the level of reasoning from, if it reads one.
    fn effort_variable(&self) -> Option<&'static str> {
        let template = self.environment.get_template(NAME).ok()?;
        let read = template.undeclared_variables(false);
        EFFORT_VARIABLES.into_iter().find(|name| read.contains(*name))
    }

    /// Whether a medium in a message comes out as exactly one `placeholder`.
    pub(crate) fn writes_medium(&self, kind: MediumKind, placeholder: &str) -> bool {
        let variables = Conversation::probe(serde_json::json!([conversation::medium(kind)]));
        self.render_variables(variables, 0)
            .is_ok_and(|text| text.matches(placeholder).count() == 1)
    }

    /// Whether the template writes `text` somewhere.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.environment
            .get_template(NAME)
            .is_ok_and(|template| template.source().contains(text))
    }
}

/// Why nothing was rendered.
struct Refusal {
    param: &'static str,
    what: &'static str,
    reason: String,
}

impl Refusal {
    fn new(error: minijinja::Error) -> Self {
        let (what, reason) = match environment::raised(&error) {
            Some(message) => ("refuses this conversation", message.to_owned()),
            None if error.kind() == minijinja::ErrorKind::OutOfFuel => {
                ("gives up on this conversation", "it takes too many steps".to_owned())
            }
            None => ("cannot render this conversation", error.to_string()),
        };
        Self {
            param: "messages",
            what,
            reason,
        }
    }
}

/// What stands before the mark. The mark is followed by a blank; a template that trims the content drops that blank, and then
/// the content's own blanks have to go too.
fn before_mark(rendered: &str, mark: char) -> Result<String, RequestError> {
    let missing = || {
        RequestError::invalid(
            "messages",
            "the model's chat template does not show the message to continue",
        )
    };
    let (before, after) = rendered.rsplit_once(mark).ok_or_else(missing)?;
    let before = if after.starts_with(' ') {
        before
    } else {
        before.trim_end()
    };
    Ok(before.to_owned())
}

#[cfg(test)]
mod tests;
