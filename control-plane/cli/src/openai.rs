//! A small client of the OpenAI-compatible API: the models, and a chat as a stream. One connection per request; dropping the
//! stream closes it, and that cancels the request at the server.

mod chunk;

use std::collections::VecDeque;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, Uri,
    body::Incoming,
    client::conn::http1,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, task::JoinHandle};

pub(crate) use self::chunk::Piece;
use crate::{failure::Failure, sse};

/// Answers that are not streamed are small; more is not read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Where the API is.
#[derive(Clone, Debug)]
pub(crate) struct OpenAi {
    /// As given, for messages.
    url: String,
    authority: String,
    /// What stands before `/v1`.
    prefix: String,
    api_key: Option<String>,
}

/// What is asked.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChatRequest {
    pub(crate) model: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u64>,
}

/// One turn of a conversation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) content: String,
}

impl OpenAi {
    /// The API at `url`, with or without `/v1`.
    pub(crate) fn new(url: &str, api_key: Option<String>) -> Result<Self, Failure> {
        let wrong = |what: &str| Failure::input(format!("'{url}' {what}\n  help: write it as http://127.0.0.1:8000"));
        let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong("does not start with http://, which is all this client speaks"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
        let path = uri.path().trim_end_matches('/');
        Ok(Self {
            url: url.into(),
            authority: authority.to_string(),
            prefix: path.strip_suffix("/v1").unwrap_or(path).into(),
            api_key,
        })
    }

    /// The served names.
    pub(crate) async fn models(&self) -> Result<Vec<String>, Failure> {
        let (response, connection) = self.send(Method::GET, "/v1/models", Bytes::new()).await?;
        let body = read_whole(response).await?;
        drop(connection);
        chunk::model_names(&body)
    }

    /// The answer to a conversation, piece by piece.
    pub(crate) async fn chat(&self, request: &ChatRequest) -> Result<ChatStream, Failure> {
        let body = serde_json::to_vec(request).expect("a request has string keys");
        let (response, connection) = self.send(Method::POST, "/v1/chat/completions", body.into()).await?;
        Ok(ChatStream {
            body: response.into_body(),
            parser: sse::Parser::default(),
            ready: VecDeque::new(),
            _connection: connection,
        })
    }

    /// Sends a request. A status other than success is a failure, told in the server's words.
    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<(Response<Incoming>, Connection), Failure> {
        let (mut sender, connection) = self.connect().await?;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.api_key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| Failure::input(format!("the request cannot be sent: {error}")))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        if !status.is_success() {
            let body = read_whole(response).await?;
            return Err(Failure::failed(chunk::error_message(status, &body)));
        }
        Ok((response, connection))
    }

    async fn connect(&self) -> Result<(http1::SendRequest<Full<Bytes>>, Connection), Failure> {
        let address = match self.authority.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => self.authority.clone(),
            _ => format!("{}:80", self.authority),
        };
        let stream = TcpStream::connect(&address).await.map_err(|error| {
            Failure::failed(format!(
                "nothing answers at {}: {error}\n  help: start a cluster with 'cluster up FILE', or name its address with --url",
                self.url
            ))
        })?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let driver = tokio::spawn(async move {
            // An error of the connection shows up where the body is read.
            let _ = connection.await;
        });
        Ok((sender, Connection(driver)))
    }
}

/// Moves the bytes of a connection; dropping it closes the socket.
#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer on its way.
#[derive(Debug)]
pub(crate) struct ChatStream {
    body: Incoming,
    parser: sse::Parser,
    ready: VecDeque<String>,
    _connection: Connection,
}

impl ChatStream {
    /// The next piece; none after the end. An answer that breaks off before its end is a failure.
    pub(crate) async fn next(&mut self) -> Result<Option<Piece>, Failure> {
        loop {
            match self.ready.pop_front() {
                Some(event) if event == "[DONE]" => return Ok(None),
                Some(event) => return chunk::piece(&event).map(Some),
                None => {}
            }
            let frame = match self.body.frame().await {
                Some(frame) => frame.map_err(broken)?,
                None => return Err(Failure::failed("the answer broke off: the connection ended before it")),
            };
            if let Some(bytes) = frame.data_ref() {
                self.ready.extend(self.parser.push(bytes));
            }
        }
    }
}

async fn read_whole(response: Response<Incoming>) -> Result<Bytes, Failure> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let collected = body.collect().await;
    Ok(collected
        .map_err(|error| Failure::failed(format!("the answer broke off: {error}")))?
        .to_bytes())
}

fn broken(error: hyper::Error) -> Failure {
    Failure::failed(format!("the answer broke off: {error}"))
}

#[cfg(test)]
mod tests;
