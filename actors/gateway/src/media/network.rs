//! Names to addresses, addresses to connections: the two things a fetch asks of the outside.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use async_trait::async_trait;
use tokio::net::TcpStream;

/// What fetches reach the world through. The rules are asked between both steps, whatever stands behind them.
#[async_trait]
pub trait Network: Send + Sync + 'static {
    /// The addresses of a name.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;

    /// A connection to an address that the rules allow.
    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream>;
}

/// The system's resolver and sockets. No proxy: what proxy variables name was never asked for.
pub struct Internet;

#[async_trait]
impl Network for Internet {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let addresses = tokio::net::lookup_host((host, 0)).await?;
        Ok(addresses.map(|address| address.ip()).collect())
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }
}
