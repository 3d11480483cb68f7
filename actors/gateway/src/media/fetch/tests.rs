//! Encrypted fetches; the rest is tested through the gateway.

use std::io;

use async_trait::async_trait;
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Self-signed, for the name `pictures.test` alone.
const CERTIFICATE: &[u8] = include_bytes!("../../../tests/fixtures/pictures.test.der");
const KEY: &[u8] = include_bytes!("../../../tests/fixtures/pictures.test.key.der");

/// Every name is outside, and one server answers for all.
struct OneServer(SocketAddr);

#[async_trait]
impl Network for OneServer {
    async fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![IpAddr::from([1, 2, 3, 4])])
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        assert_eq!(address.port(), 443);
        TcpStream::connect(self.0).await
    }
}

async fn serve() -> SocketAddr {
    let key = PrivateKeyDer::try_from(KEY).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CERTIFICATE.into()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust us hangs up.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut head = [0; 8];
            stream.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"GET /a H");
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfile";
            stream.write_all(answer).await.unwrap();
            // Closing with unread bytes would reset the connection.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    address
}

#[tokio::test]
async fn certificates_are_checked_against_trust_and_name() {
    let limits = MediaLimits {
        allowed_hosts: HostRules::new(
            ["pictures.test", "other.test"]
                .map(|rule| rule.parse().unwrap())
                .to_vec(),
        ),
        ..MediaLimits::default()
    };
    let network = Arc::new(OneServer(serve().await));
    let mut roots = RootCertStore::empty();
    roots.add(CERTIFICATE.into()).unwrap();
    let trusting = Fetcher::trusting(roots, &limits, network.clone());
    let right = limits.allowed_hosts.check("https://pictures.test/a").unwrap();
    let other = limits.allowed_hosts.check("https://other.test/a").unwrap();
    assert_eq!(trusting.fetch(&right).await, Ok(Bytes::from_static(b"file")));
    assert_eq!(trusting.fetch(&other).await, Err(FetchError::Unreachable));
    let browser = Fetcher::new(&limits, network);
    assert_eq!(browser.fetch(&right).await, Err(FetchError::Unreachable));
}
