//! The frames of one answer, checked: whatever the frontend does, the client sees every choice begin and end in order,
//! and a stream that breaks off is an error, never an end.

use std::{
    future::{Future as _, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
};

use cluster_messages::{ErrorKind, TextFrame};
use futures::Stream;

use crate::{
    error::{ApiError, Fault},
    frontend::TextStream,
    patience::Patience,
};

pub(crate) struct Frames {
    stream: TextStream,
    patience: Patience,
    /// Per choice: whether it ended.
    finished: Vec<bool>,
    /// Per choice: how many calls have begun.
    calls: Vec<u32>,
    is_over: bool,
}

impl Frames {
    pub(crate) fn new(stream: TextStream, patience: Patience, choices: u32) -> Self {
        Self {
            stream,
            patience,
            finished: vec![false; choices as usize],
            calls: vec![0; choices as usize],
            is_over: false,
        }
    }

    /// The next frame; the end comes right after `Usage`. An error is the last item.
    pub(crate) async fn next(&mut self) -> Option<Result<TextFrame, ApiError>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<TextFrame, ApiError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let item = match Pin::new(&mut self.stream).poll_next(context) {
            Poll::Ready(Some(Ok(frame))) => self.check(frame),
            Poll::Ready(Some(Err(error))) => Err(error.into()),
            Poll::Ready(None) => Err(fault(ErrorKind::Lost, "the answer broke off")),
            Poll::Pending => Err(ready!(Pin::new(&mut self.patience).poll(context))),
        };
        self.is_over = !matches!(&item, Ok(frame) if !matches!(frame, TextFrame::Usage(_)));
        Poll::Ready(Some(item))
    }

    fn check(&mut self, frame: TextFrame) -> Result<TextFrame, ApiError> {
        match &frame {
            TextFrame::Admitted { .. } => {}
            TextFrame::Delta { choice, .. } => self.check_open(*choice)?,
            TextFrame::ToolCall {
                choice, index, head, ..
            } => {
                self.check_open(*choice)?;
                self.check_call(*choice, *index, head.is_some())?;
            }
            TextFrame::Finished { choice, .. } => {
                self.check_open(*choice)?;
                self.finished[*choice as usize] = true;
            }
            TextFrame::Usage(_) if self.finished.contains(&false) => {
                return Err(fault(ErrorKind::Internal, "the answer ended with a choice unfinished"));
            }
            TextFrame::Usage(_) => {}
        }
        Ok(frame)
    }

    /// Calls come one after the other, and each begins with its head.
    fn check_call(&mut self, choice: u32, index: u32, begins: bool) -> Result<(), ApiError> {
        let calls = &mut self.calls[choice as usize];
        *calls += u32::from(begins);
        if index.checked_add(1) == Some(*calls) {
            return Ok(());
        }
        Err(fault(ErrorKind::Internal, "the calls of a choice came out of order"))
    }

    fn check_open(&self, choice: u32) -> Result<(), ApiError> {
        match self.finished.get(choice as usize) {
            Some(false) => Ok(()),
            Some(true) => Err(fault(ErrorKind::Internal, "a choice went on after its end")),
            None => Err(fault(ErrorKind::Internal, "a choice came that was not asked for")),
        }
    }
}

fn fault(kind: ErrorKind, message: &str) -> ApiError {
    ApiError::new(Fault::Request(kind), message)
}
