//! A destination that is a TCP connection, with or without TLS.
//!
//! The name is resolved at each connection, and all of its addresses are tried.

use crate::byte_stream::plain::{Plain, Socket};
use crate::byte_stream::{ByteStream, CONNECT_TIMEOUT, Connect, Link};
use crate::destination::{Connector, Destination, Form};
use crate::encode::Content;
use crate::frames::StreamFraming;
#[cfg(feature = "tls")]
use crate::secret::TlsOptions;
use ledger::Trouble;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
mod encrypted;

/// A silent connection is probed at this interval.
const IDLE: Duration = Duration::from_secs(30);

/// A connection ends when sent data is not acknowledged for this long.
const UNANSWERED_MAX: Duration = Duration::from_secs(30);

/// A TCP destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// A name or an address. An IPv6 address has no brackets.
    pub host: String,
    pub port: u16,
    pub framing: StreamFraming,
}

impl fmt::Display for TcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Sends rows over a TCP connection.
pub fn tcp(options: TcpOptions, content: Content) -> Connector {
    let address = format!("tcp://{options}");
    let (framing, shown) = (options.framing, address.clone());
    let connect = move || {
        let stream = connect(&options, &shown)?;
        Ok(Box::new(Plain::new(stream)) as Box<dyn Link>)
    };
    connector(address, (framing, content), Arc::new(connect))
}

/// As [`tcp`], over TLS.
#[cfg(feature = "tls")]
pub fn tls(options: TcpOptions, tls: TlsOptions, content: Content) -> Connector {
    let address = format!("tls://{options}");
    let (framing, shown) = (options.framing, address.clone());
    let connect = move || {
        let stream = connect(&options, &shown)?;
        let link = encrypted::Encrypted::shake_hands(stream, &options.host, &tls, &shown)?;
        Ok(Box::new(link) as Box<dyn Link>)
    };
    connector(address, (framing, content), Arc::new(connect))
}

pub(crate) fn connector(
    address: String,
    (framing, content): (StreamFraming, Content),
    connect: Connect,
) -> Connector {
    let form = move || Form::Mixed(framing.encoder(content));
    let destination = move || {
        let header = framing.header(content);
        let connect = Arc::clone(&connect);
        let stream = ByteStream::new(address.clone(), header, connect);
        Ok(Box::new(stream) as Box<dyn Destination>)
    };
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

/// Tries all addresses of the name in turn.
pub(crate) fn connect(options: &TcpOptions, shown: &str) -> Result<TcpStream, Trouble> {
    let resolved = (options.host.as_str(), options.port).to_socket_addrs();
    let addrs = resolved.map_err(|error| Trouble {
        what: format!("{shown}: the name {} does not resolve: {error}", options.host),
        fix: format!("correct the name, or fix the resolver: getent hosts {}", options.host),
    })?;

    let mut trouble = Trouble {
        what: format!("{shown}: the name {} has no address", options.host),
        fix: format!("correct the name: getent hosts {}", options.host),
    };
    for addr in addrs {
        match open(addr) {
            Ok(stream) => return Ok(stream),
            Err(error) => trouble = unconnected(shown, addr, &error),
        }
    }
    Err(trouble)
}

fn open(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&addr, CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    sys::tcp::set_liveness(stream.as_fd(), IDLE, UNANSWERED_MAX)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn unconnected(shown: &str, addr: SocketAddr, error: &io::Error) -> Trouble {
    let (ip, port) = (addr.ip(), addr.port());
    let fix = match error.kind() {
        ErrorKind::ConnectionRefused => {
            format!(
                "nobody listens there: start the receiver, or correct the address (port {port})"
            )
        }
        ErrorKind::TimedOut => "check the address, and the firewalls between".to_owned(),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            format!("check the address and the route: ip route get {ip}")
        }
        ErrorKind::PermissionDenied => "allow it in the OUTPUT rules of this host".to_owned(),
        _ => format!("check the address {addr}"),
    };
    Trouble { what: format!("{shown}: no connection to {addr}: {error}"), fix }
}

impl Socket for TcpStream {
    /// A connection that has ended still reports how many bytes were never acknowledged.
    const COUNTS_AT_END: bool = true;

    fn shut_writing(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}
