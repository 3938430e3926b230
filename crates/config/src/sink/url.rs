//! Addresses of stores and brokers: hosts with ports, and a path.

use crate::address::{AddressError, HostPort, server};
use std::fmt;

/// `//HOST:PORT/path`, or several hosts separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// At least one.
    pub hosts: Vec<HostPort>,
    /// The text after the hosts, without the slash in between; empty if there is none.
    pub path: String,
}

impl Url {
    /// Parses the text after the scheme and its colon. `usual_port` is the default port.
    pub(crate) fn parse(rest: &str, usual_port: u16) -> Result<Url, AddressError> {
        let example = || AddressError::NoHost(format!("//127.0.0.1:{usual_port}"));
        let text = rest.strip_prefix("//").ok_or_else(example)?;
        // Text in front of an @ may be a password that would be shown, and is never part of an address.
        if text.contains('@') {
            return Err(AddressError::UserInfo);
        }
        if let Some((_, options)) = text.split_once('?') {
            return Err(AddressError::Options(options.to_owned()));
        }

        let (hosts, path) = text.split_once('/').unwrap_or((text, ""));
        if path.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(AddressError::ControlInPath);
        }
        let hosts = hosts.split(',').map(|host| server(host, usual_port));
        Ok(Url { hosts: hosts.collect::<Result<_, _>>()?, path: path.to_owned() })
    }

    /// Like `parse`, for exactly one host.
    pub(crate) fn parse_single(rest: &str, usual_port: u16) -> Result<Url, AddressError> {
        let url = Url::parse(rest, usual_port)?;
        if url.hosts.len() == 1 { Ok(url) } else { Err(AddressError::SeveralHosts) }
    }
}

/// Begins with the two slashes.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(HostPort::to_string).collect();
        write!(f, "//{}", hosts.join(","))?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rest: &str, expected: Result<&str, &str>) {
        let read = Url::parse(rest, 9092).map(|url| url.to_string());
        assert_eq!(
            read.as_ref().map(String::as_str).map_err(ToString::to_string),
            expected.map_err(str::to_owned),
            "{rest}"
        );
    }

    #[test]
    fn hosts_and_a_path() {
        check("//broker/topic", Ok("//broker:9092/topic"));
        check(
            "//10.0.0.1:9000,b.example.net,[2001:db8::1]:7/a/b",
            Ok("//10.0.0.1:9000,b.example.net:9092,[2001:db8::1]:7/a/b"),
        );
        check("//[2001:db8::1]", Ok("//[2001:db8::1]:9092"));
        check("//broker", Ok("//broker:9092"));
        check("//broker/", Ok("//broker:9092"));
    }

    #[test]
    fn a_secret_in_an_address_is_refused_and_not_repeated() {
        for text in ["//user:geheim@broker/topic", "//geheim@broker", "//broker/@geheim"] {
            let error = Url::parse(text, 9092).unwrap_err();
            assert_eq!(error, AddressError::UserInfo, "{text}");
            assert!(!error.to_string().contains("geheim"));
        }
    }

    #[test]
    fn mistakes_are_named() {
        check("broker/topic", Err("it has no host. Fix: write for example //127.0.0.1:9092"));
        check("///topic", Err("it has no host. Fix: write for example 127.0.0.1:9092"));
        check(
            "//broker:0/t",
            Err("port 0 is not a port to connect to. Fix: write for example broker:9092"),
        );
        check("//a,,b/t", Err("it has no host. Fix: write for example 127.0.0.1:9092"));
        check(
            "//a b/t",
            Err("\"a b\" is not a host name or an IP address. Fix: write for example 127.0.0.1"),
        );
        assert_eq!(Url::parse_single("//a,b", 1), Err(AddressError::SeveralHosts));
    }
}
