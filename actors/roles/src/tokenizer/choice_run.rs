//! One choice on its way from the worker to the client, over as many instances as it takes.

use cluster_messages::{
    Channel, FinishReason, GenerateFrame, RequestError, TextFrame, TextInput, TokenLogprobs, Usage,
};
use cluster_telemetry::names::events;

use super::{
    Out,
    attempt::{Attempt, Errand, Reached, Tries},
    choice::{Choice, text_logprob},
    closed, send,
};
use crate::failure;

pub(super) struct ChoiceRun<'a> {
    errand: Errand<'a>,
    out: &'a Out,
    tries: Tries,
    has_echo: bool,
    cached_tokens: Option<u32>,
}

impl<'a> ChoiceRun<'a> {
    pub(super) fn new(errand: Errand<'a>, out: &'a Out, tries: Tries) -> Self {
        Self {
            errand,
            out,
            tries,
            has_echo: false,
            cached_tokens: None,
        }
    }

    pub(super) async fn run_to_end(mut self, mut attempt: Attempt) -> Result<Usage, RequestError> {
        let Errand {
            shared,
            prepared,
            index,
            ..
        } = self.errand;
        let tokenizer = &shared.model.tokenizer;
        let mut choice = Choice::new(index, tokenizer, prepared);
        if prepared.request.echo && prepared.request.logprobs.is_none() {
            self.send_echo(Vec::new()).await?;
        }
        loop {
            let before = (choice.tokens().len(), self.has_echo);
            let Err(error) = self.follow(&mut choice, &mut attempt).await else {
                break;
            };
            let has_progressed = (choice.tokens().len(), self.has_echo) != before;
            if error.kind.is_instance_fault()
                && let Some(reason) = prepared.end_of(choice.tokens())
            {
                // Only the word that it is over was lost.
                self.send_all(choice.finish(reason, false)).await?;
                break;
            }
            attempt = self.move_on(&choice, attempt, error, has_progressed).await?;
        }
        let is_wanted = prepared.max_tokens > 0;
        Ok(Usage {
            completion_tokens: if is_wanted { choice.tokens().len() as u32 } else { 0 },
            cached_tokens: self.cached_tokens.unwrap_or(0),
            reasoning_tokens: choice.reasoning_tokens(),
            ..Usage::default()
        })
    }

    /// Relays one attempt's frames until the choice has ended.
    async fn follow(&mut self, choice: &mut Choice<'_>, attempt: &mut Attempt) -> Result<(), RequestError> {
        let is_wanted = self.errand.prepared.max_tokens > 0;
        while let Some(frame) = attempt.stream.next().await {
            match frame? {
                GenerateFrame::Started { cached_tokens, run } => {
                    attempt.started(run);
                    self.cached_tokens.get_or_insert(cached_tokens);
                }
                GenerateFrame::Prompt(entries) => self.send_echo(entries).await?,
                GenerateFrame::Tokens(_) if !is_wanted => {}
                GenerateFrame::Tokens(tokens) => {
                    let progress = choice.push(tokens);
                    self.send_all(progress.frames).await?;
                    if progress.stopped {
                        attempt.stream.stop();
                        return self.send_all(choice.finish(FinishReason::Stop, true)).await;
                    }
                }
                GenerateFrame::Finished { reason, .. } => {
                    // What ended the token that nobody wanted says nothing.
                    let reason = if is_wanted { reason } else { FinishReason::Length };
                    return self.send_all(choice.finish(reason, false)).await;
                }
            }
        }
        Err(failure::lost("the stream of tokens ended without a finish"))
    }

    /// Goes on elsewhere after `error`, if that makes sense.
    async fn move_on(
        &mut self,
        choice: &Choice<'_>,
        attempt: Attempt,
        error: RequestError,
        has_progressed: bool,
    ) -> Result<Attempt, RequestError> {
        let Errand { shared, header, .. } = self.errand;
        let now_ms = shared.host.fabric.clock.now();
        if !self.tries.another_after(&attempt, &error, has_progressed, now_ms) {
            return Err(error);
        }
        tracing::info!(request = %header.request, from = %attempt.decode, %error, "{}", events::MIGRATED);
        shared.host.metrics.request_migrated();
        // The router hears that the old place is free before it is asked for a new one.
        drop(attempt);
        let reached = Reached {
            tokens: choice.tokens(),
            has_echo: self.has_echo,
        };
        self.tries.open(self.errand, reached).await
    }

    /// The prompt as the first text of the answer, with log-probabilities if there are any.
    async fn send_echo(&mut self, entries: Vec<Option<TokenLogprobs>>) -> Result<(), RequestError> {
        let Errand {
            shared,
            prepared,
            index,
            ..
        } = self.errand;
        let tokenizer = &shared.model.tokenizer;
        let tokens = &prepared.prompt;
        let logprobs = tokens
            .iter()
            .zip(&entries)
            .map(|(id, entry)| text_logprob(tokenizer, *id, entry.as_ref()));
        let text = match &prepared.request.input {
            TextInput::Text(text) => text.clone(),
            _ => {
                let mut detokenizer = tokenizer.detokenizer(true);
                let text = detokenizer.push(tokens);
                text + &detokenizer.finish()
            }
        };
        let delta = TextFrame::Delta {
            channel: Channel::Content,
            choice: index,
            text,
            logprobs: logprobs.collect(),
            tokens: 0,
        };
        self.send_all([delta]).await?;
        self.has_echo = true;
        Ok(())
    }

    async fn send_all(&self, frames: impl IntoIterator<Item = TextFrame>) -> Result<(), RequestError> {
        for frame in frames {
            let sent = send(self.out, frame).await;
            sent.map_err(|_| closed(self.errand.shared, self.errand.header))?;
        }
        Ok(())
    }
}
