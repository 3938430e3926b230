//! Addresses as people write them: `udp://10.0.0.1:514`, `:514`, `unix:/run/log.sock`, `file:/var/log/x`, `null:`.

use crate::mistyped;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Longest path of a unix socket in bytes (unix(7): `sun_path` without its final NUL).
const UNIX_PATH_BYTES_MAX: usize = 107;

/// The name of this host's loopback. Of its addresses, the one of IPv4 comes first.
pub(crate) const LOCALHOST: &str = "localhost";

/// A host: a literal address, or a name that is resolved on use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    Ip(IpAddr),
    /// A name, or an IPv6 address with an interface (`fe80::1%eth0`); the resolver reads both.
    Name(String),
}

/// A host and a UDP port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    pub host: Host,
    pub port: u16,
}

impl HostPort {
    /// The address, if it is literal.
    pub fn literal(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Ip(ip) => Some(SocketAddr::new(ip, self.port)),
            Host::Name(_) => None,
        }
    }

    /// The address, if it is known without resolving names: a literal, or `localhost`.
    pub(crate) fn known(&self) -> Option<SocketAddr> {
        match &self.host {
            Host::Name(name) if name == LOCALHOST => {
                Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), self.port))
            }
            _ => self.literal(),
        }
    }
}

/// In the form that the resolver takes: an IPv6 address has no brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Ip(ip) => ip.fmt(f),
            Host::Name(name) => name.fmt(f),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Where a listener receives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// A UDP port; a multicast address is a group to join. Port 0 lets the kernel choose one.
    Udp(HostPort),
    /// A unix datagram socket at this path.
    Unix(PathBuf),
    /// A UDP port that receives repaired links from other Weirs.
    Weir(HostPort),
    /// Standard input, line by line.
    Stdin,
}

/// Where a target's datagrams go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetAddress {
    /// A UDP address: unicast, multicast or broadcast.
    Udp(HostPort),
    /// The unix datagram socket at this path.
    Unix(PathBuf),
    /// A file at this path.
    File(PathBuf),
    /// Standard output.
    Stdout,
    /// Another Weir, over a repaired link.
    Weir(HostPort),
    /// Nowhere.
    Null,
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("it has no port. Fix: write for example {0}:514")]
    NoPort(String),
    #[error("\"{0}\" is not a port. Fix: write a number up to 65535")]
    Port(String),
    #[error("port 0 is not a port to send to. Fix: write for example {0}:514")]
    PortZero(String),
    #[error("port 0 is not a port to connect to. Fix: write for example {0}")]
    ServerPort(HostPort),
    #[error("it has no host. Fix: write for example {0}")]
    NoHost(String),
    #[error("\"{0}\" is not a host name or an IP address. Fix: write for example 127.0.0.1")]
    Host(String),
    #[error("an IPv6 address with a port stands in brackets. Fix: write [{0}]:514")]
    Brackets(String),
    #[error(
        "\"{0}\" is not a kind of address that can be listened on. Fix: write udp://HOST:PORT, unix:/path, weir://HOST:PORT or stdin:"
    )]
    ListenKind(String),
    #[error(
        "\"{0}\" is not a kind of target. Fix: write udp://HOST:PORT, unix:/path, file:/path, stdout:, weir://HOST:PORT or null:"
    )]
    TargetKind(String),
    #[error("\"{kind}\" is not a kind of sink. Fix: write {kinds}")]
    SinkKind { kind: String, kinds: String },
    #[error(
        "this build has no {kind}. Fix: build with `cargo build --release -p weir --features {feature}`, or use the image"
    )]
    NotBuilt { kind: String, feature: &'static str },
    #[error("{why}. Fix: write {meant}")]
    Mistyped { why: &'static str, meant: String },
    #[error("{0}")]
    Topic(String),
    #[error("{{{0}}} stands for nothing in a path. Fix: use {{host}}, {{date}} or {{listener}}")]
    Template(String),
    #[error("something follows {0}: and nothing may. Fix: write {0}:")]
    Nothing(String),
    #[error(
        "a user name or a password has no place in it, where everybody would see it. Fix: write user = \"…\" and \
         password_file = \"/path\""
    )]
    UserInfo,
    #[error("it names several hosts. Fix: name one")]
    SeveralHosts,
    #[error(
        "two slashes begin a host and a path has none. Fix: write one slash (/{0}) or none ({0})"
    )]
    HostInPath(String),
    #[error("~ is for the shell to expand. Fix: write the whole path, such as /root/{0}")]
    Home(String),
    #[error("it has control characters. Fix: rename the file")]
    ControlInPath,
    #[error("it has no name behind the host, or none that can be. Fix: write for example {0}")]
    NoName(&'static str),
    #[error("it has no path. Fix: write for example {0}")]
    NoPath(&'static str),
    #[error("the path of a unix socket has {0} bytes. Fix: write at most {UNIX_PATH_BYTES_MAX}")]
    LongPath(usize),
    #[error(
        "options follow a ? only in --listen and --to of weir relay. Fix: remove \"?{0}\"; in a file, write it as a key"
    )]
    Options(String),
}

impl FromStr for ListenAddress {
    type Err = AddressError;

    /// Plain `HOST:PORT` and `:PORT` are UDP; `:PORT` is every IPv4 address. `-` is standard input.
    fn from_str(text: &str) -> Result<ListenAddress, AddressError> {
        if text == "-" {
            return Ok(ListenAddress::Stdin);
        }
        let read = match split_scheme(text) {
            Some(("udp", rest)) => listen_at(rest).map(ListenAddress::Udp),
            Some(("weir", rest)) => listen_at(rest).map(ListenAddress::Weir),
            Some(("unix", rest)) => unix_path(rest).map(ListenAddress::Unix),
            Some(("stdin", "" | "//")) => Ok(ListenAddress::Stdin),
            Some((kind, _)) => Err(AddressError::ListenKind(kind.to_owned())),
            None => listen_at(text).map(ListenAddress::Udp),
        };
        read.map_err(|error| mistyped::listener(text).unwrap_or(error))
    }
}

impl FromStr for TargetAddress {
    type Err = AddressError;

    /// Plain `HOST:PORT` is UDP. `-` is standard output.
    fn from_str(text: &str) -> Result<TargetAddress, AddressError> {
        if text == "-" {
            return Ok(TargetAddress::Stdout);
        }
        let read = match split_scheme(text) {
            Some(("udp", rest)) => receiver(rest).map(TargetAddress::Udp),
            Some(("unix", rest)) => unix_path(rest).map(TargetAddress::Unix),
            Some(("file", rest)) => path(rest, "file:/var/log/weir.log").map(TargetAddress::File),
            Some(("weir", rest)) => receiver(rest).map(TargetAddress::Weir),
            Some(("null", "" | "//")) => Ok(TargetAddress::Null),
            Some(("stdout", "" | "//")) => Ok(TargetAddress::Stdout),
            Some((kind, _)) => Err(AddressError::TargetKind(kind.to_owned())),
            None => receiver(text).map(TargetAddress::Udp),
        };
        read.map_err(|error| mistyped::target(text).unwrap_or(error))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Udp(addr) => write!(f, "udp://{addr}"),
            ListenAddress::Weir(addr) => write!(f, "weir://{addr}"),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddress::Stdin => f.write_str("stdin:"),
        }
    }
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetAddress::Udp(addr) => write!(f, "udp://{addr}"),
            TargetAddress::Weir(addr) => write!(f, "weir://{addr}"),
            TargetAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            TargetAddress::File(path) => write!(f, "file:{}", path.display()),
            TargetAddress::Stdout => f.write_str("stdout:"),
            TargetAddress::Null => f.write_str("null:"),
        }
    }
}

impl FromStr for HostPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<HostPort, AddressError> {
        host_port(text, None)
    }
}

/// Splits `udp:rest` at the first colon, unless what follows is a port.
pub(crate) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let is_word = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let known = matches!(
        scheme,
        "udp"
            | "unix"
            | "unixgram"
            | "file"
            | "null"
            | "stdin"
            | "stdout"
            | "parquet"
            | "store"
            | "weir"
    );
    let other = rest.starts_with('/');
    (is_word && (known && !is_port(rest) || other)).then_some((scheme, rest))
}

pub(crate) fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn listen_at(text: &str) -> Result<HostPort, AddressError> {
    let text = text.strip_prefix("//").unwrap_or(text);
    host_port(text, Some(Host::Ip(Ipv4Addr::UNSPECIFIED.into())))
}

/// A host and port to send to.
pub(crate) fn receiver(text: &str) -> Result<HostPort, AddressError> {
    let text = text.strip_prefix("//").unwrap_or(text);
    let addr = host_port(text, None)?;
    match addr.port {
        0 => {
            Err(AddressError::PortZero(text.rsplit_once(':').map_or(text, |(host, _)| host).into()))
        }
        _ => Ok(addr),
    }
}

/// A server's host, with or without a port.
pub(crate) fn server(text: &str, usual_port: u16) -> Result<HostPort, AddressError> {
    let has_port = match text.strip_prefix('[') {
        Some(rest) => !rest.ends_with(']'),
        None => text.contains(':'),
    };
    let whole = if has_port { text.to_owned() } else { format!("{text}:{usual_port}") };
    match host_port(&whole, None) {
        Ok(HostPort { host, port: 0 }) => {
            Err(AddressError::ServerPort(HostPort { host, port: usual_port }))
        }
        other => other,
    }
}

fn host_port(text: &str, without_host: Option<Host>) -> Result<HostPort, AddressError> {
    if let Some((_, options)) = text.split_once('?') {
        return Err(AddressError::Options(options.to_owned()));
    }

    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) =
                rest.split_once(']').ok_or_else(|| AddressError::Host(text.to_owned()))?;
            let port =
                port.strip_prefix(':').ok_or_else(|| AddressError::NoPort(format!("[{host}]")))?;
            (bracketed(host)?, port)
        }
        None if text.parse::<Ipv6Addr>().is_ok() => {
            return Err(AddressError::Brackets(text.to_owned()));
        }
        None => match text.rsplit_once(':') {
            None if text.is_empty() => {
                return Err(AddressError::NoHost("127.0.0.1:514".to_owned()));
            }
            None => return Err(AddressError::NoPort(text.to_owned())),
            Some(("", port)) => {
                let host = without_host
                    .ok_or_else(|| AddressError::NoHost(format!("127.0.0.1:{port}")))?;
                (host, port)
            }
            Some((host, port)) => (plain(host)?, port),
        },
    };

    // `parse` alone would accept "+514".
    let number = if is_port(port) { port.parse().ok() } else { None };
    let port = number.ok_or_else(|| AddressError::Port(port.to_owned()))?;
    Ok(HostPort { host, port })
}

fn bracketed(text: &str) -> Result<Host, AddressError> {
    let wrong = || AddressError::Host(text.to_owned());
    if let Ok(ip) = text.parse::<Ipv6Addr>() {
        return Ok(Host::Ip(ip.into()));
    }
    let (addr, interface) = text.split_once('%').ok_or_else(wrong)?;
    let is_interface = !interface.is_empty()
        && interface.bytes().all(|byte| byte.is_ascii_graphic() && !b"[]%?/:".contains(&byte));
    match addr.parse::<Ipv6Addr>() {
        Ok(_) if is_interface => Ok(Host::Name(text.to_owned())),
        _ => Err(wrong()),
    }
}

fn plain(text: &str) -> Result<Host, AddressError> {
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Ip(ip.into()));
    }
    let is_name = text.len() <= 253
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !text.starts_with(['-', '.'])
        // A name whose last part is a number is a mistyped address (RFC 1123 section 2.1).
        && !text.trim_end_matches('.').rsplit('.').next().is_none_or(is_port);
    if is_name { Ok(Host::Name(text.to_owned())) } else { Err(AddressError::Host(text.to_owned())) }
}

pub(crate) fn unix_path(text: &str) -> Result<PathBuf, AddressError> {
    let path = path(text, "unix:/run/weir.sock")?;
    match path.as_os_str().len() {
        0..=UNIX_PATH_BYTES_MAX => Ok(path),
        len => Err(AddressError::LongPath(len)),
    }
}

/// `unix:/path`, `unix:path` and `unix:///path` are paths.
pub(crate) fn path(text: &str, example: &'static str) -> Result<PathBuf, AddressError> {
    let mut plain = text.to_owned();
    if let Some(rest) = text.strip_prefix("//") {
        if !rest.starts_with('/') {
            return Err(AddressError::HostInPath(rest.to_owned()));
        }
        plain = format!("/{}", rest.trim_start_matches('/'));
    }
    if let Some(rest) = plain.strip_prefix("~/") {
        return Err(AddressError::Home(rest.to_owned()));
    }
    if plain.chars().any(char::is_control) {
        return Err(AddressError::ControlInPath);
    }
    let has_file_name = Path::new(&plain).file_name().is_some() && !plain.ends_with('/');
    if has_file_name { Ok(PathBuf::from(plain)) } else { Err(AddressError::NoPath(example)) }
}

/// Splits `udp://10.0.0.1:514?rate_limit=1000&sample=10` into the address and its options, undecoded.
pub fn split_options(text: &str) -> (&str, Vec<(&str, &str)>) {
    let Some((addr, query)) = text.split_once('?') else { return (text, Vec::new()) };
    let options = query
        .split('&')
        .filter(|option| !option.is_empty())
        .map(|option| option.split_once('=').unwrap_or((option, "")))
        .collect();
    (addr, options)
}

/// The path of a unix socket from a key that takes only such a path.
pub(crate) fn socket_path(text: &str) -> Result<PathBuf, String> {
    match text.len() {
        0 => Err("it has no path. Fix: write for example /run/weir/helper.sock".to_owned()),
        _ if text.chars().any(char::is_control) => Err(AddressError::ControlInPath.to_string()),
        1..=UNIX_PATH_BYTES_MAX => Ok(PathBuf::from(text)),
        len => Err(AddressError::LongPath(len).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(text: &str, shown: &str) {
        let addr: ListenAddress = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(addr.to_string(), shown);
        assert_eq!(shown.parse(), Ok(addr), "{shown}");
    }

    #[test]
    fn listeners() {
        listen("udp://127.0.0.1:5514", "udp://127.0.0.1:5514");
        listen("127.0.0.1:5514", "udp://127.0.0.1:5514");
        listen("udp:127.0.0.1:5514", "udp://127.0.0.1:5514");
        listen(":514", "udp://0.0.0.0:514");
        listen("udp://:514", "udp://0.0.0.0:514");
        listen("[::]:514", "udp://[::]:514");
        listen("[fe80::1%eth0]:514", "udp://[fe80::1%eth0]:514");
        listen("localhost:0", "udp://localhost:0");
        listen("unix:/run/weir.sock", "unix:/run/weir.sock");
        listen("unix:///run/weir.sock", "unix:/run/weir.sock");
        listen("unix:weir.sock", "unix:weir.sock");
        listen("239.1.2.3:514", "udp://239.1.2.3:514");
        listen("stdin:", "stdin:");
        listen("-", "stdin:");
        // A host may have the name of a scheme.
        listen("unix:514", "udp://unix:514");
    }

    fn target(text: &str, shown: &str) {
        let addr: TargetAddress = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(addr.to_string(), shown);
        assert_eq!(shown.parse(), Ok(addr), "{shown}");
    }

    #[test]
    fn targets() {
        target("udp://10.0.0.1:514", "udp://10.0.0.1:514");
        target("collector.example.com:514", "udp://collector.example.com:514");
        target("a_b-c:1", "udp://a_b-c:1");
        target("[2001:db8::1]:514", "udp://[2001:db8::1]:514");
        target("unix:/dev/log", "unix:/dev/log");
        target("file:/var/log/x?y", "file:/var/log/x?y");
        target("file:weir-data/x.log", "file:weir-data/x.log");
        target("file://///x", "file:/x");
        target("null:", "null:");
        target("stdout:", "stdout:");
        target("-", "stdout:");
    }

    fn no_target(text: &str, message: &str) {
        assert_eq!(text.parse::<TargetAddress>().unwrap_err().to_string(), message, "{text}");
    }

    #[test]
    fn mistakes_are_named() {
        no_target("10.0.0.1", "it has no port. Fix: write for example 10.0.0.1:514");
        no_target("udp://host", "it has no port. Fix: write for example host:514");
        no_target("[::1]", "it has no port. Fix: write for example [::1]:514");
        no_target("host:http", "\"http\" is not a port. Fix: write a number up to 65535");
        no_target("host:65536", "\"65536\" is not a port. Fix: write a number up to 65535");
        no_target("host:+5", "\"+5\" is not a port. Fix: write a number up to 65535");
        no_target(
            "10.0.0.1:0",
            "port 0 is not a port to send to. Fix: write for example 10.0.0.1:514",
        );
        no_target(":514", "it has no host. Fix: write for example 127.0.0.1:514");
        no_target("", "it has no host. Fix: write for example 127.0.0.1:514");
        no_target("::1", "an IPv6 address with a port stands in brackets. Fix: write [::1]:514");
        no_target(
            "10.0.0.256:514",
            "\"10.0.0.256\" is not a host name or an IP address. Fix: write for example 127.0.0.1",
        );
        no_target(
            "a b:514",
            "\"a b\" is not a host name or an IP address. Fix: write for example 127.0.0.1",
        );
        no_target(
            "syslog://10.0.0.1:514",
            "\"syslog\" is not a kind of target. Fix: write udp://HOST:PORT, unix:/path, file:/path, stdout:, weir://HOST:PORT or null:",
        );
        no_target(
            "file://x.log",
            "two slashes begin a host and a path has none. Fix: write one slash (/x.log) or none (x.log)",
        );
        no_target("file:", "it has no path. Fix: write for example file:/var/log/weir.log");
        no_target(
            "file:/var/log/",
            "it has no path. Fix: write for example file:/var/log/weir.log",
        );
        no_target(
            "10.0.0.1:514?sample=10",
            "options follow a ? only in --listen and --to of weir relay. Fix: remove \"?sample=10\"; in a file, write it as a key",
        );
        let long = format!("unix:/{}", "x".repeat(107));
        no_target(&long, "the path of a unix socket has 108 bytes. Fix: write at most 107");
        assert_eq!(
            "file:/x".parse::<ListenAddress>().unwrap_err().to_string(),
            "\"file\" is not a kind of address that can be listened on. Fix: write udp://HOST:PORT, unix:/path, weir://HOST:PORT or stdin:"
        );
    }

    #[test]
    fn options_are_split_off() {
        assert_eq!(
            split_options("udp://h:1?rate_limit=5&sample=10&"),
            ("udp://h:1", vec![("rate_limit", "5"), ("sample", "10")])
        );
        assert_eq!(split_options("h:1"), ("h:1", vec![]));
        assert_eq!(split_options("h:1?gso"), ("h:1", vec![("gso", "")]));
    }
}
