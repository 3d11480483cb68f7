//! The listener: accepts, bounds, and on shutdown drains.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use futures::FutureExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{JoinError, JoinSet},
    time::{sleep, timeout},
};

use crate::{gateway::Gateway, stall::StallGuard};

/// Bounds a request's head and what is read ahead and written behind per connection.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Time for the last error events to leave once the grace time is over.
const FAREWELL: Duration = Duration::from_secs(1);
/// Accepting fails while the process has no file descriptors left; trying at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a drained server ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drained {
    /// Every request came to its own end.
    Whole,
    /// The grace time was over first, and what still ran was told so.
    Cut,
}

/// Serves until `shutdown`, then drains: no new connections, no new requests on open ones, and running requests may
/// finish within the grace time that `shutdown` yields, or until [`Gateway::cut`].
pub async fn serve(listener: TcpListener, gateway: Arc<Gateway>, shutdown: impl Future<Output = Duration>) -> Drained {
    let mut shutdown = pin!(shutdown.fuse());
    let places = Arc::new(Semaphore::new(gateway.settings().connections_max));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let grace = loop {
        let accepted = async {
            let place = places
                .clone()
                .acquire_owned()
                .await
                .expect("the semaphore is never closed");
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            grace = &mut shutdown => break grace,
            Some(ended) = connections.join_next() => {
                report(ended);
                continue;
            }
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = connection(stream, &gateway, &graceful);
                connections.spawn(connection.map(|()| drop(place)));
            }
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    };
    drop(listener);
    drain(&gateway, grace, graceful, connections).await
}

/// A panic ends its own connection and no other.
fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "connection task panicked");
    }
}

async fn drain(
    gateway: &Gateway,
    grace: Duration,
    graceful: GracefulShutdown,
    mut connections: JoinSet<()>,
) -> Drained {
    gateway.start_draining();
    let mut ended = pin!(graceful.shutdown());
    let is_whole = tokio::select! {
        biased;
        () = &mut ended => true,
        () = gateway.until_cut() => false,
        () = sleep(grace) => false,
    };
    // A connection that is merely kept open has lost nothing.
    let drained = if is_whole || gateway.is_idle() {
        Drained::Whole
    } else {
        Drained::Cut
    };
    if !is_whole {
        gateway.cut();
        // Who does not even read its error event loses the connection.
        let _ = timeout(FAREWELL, &mut ended).await;
    }
    connections.shutdown().await;
    drained
}

fn connection(
    stream: TcpStream,
    gateway: &Arc<Gateway>,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + 'static {
    let settings = gateway.settings();
    // Tokens are small and wanted at once.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "small packets may be delayed");
    }
    let stream = TokioIo::new(StallGuard::new(stream, settings.stall_time));
    let gateway_of_connection = gateway.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let gateway = gateway_of_connection.clone();
        async move { Ok::<_, Infallible>(gateway.handle(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_time)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(stream, service);
    graceful.watch(connection).map(|ended| {
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended early");
        }
    })
}
