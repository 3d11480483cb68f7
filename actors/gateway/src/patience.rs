//! Why waiting for a frame ends without one: the request's time is up, or the server's is.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use cluster_messages::ErrorKind;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::error::{ApiError, Fault};

pub(crate) struct Patience {
    time: Duration,
    deadline: Pin<Box<Sleep>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Patience {
    /// Patience for `time` from now, or until `cut`.
    pub(crate) fn new(time: Duration, cut: &CancellationToken) -> Self {
        Self {
            time,
            deadline: Box::pin(tokio::time::sleep(time)),
            cut: Box::pin(cut.clone().cancelled_owned()),
        }
    }
}

impl Future for Patience {
    type Output = ApiError;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ApiError> {
        if self.cut.as_mut().poll(context).is_ready() {
            let fault = Fault::Request(ErrorKind::Unavailable);
            return Poll::Ready(ApiError::new(fault, "the server is shutting down"));
        }
        self.deadline.as_mut().poll(context).map(|()| {
            let message = format!("the answer took longer than {} s", self.time.as_secs());
            ApiError::new(Fault::Request(ErrorKind::Deadline), message)
        })
    }
}
