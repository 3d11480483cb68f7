//! One file from one allowed address.
//!
//! The host is resolved once per connection, every address of it is checked, and the connection goes to an address that
//! was checked, not to the name. Redirects are followed by hand, each checked like the first address. What the server
//! says never reaches the client: neither its words nor its status.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use cluster_media::{AddressError, HostRules, Target, is_outside};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::{
    Request, Response,
    body::{Body, Incoming},
    client::conn::http1,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, HOST, LOCATION, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::network::Network;
use crate::settings::MediaLimits;

const REDIRECTS_MAX: usize = 3;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;
/// Bounds an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Why a file was not fetched.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("{0}")]
    Address(#[from] AddressError),
    #[error("the file could not be fetched: its host has no address")]
    NoAddress,
    #[error("the file could not be fetched: its host could not be reached")]
    Unreachable,
    #[error("the file could not be fetched: its host did not answer with a file")]
    NoFile,
    #[error("the file could not be fetched: it redirects more than {REDIRECTS_MAX} times")]
    Redirects,
    #[error("the file could not be fetched within {} s", .0.as_secs())]
    Slow(Duration),
    #[error("the file has more than {0} bytes")]
    Long(u64),
}

impl FetchError {
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            FetchError::Address(_) => "address_refused",
            FetchError::NoAddress => "no_address",
            FetchError::Unreachable => "unreachable",
            FetchError::NoFile => "no_file",
            FetchError::Redirects => "too_many_redirects",
            FetchError::Slow(_) => "timeout",
            FetchError::Long(_) => "too_long",
        }
    }
}

/// What an address answers with.
enum Reply {
    File(Bytes),
    Redirect(Target),
}

pub(crate) struct Fetcher {
    rules: HostRules,
    bytes_max: u64,
    time: Duration,
    network: Arc<dyn Network>,
    tls: TlsConnector,
}

impl Fetcher {
    /// Trusts the certificates that browsers trust.
    pub(crate) fn new(limits: &MediaLimits, network: Arc<dyn Network>) -> Self {
        let roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        Self::trusting(roots, limits, network)
    }

    fn trusting(roots: RootCertStore, limits: &MediaLimits, network: Arc<dyn Network>) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has ciphers for these versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            rules: limits.allowed_hosts.clone(),
            bytes_max: limits.bytes_max,
            time: limits.fetch_timeout,
            network,
            tls: TlsConnector::from(Arc::new(config)),
        }
    }

    /// Fetches a file. All of it, redirects included, has one time.
    pub(crate) async fn fetch(&self, target: &Target) -> Result<Bytes, FetchError> {
        let fetched = tokio::time::timeout(self.time, self.follow(target.clone()));
        fetched.await.unwrap_or(Err(FetchError::Slow(self.time)))
    }

    async fn follow(&self, mut target: Target) -> Result<Bytes, FetchError> {
        for _ in 0..=REDIRECTS_MAX {
            match self.ask(&target).await? {
                Reply::File(bytes) => return Ok(bytes),
                Reply::Redirect(next) => target = next,
            }
        }
        Err(FetchError::Redirects)
    }

    async fn ask(&self, target: &Target) -> Result<Reply, FetchError> {
        let stream = self.connect(target).await?;
        if !target.is_tls {
            return self.exchange(stream, target).await;
        }
        let unreachable = |error: &dyn std::fmt::Display| {
            tracing::debug!(host = target.host, %error, "no encrypted connection");
            FetchError::Unreachable
        };
        let name = ServerName::try_from(target.host.clone()).map_err(|error| unreachable(&error))?;
        let stream = self
            .tls
            .connect(name, stream)
            .await
            .map_err(|error| unreachable(&error))?;
        self.exchange(stream, target).await
    }

    /// A connection to the first address that takes it; all of them were checked.
    async fn connect(&self, target: &Target) -> Result<tokio::net::TcpStream, FetchError> {
        let addresses = self.addresses(&target.host).await?;
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            match self.network.connect(SocketAddr::new(address, target.port)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => tracing::debug!(host = target.host, %error, "no connection"),
            }
        }
        Err(FetchError::Unreachable)
    }

    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, FetchError> {
        let addresses = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => self.network.resolve(host).await.map_err(|_| FetchError::NoAddress)?,
        };
        if addresses.is_empty() {
            return Err(FetchError::NoAddress);
        }
        // A name with one address inside is not trusted with its others either.
        if !addresses.iter().copied().all(is_outside) {
            return Err(AddressError::Inside(host.to_owned()).into());
        }
        Ok(addresses)
    }

    async fn exchange<S>(&self, stream: S, target: &Target) -> Result<Reply, FetchError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let broken = |error: hyper::Error| {
            tracing::debug!(host = target.host, %error, "no answer");
            FetchError::NoFile
        };
        let mut client = http1::Builder::new();
        let handshake = client
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await;
        let (mut sender, connection) = handshake.map_err(broken)?;
        // The connection ends with this call, however it ends.
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = Request::get(target.path())
            .header(HOST, target.authority())
            .header(USER_AGENT, "cluster")
            .header(ACCEPT, "image/*, audio/*")
            .header(ACCEPT_ENCODING, "identity")
            .body(Empty::<Bytes>::new())
            .map_err(|_| FetchError::Address(AddressError::NotAUrl))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        self.reply(response, target).await
    }

    async fn reply(&self, response: Response<Incoming>, target: &Target) -> Result<Reply, FetchError> {
        let headers = response.headers();
        match response.status().as_u16() {
            200 if !headers.contains_key(CONTENT_ENCODING) => self.read(response.into_body()).await.map(Reply::File),
            301 | 302 | 303 | 307 | 308 => {
                let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
                let location = location.ok_or(FetchError::NoFile)?;
                Ok(Reply::Redirect(self.rules.check_redirect(target, location)?))
            }
            status => {
                tracing::debug!(host = target.host, status, "no file");
                Err(FetchError::NoFile)
            }
        }
    }

    async fn read(&self, body: Incoming) -> Result<Bytes, FetchError> {
        // An announced length is refused before a byte of it is read.
        if body.size_hint().lower() > self.bytes_max {
            return Err(FetchError::Long(self.bytes_max));
        }
        let bytes_max = usize::try_from(self.bytes_max).unwrap_or(usize::MAX);
        match Limited::new(body, bytes_max).collect().await {
            Ok(whole) => Ok(whole.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(FetchError::Long(self.bytes_max)),
            Err(_) => Err(FetchError::NoFile),
        }
    }
}

#[cfg(test)]
mod tests;
