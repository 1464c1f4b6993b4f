//! Addresses of workers.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::{Host, Url};

/// Host and port of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    host: Host,
    port: u16,
}

/// A fault of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not HOST:PORT, as in node1:7400", self.0)
    }
}

impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        Ok(Self {
            host: Host::parse(host).map_err(|_| wrong())?,
            port: port.parse().map_err(|_| wrong())?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Address {
    /// The address in a URL of [`Address::url`].
    pub(crate) fn of(url: &Url) -> Option<Self> {
        Some(Self {
            host: url.host()?.to_owned(),
            port: url.port_or_known_default()?,
        })
    }

    /// The URL that stands for the worker in plans.
    pub(crate) fn url(&self, is_secure: bool) -> Url {
        let scheme = if is_secure { "https" } else { "http" };
        let url = Url::parse(&format!("{scheme}://{self}"));
        url.expect("host and port are parsed")
    }

    /// The host as certificates name it.
    pub(crate) fn host(&self) -> String {
        match &self.host {
            Host::Ipv6(address) => address.to_string(),
            host => host.to_string(),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is a loopback address, which only processes of this machine reach.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => IpAddr::from(*address).is_loopback(),
            Host::Ipv6(address) => IpAddr::from(*address).is_loopback(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for text in ["node1:7400", "127.0.0.1:1", "[::1]:65535", "localhost:7400"] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
            assert_eq!(Address::of(&address.url(true)), Some(address.clone()));
            assert_eq!(address.is_loopback(), text != "node1:7400", "{text}");
        }
        for text in [
            "",
            "node1",
            "node1:",
            "node1:99999",
            "a b:1",
            ":7400",
            "http://node1:7400",
            "u@h:1",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        let every: Address = "0.0.0.0:7400".parse().expect("an address");
        assert!(!every.is_loopback());
    }
}
