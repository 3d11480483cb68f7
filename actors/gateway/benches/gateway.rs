//! CPU of the gateway alone: HTTP in, server-sent events out, in front of a frontend that costs nearly nothing.
//!
//! `cargo bench -p cluster-gateway`. Clients run on threads of their own and are not counted: the figures are the CPU
//! time of the server's one thread (`/proc`, so Linux only), telemetry included. Every token is a frame and a write of
//! its own, which is the costly case.
//!
//! Measured on a busy two-core virtual machine: 110-140 µs per request of 16 tokens, 5.2-6.8 µs per further token. Nearly
//! nine tenths of a token are the `writev` of its chunk; when frames come faster than they are written they leave
//! together, and a token costs 0.7 µs.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use cluster_gateway::{Environment, Frontend, Gateway, ModelCard, Readiness, Settings, TextStream, serve};
use cluster_messages::{Channel, FinishReason, RequestError, RequestId, TextFrame, TextRequest, Usage};
use cluster_telemetry::Metrics;
use futures::Stream;
use tokio::net::TcpListener;

const SERVER_THREAD: &str = "server";
const CLIENTS: usize = 32;
const TIME: Duration = Duration::from_secs(3);

fn main() {
    let _telemetry = cluster_telemetry::init(cluster_telemetry::Settings {
        filter: "warn".into(),
        ..Default::default()
    });
    let address = start_server();
    let short = measure(address, 16);
    let long = measure(address, 256);
    for (tokens, figures) in [(16, &short), (256, &long)] {
        println!(
            "{tokens:3} tokens: {:7.1} µs CPU per request ({:.0} % of it in the kernel), {:6.0} requests/s",
            figures.cpu_us,
            figures.kernel_share * 100.0,
            figures.per_second
        );
    }
    let per_token_us = (long.cpu_us - short.cpu_us) / (256.0 - 16.0);
    println!("per further streamed token: {per_token_us:.2} µs CPU");
}

struct Figures {
    cpu_us: f64,
    kernel_share: f64,
    per_second: f64,
}

fn measure(address: SocketAddr, tokens: u32) -> Figures {
    run(address, tokens, Duration::from_millis(500));
    let (before, started) = (Cpu::of_server(), Instant::now());
    let requests = run(address, tokens, TIME) as f64;
    let after = Cpu::of_server();
    Figures {
        cpu_us: (after.ns - before.ns) as f64 / requests / 1000.0,
        kernel_share: after.kernel_share(before),
        per_second: requests / started.elapsed().as_secs_f64(),
    }
}

/// Requests answered by all clients within `time`.
fn run(address: SocketAddr, tokens: u32, time: Duration) -> u64 {
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| thread::spawn(move || client(address, tokens, time)))
        .collect();
    clients
        .into_iter()
        .map(|client| client.join().expect("no client panics"))
        .sum()
}

fn client(address: SocketAddr, tokens: u32, time: Duration) -> u64 {
    let prompt = "word ".repeat(100);
    let body = format!(
        r#"{{"model":"tiny","messages":[{{"role":"user","content":"{prompt}"}}],"max_tokens":{tokens},"temperature":0,"stream":true,"stream_options":{{"include_usage":true}}}}"#
    );
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(address).expect("the server listens");
    let mut buffer = vec![0; 256 << 10];
    let (started, mut answered) = (Instant::now(), 0);
    while started.elapsed() < time {
        connection.write_all(request.as_bytes()).expect("the server reads");
        let mut filled = 0;
        while !buffer[..filled].ends_with(b"\r\n0\r\n\r\n") {
            let read = connection.read(&mut buffer[filled..]).expect("the server answers");
            assert!(read > 0, "the server closed the connection");
            filled += read;
        }
        answered += 1;
    }
    answered
}

/// What the server's threads have run.
#[derive(Clone, Copy)]
struct Cpu {
    ns: u64,
    user_ticks: u64,
    kernel_ticks: u64,
}

impl Cpu {
    fn of_server() -> Self {
        let mut sum = Self {
            ns: 0,
            user_ticks: 0,
            kernel_ticks: 0,
        };
        for task in fs::read_dir("/proc/self/task").expect("this is Linux").flatten() {
            let figures = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            if figures("comm").trim() != SERVER_THREAD {
                continue;
            }
            let number =
                |text: &str, position: usize| text.split(' ').nth(position).and_then(|word| word.parse::<u64>().ok());
            sum.ns += number(&figures("schedstat"), 0).unwrap_or(0);
            sum.user_ticks += number(&figures("stat"), 13).unwrap_or(0);
            sum.kernel_ticks += number(&figures("stat"), 14).unwrap_or(0);
        }
        sum
    }

    /// The part of the time since `earlier` that was spent in system calls.
    fn kernel_share(self, earlier: Self) -> f64 {
        let kernel = (self.kernel_ticks - earlier.kernel_ticks) as f64;
        kernel / (kernel + (self.user_ticks - earlier.user_ticks) as f64)
    }
}

fn start_server() -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    let body = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime starts").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            let address = listener.local_addr().expect("it is bound");
            tell.send(address).expect("main waits for it");
            let gateway = Gateway::new(
                Settings::default(),
                Arc::new(Counter),
                Metrics::new(),
                Arc::<Ids>::default(),
            );
            serve(listener, gateway, std::future::pending()).await;
        });
    };
    let server = thread::Builder::new().name(SERVER_THREAD.into());
    server.spawn(body).expect("a thread starts");
    told.recv().expect("the server says where it listens")
}

/// Says "token " as often as it may.
struct Counter;

#[async_trait]
impl Frontend for Counter {
    async fn generate(&self, request: TextRequest) -> Result<TextStream, RequestError> {
        Ok(TextStream::new(Counting {
            tokens_max: request.max_tokens.unwrap_or(16),
            step: 0,
            waits: 0,
        }))
    }

    fn models(&self) -> Arc<[ModelCard]> {
        Arc::new([ModelCard {
            id: "tiny".into(),
            created: 0,
            owned_by: "bench".into(),
            context_max: 4096,
            emulated_by: None,
            fingerprint: None,
        }])
    }

    fn ready(&self) -> Readiness {
        Readiness::Ready
    }
}

/// One frame per wake-up, so that no two leave in one write: the gateway asks again after a frame, and so does the
/// connection above it, before it writes.
struct Counting {
    tokens_max: u32,
    step: u32,
    waits: u8,
}

impl Stream for Counting {
    type Item = Result<TextFrame, RequestError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.waits > 0 && self.step <= self.tokens_max {
            self.waits -= 1;
            if self.waits == 0 {
                context.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        self.waits = 2;
        self.step += 1;
        Poll::Ready(Some(Ok(match self.step {
            step if step <= self.tokens_max => TextFrame::Delta {
                channel: Channel::Content,
                choice: 0,
                text: "token ".into(),
                logprobs: Vec::new(),
                tokens: step,
            },
            step if step == self.tokens_max + 1 => TextFrame::Finished {
                choice: 0,
                reason: FinishReason::Length,
            },
            _ => TextFrame::Usage(Usage::default()),
        })))
    }
}

#[derive(Default)]
struct Ids(AtomicU64);

impl Environment for Ids {
    fn cluster_ms(&self) -> u64 {
        0
    }

    fn unix_seconds(&self) -> u64 {
        1_700_000_000
    }

    fn request_id(&self) -> RequestId {
        RequestId(u128::from(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}
