//! What was said so far, and the next answer while it arrives.

use std::{
    future::pending,
    io::{self, IsTerminal, Write},
};

use tokio::signal::ctrl_c;

use crate::{
    failure::Failure,
    openai::{ChatRequest, ChatStream, Message, OpenAi},
};

/// What Ctrl-C ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Interrupt {
    /// The answer; what has arrived of it stays.
    Answer,
    /// The process, as usual.
    Process,
}

pub(super) struct Conversation {
    api: OpenAi,
    model: String,
    system: Option<String>,
    said: Vec<Message>,
    pub(super) temperature: Option<f32>,
    pub(super) max_tokens: Option<u32>,
    pub(super) seed: Option<u64>,
}

impl Conversation {
    pub(super) fn new(api: OpenAi, model: String, system: Option<String>) -> Self {
        Self {
            api,
            model,
            system,
            said: Vec::new(),
            temperature: None,
            max_tokens: None,
            seed: None,
        }
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Forgets all but the system prompt.
    pub(super) fn forget(&mut self) {
        self.said.clear();
    }

    /// Writes the answer to `prompt` as it arrives and remembers both. A question that got no answer is forgotten.
    pub(super) async fn answer(
        &mut self,
        prompt: String,
        interrupt: Interrupt,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        if prompt.is_empty() {
            return Err(Failure::input("the question is empty"));
        }
        self.said.push(message("user", prompt));
        let mut answer = String::new();
        let ended = self.stream(&mut answer, interrupt, out).await;
        if !answer.is_empty() {
            writeln!(out)?;
        }
        match &ended {
            Ok(()) => self.said.push(message("assistant", answer)),
            Err(_) => drop(self.said.pop()),
        }
        ended
    }

    async fn stream(&self, answer: &mut String, interrupt: Interrupt, out: &mut dyn Write) -> Result<(), Failure> {
        let request = self.request();
        let arriving = async {
            let mut stream = self.api.chat(&request).await?;
            write_pieces(&mut stream, answer, out).await
        };
        let interrupted = async {
            match interrupt {
                Interrupt::Answer => ctrl_c().await,
                Interrupt::Process => pending().await,
            }
        };
        tokio::select! {
            done = arriving => done,
            // Leaving drops the stream, and that cancels the request.
            _ = interrupted => Ok(()),
        }
    }

    fn request(&self) -> ChatRequest {
        let system = self.system.iter().map(|text| message("system", text.clone()));
        ChatRequest {
            model: self.model.clone(),
            messages: system.chain(self.said.iter().cloned()).collect(),
            stream: true,
            temperature: self.temperature,
            max_tokens: self.max_tokens,
            seed: self.seed,
        }
    }
}

async fn write_pieces(stream: &mut ChatStream, answer: &mut String, out: &mut dyn Write) -> Result<(), Failure> {
    let to_terminal = io::stdout().is_terminal();
    while let Some(piece) = stream.next().await? {
        answer.push_str(&piece.text);
        if to_terminal {
            out.write_all(printable(&piece.text).as_bytes())?;
        } else {
            out.write_all(piece.text.as_bytes())?;
        }
        out.flush()?;
        if to_terminal && piece.finish_reason.as_deref() == Some("length") {
            out.write_all(b" [cut: token limit]")?;
        }
    }
    Ok(())
}

/// The text without control characters: what a model says must not move the cursor or rename the window.
fn printable(text: &str) -> String {
    text.chars()
        .filter(|character| !character.is_control() || matches!(character, '\n' | '\t'))
        .collect()
}

fn message(role: &str, content: String) -> Message {
    Message {
        role: role.into(),
        content,
    }
}

#[cfg(test)]
mod tests;
