//! `cluster chat`: a conversation with a served model over its OpenAI-compatible endpoint.

mod conversation;
mod keyboard;

use std::io::{self, IsTerminal, Write};

use clap::Args;
use tokio::signal::ctrl_c;

use self::{
    conversation::{Conversation, Interrupt},
    keyboard::Keyboard,
};
use crate::{environment::Environment, failure::Failure, openai::OpenAi, runs::Runs};

/// Talk to a served model.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cluster chat                                   a conversation; Ctrl-C stops an answer, Ctrl-D leaves
  cluster chat 'Why is the sky blue?'            one answer
  cluster chat --system 'Answer in French.' < question.txt

In a conversation, /new forgets what was said. A key in $CLUSTER_API_KEY is sent as bearer token.")]
pub(crate) struct Arguments {
    /// One question; without it a conversation, or all of standard input when that is no terminal
    prompt: Option<String>,
    /// Which model; the first one served if not given
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where the endpoint is; the cluster of this machine, or else http://127.0.0.1:8000
    #[arg(long)]
    url: Option<String>,
    /// The system prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// How freely tokens are chosen; 0 always takes the best, 1 is the model's own distribution
    #[arg(long, value_name = "NUMBER", default_value_t = 0.3)]
    temperature: f32,
    /// The most tokens of one answer
    #[arg(long, value_name = "COUNT")]
    max_tokens: Option<u32>,
    /// Makes sampled answers repeatable
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

const URL_ELSE: &str = "http://127.0.0.1:8000";

pub(crate) async fn run(arguments: Arguments, environment: &Environment, out: &mut dyn Write) -> Result<(), Failure> {
    let api = OpenAi::new(&url(&arguments, environment), environment.api_key.clone())?;
    let model = match arguments.model {
        Some(model) => model,
        None => first_model(&api).await?,
    };
    let mut conversation = Conversation::new(api, model, arguments.system);
    conversation.temperature = Some(arguments.temperature);
    conversation.max_tokens = arguments.max_tokens;
    conversation.seed = arguments.seed;

    if let Some(prompt) = arguments.prompt {
        return conversation.answer(prompt, Interrupt::Process, out).await;
    }
    if io::stdin().is_terminal() {
        return talk(conversation, out).await;
    }
    let prompt = io::read_to_string(io::stdin())
        .map_err(|error| Failure::input(format!("cannot read standard input: {error}")))?;
    conversation.answer(prompt.trim().into(), Interrupt::Process, out).await
}

/// As told, or the endpoint of the cluster that runs here if it is the only one.
fn url(arguments: &Arguments, environment: &Environment) -> String {
    if let Some(url) = &arguments.url {
        return url.clone();
    }
    match Runs::new(&environment.state).list().as_slice() {
        [only] => only.endpoint.clone(),
        _ => URL_ELSE.into(),
    }
}

async fn first_model(api: &OpenAi) -> Result<String, Failure> {
    let models = api.models().await?;
    models
        .into_iter()
        .next()
        .ok_or_else(|| Failure::failed("the cluster serves no model"))
}

async fn talk(mut conversation: Conversation, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(
        out,
        "{}: Ctrl-C stops an answer, Ctrl-D leaves, /new forgets",
        conversation.model()
    )?;
    let mut keyboard = Keyboard::start();
    loop {
        write!(out, "> ")?;
        out.flush()?;
        let line = tokio::select! {
            line = keyboard.line() => line,
            _ = ctrl_c() => {
                writeln!(out, "\n(Ctrl-D leaves)")?;
                continue;
            }
        };
        match line.as_deref().map(str::trim) {
            None => return Ok(writeln!(out)?),
            Some("") => {}
            Some("/new") => conversation.forget(),
            Some(prompt) => match conversation.answer(prompt.into(), Interrupt::Answer, out).await {
                Err(Failure::ReaderGone) => return Err(Failure::ReaderGone),
                // The next question may fare better.
                Err(failure) => writeln!(io::stderr(), "{failure}")?,
                Ok(()) => {}
            },
        }
    }
}
