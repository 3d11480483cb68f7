//! Which hosts a file may be fetched from, decided from the address as the URL standard reads it.

use std::{fmt, str::FromStr};

use url::{Host, Url};

use crate::is_outside;

/// Longer addresses are data, not addresses.
const URL_BYTES_MAX: usize = 4096;

/// One allowed host: `pictures.example.com`, `*.example.com` (any name below it), either with `:port`.
/// Without a port the scheme's own is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRule {
    name: String,
    with_names_below: bool,
    port: Option<u16>,
}

/// A rule that names no host.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{rule}' is not a host; use a name such as pictures.example.com or *.example.com, with :port if it needs one")]
pub struct RuleError {
    rule: String,
}

impl FromStr for HostRule {
    type Err = RuleError;

    fn from_str(rule: &str) -> Result<Self, RuleError> {
        let error = || RuleError { rule: rule.to_owned() };
        let (suffix, with_names_below) = match rule.strip_prefix("*.") {
            Some(suffix) => (suffix, true),
            None => (rule, false),
        };
        let (host, port) = match suffix.rsplit_once(':') {
            Some((host, port)) if !host.ends_with(':') && !suffix.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| error())?))
            }
            _ => (suffix, None),
        };
        // Read as addresses are, so that both sides of the comparison have one form.
        let name = match Host::parse(host).map_err(|_| error())? {
            Host::Domain(name) if !name.contains('*') => name,
            Host::Domain(_) => return Err(error()),
            _ if with_names_below => return Err(error()),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        Ok(Self {
            name,
            with_names_below,
            port,
        })
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.with_names_below { "*." } else { "" };
        write!(f, "{below}{}", self.name)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl HostRule {
    fn allows(&self, target: &Target) -> bool {
        let is_name = match target.host.strip_suffix(self.name.as_str()) {
            Some("") => !self.with_names_below,
            Some(below) => self.with_names_below && below.ends_with('.'),
            None => false,
        };
        let own_port = if target.is_tls { 443 } else { 80 };
        is_name && target.port == self.port.unwrap_or(own_port)
    }
}

/// The hosts that files may be fetched from; none by default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostRules {
    rules: Vec<HostRule>,
}

/// Where to fetch a file, if its host resolves to an address [`is_outside`] of every network of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The whole address, for following relative redirects.
    url: Url,
    /// A name, or an address in its usual form without brackets.
    pub host: String,
    /// The port, the scheme's own if none was given.
    pub port: u16,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
}

impl Target {
    /// Path and query, for the request line.
    pub fn path(&self) -> &str {
        &self.url[url::Position::BeforePath..url::Position::AfterQuery]
    }

    /// Host and port as they stand in the address, for the `host` header.
    pub fn authority(&self) -> &str {
        self.url.authority()
    }
}

/// Why nothing is fetched from an address. No message repeats more than a host name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// No host is allowed.
    #[error(
        "this server fetches no files; send the file itself as a data: URL, or name its host in limits.media.allowed_hosts"
    )]
    FetchesNothing,
    /// Not an address at all.
    #[error("is not an address; send a data: URL or an http(s) URL")]
    NotAUrl,
    /// Another scheme.
    #[error("the scheme '{0}' is not supported; send a data: URL or an http(s) URL")]
    Scheme(String),
    /// A name or password before the host.
    #[error("must not carry a user name or password")]
    UserInfo,
    /// A host that no rule names.
    #[error(
        "the host '{0}' is not allowed; send the file as a data: URL, or name the host in limits.media.allowed_hosts"
    )]
    Host(String),
    /// A special-purpose address.
    #[error("the host '{0}' is not on the public internet")]
    Inside(String),
}

impl HostRules {
    /// The hosts named by `rules`.
    pub fn new(rules: Vec<HostRule>) -> Self {
        Self { rules }
    }

    /// Checks an address that a client sent.
    pub fn check(&self, address: &str) -> Result<Target, AddressError> {
        if address.len() > URL_BYTES_MAX {
            return Err(AddressError::NotAUrl);
        }
        self.check_url(Url::parse(address).map_err(|_| AddressError::NotAUrl)?)
    }

    /// Checks where a redirect leads, relative to the address that redirects.
    pub fn check_redirect(&self, from: &Target, location: &str) -> Result<Target, AddressError> {
        if location.len() > URL_BYTES_MAX {
            return Err(AddressError::NotAUrl);
        }
        self.check_url(from.url.join(location).map_err(|_| AddressError::NotAUrl)?)
    }

    fn check_url(&self, url: Url) -> Result<Target, AddressError> {
        let is_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            other => return Err(AddressError::Scheme(other.chars().take(32).collect())),
        };
        if self.rules.is_empty() {
            return Err(AddressError::FetchesNothing);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressError::UserInfo);
        }
        let (host, address) = match url.host().ok_or(AddressError::NotAUrl)? {
            // A final dot names the same host.
            Host::Domain(name) => (name.strip_suffix('.').unwrap_or(name).to_owned(), None),
            Host::Ipv4(address) => (address.to_string(), Some(address.into())),
            Host::Ipv6(address) => (address.to_string(), Some(address.into())),
        };
        if address.is_some_and(|address| !is_outside(address)) {
            return Err(AddressError::Inside(host));
        }
        let target = Target {
            port: url.port_or_known_default().ok_or(AddressError::NotAUrl)?,
            host,
            is_tls,
            url,
        };
        if !self.rules.iter().any(|rule| rule.allows(&target)) {
            return Err(AddressError::Host(target.host.chars().take(128).collect()));
        }
        Ok(target)
    }
}

#[cfg(test)]
mod tests;
