//! A streamed answer: frames in, server-sent events out.
//!
//! Frames that are ready together leave together, in one write. A failure is one error event and the end; a whole answer
//! ends with `[DONE]`. Dropping the stream (the client left) drops the frames, which cancels the request.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use cluster_messages::TextFrame;
use tokio::time::{Instant, Sleep};

use crate::{
    account::Account,
    chunks::{Chunks, ToolCallDelta},
    error::ApiError,
    frames::Frames,
};

/// Enough for one write; a client that reads slowly is not served from an ever larger buffer.
const WRITE_BYTES: usize = 16 << 10;

pub(crate) struct EventStream {
    frames: Frames,
    chunks: Chunks,
    account: Account,
    include_usage: bool,
    keep_alive: Duration,
    silence: Pin<Box<Sleep>>,
    is_over: bool,
}

impl EventStream {
    /// Waits for the first text, but no longer than `keep_alive`: a request that fails before it has said anything gets
    /// a status instead of an event.
    pub(crate) async fn open(
        mut frames: Frames,
        chunks: Chunks,
        mut account: Account,
        include_usage: bool,
        keep_alive: Duration,
    ) -> Result<Self, ApiError> {
        let first = match tokio::time::timeout(keep_alive, first_frame(&mut frames, &mut account)).await {
            Ok(Err(error)) => {
                account.failed(&error);
                return Err(error);
            }
            Ok(Ok(frame)) => frame,
            Err(_) => None,
        };
        account.streams();
        let mut stream = Self {
            frames,
            chunks,
            account,
            include_usage,
            keep_alive,
            silence: Box::pin(tokio::time::sleep(keep_alive)),
            is_over: false,
        };
        stream.chunks.begin();
        if let Some(frame) = first {
            stream.write(frame, Instant::now());
        }
        Ok(stream)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over && self.chunks.len() == 0
    }

    /// The next bytes for the client; none at the end.
    pub(crate) fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.is_over {
            self.fill(context);
        }
        if self.chunks.len() > 0 {
            self.silence.as_mut().reset(Instant::now() + self.keep_alive);
            return Poll::Ready(Some(self.chunks.take()));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        ready!(self.silence.as_mut().poll(context));
        self.chunks.keep_alive();
        self.poll_bytes(context)
    }

    /// Writes what is ready.
    fn fill(&mut self, context: &mut Context<'_>) {
        let now = Instant::now();
        while !self.is_over && self.chunks.len() < WRITE_BYTES {
            match self.frames.poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(frame))) => self.write(frame, now),
                Poll::Ready(Some(Err(error))) => {
                    self.chunks.error(&error);
                    self.account.failed(&error);
                    self.is_over = true;
                }
                Poll::Ready(None) => {
                    self.chunks.done();
                    self.account.succeeded();
                    self.is_over = true;
                }
            }
        }
    }

    fn write(&mut self, frame: TextFrame, now: Instant) {
        self.account.frame(&frame, now);
        match frame {
            TextFrame::Admitted { .. } => {}
            TextFrame::Delta {
                choice,
                channel,
                text,
                logprobs,
                ..
            } => self.chunks.delta(choice, channel, &text, &logprobs),
            TextFrame::ToolCall {
                choice,
                index,
                head,
                arguments,
                logprobs,
                ..
            } => {
                let call = ToolCallDelta::new(index, head.as_ref(), &arguments);
                self.chunks.tool_call(choice, &call, &logprobs);
            }
            TextFrame::Finished { choice, reason } => self.chunks.finish(choice, reason),
            TextFrame::Usage(usage) if self.include_usage => self.chunks.usage(&usage),
            TextFrame::Usage(_) => {}
        }
    }
}

/// The first frame that says something.
async fn first_frame(frames: &mut Frames, account: &mut Account) -> Result<Option<TextFrame>, ApiError> {
    loop {
        match frames.next().await.transpose()? {
            Some(frame @ TextFrame::Admitted { .. }) => account.frame(&frame, Instant::now()),
            frame => return Ok(frame),
        }
    }
}
