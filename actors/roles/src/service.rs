//! The door of a role that serves request streams: takes a credit, or refuses at once, and runs one task per request.
//!
//! The tasks belong to the service and the service to its actor: when the actor's state is dropped (a crash, a kill, a
//! stop) every task ends at its next await, its sink is dropped, and its reader hears that the request was lost.

use std::{future::Future, sync::Arc};

use cluster_fabric::{Credit, Credits, Incoming, Request, Responder, Sink, StreamProtocol, Streams, Wire};
use cluster_messages::{ErrorKind, InstanceRef, RequestError};
use tokio::task::{AbortHandle, JoinSet};

#[cfg(test)]
mod tests;

/// Requests that may wait to be looked at. Looking takes microseconds, so this bounds bursts, not the queue.
const UNSEEN_MAX: usize = 1024;

/// A running service. Dropping it ends all its requests.
pub(crate) struct Service {
    acceptor: AbortHandle,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

impl Service {
    /// Serves `P` for `instance` with `handler`, for as many requests at once as there are `credits`.
    pub(crate) fn start<P, H, F>(
        streams: &Streams,
        instance: InstanceRef,
        credits: Credits,
        handler: H,
    ) -> Result<Self, String>
    where
        P: StreamProtocol + Send,
        H: Fn(Request<P>) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let incoming = streams
            .serve::<P>(instance, UNSEEN_MAX)
            .map_err(|error| error.to_string())?;
        let acceptor = tokio::spawn(accept(incoming, credits, Arc::new(handler), instance)).abort_handle();
        Ok(Self { acceptor })
    }
}

async fn accept<P, H, F>(mut incoming: Incoming<P>, credits: Credits, handler: Arc<H>, instance: InstanceRef)
where
    P: StreamProtocol + Send,
    H: Fn(Request<P>) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            request = incoming.next() => match request {
                None => break,
                Some(request) => match credits.try_take() {
                    Err(refusal) => request.respond.refuse(refusal),
                    Ok(credit) => { tasks.spawn(run(handler(request), credit)); }
                },
            },
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    tracing::error!(%instance, %error, "a request's task panicked; the request is lost, others are not");
                }
            }
        }
    }
    // Replaced or closed: those who are inside finish.
    while tasks.join_next().await.is_some() {}
}

async fn run(work: impl Future<Output = ()>, credit: Credit) {
    work.await;
    drop(credit);
}

/// Does what has to be done before a request can be accepted, then accepts or refuses it. An asker that gives up meanwhile
/// ends `work` at once, and with it all that was taken for the request: nobody would hear of a refusal either.
pub(crate) async fn admit<F: Wire, T>(
    mut respond: Responder<F>,
    frames_max: usize,
    work: impl Future<Output = Result<T, RequestError>>,
) -> Result<(T, Sink<F>), RequestError> {
    let done = tokio::select! {
        biased;
        () = respond.abandoned() => Err(RequestError::new(ErrorKind::Cancelled, "the caller went away")),
        done = work => done,
    };
    match done {
        Ok(done) => Ok((done, respond.accept(frames_max))),
        Err(error) => {
            respond.refuse(error.clone());
            Err(error)
        }
    }
}
