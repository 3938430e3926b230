//! The source of datagrams: a socket or a capture.

use crate::addresses;
use crate::exit::{Failure, Reader};
use crate::refused::{Wanted, refused, unreadable};
use ::flows::Engine;
use ::load::Address;
use ::text::{grouped, plural, size};
use config::ListenAddress;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::Errno;
use sys::clock::{monotonic_ns, realtime_ns};
use sys::recv::{ReceiveBatch, Wait};
use sys::socket::{self, ListenOptions, LocalAddress};
use wire::DecodeError;

/// The longest wait for a datagram.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(50);

/// A datagram from an agent.
pub(super) struct Datagram<'a> {
    pub(super) bytes: &'a [u8],
    /// The sender's address.
    pub(super) source: IpAddr,
    /// Receive time on the figures' clock.
    pub(super) at_ns: u64,
    /// Receive time since 1970.
    pub(super) unix_ns: u64,
}

/// The outcome of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Datagrams were taken.
    Took,
    /// None arrived.
    Quiet,
    /// The capture has ended.
    Ended,
    /// The reader of the output has gone.
    Stopped,
}

pub(super) enum Input {
    Socket(Box<Socket>),
    File(File),
}

pub(super) struct Socket {
    socket: OwnedFd,
    address: SocketAddr,
    receive_buffer_bytes: usize,
    batch: ReceiveBatch,
    dropped_at_bind: u32,
    /// When the end began, which made the socket refuse everything that arrived later.
    dropped_at_end: Option<u32>,
    /// What the kernel had counted as dropped for full buffers, in this network namespace.
    full_at_bind: Option<u64>,
}

pub(super) struct File {
    path: PathBuf,
    bytes: Vec<u8>,
    port: u16,
    /// Time of the last datagram.
    at_ns: u64,
    skipped: u64,
    partial: u64,
    broken: Option<DecodeError>,
}

impl Input {
    pub(super) fn listen(listen: &ListenAddress, receive_buffer: usize) -> anyhow::Result<Input> {
        let Address::Udp(address) = addresses::listener(listen)? else {
            let expected = "sFlow comes over UDP. Fix: write for example --listen :6343";
            return Err(Failure::Usage.error(expected));
        };
        let open = || -> io::Result<Socket> {
            let socket = socket::listen_udp(address, &ListenOptions::default())?;
            socket::set_receive_timeout(socket.as_fd(), RECEIVE_TIMEOUT)?;
            let bytes = socket::set_receive_buffer(socket.as_fd(), receive_buffer)?;
            let dropped_at_bind = socket::mem_info(socket.as_fd())?.dropped_datagrams;
            let address = match socket::local_address(socket.as_fd()) {
                Some(LocalAddress::Inet(address)) => address,
                _ => address,
            };
            let batch = ReceiveBatch::default();
            Ok(Socket {
                socket,
                address,
                receive_buffer_bytes: bytes,
                batch,
                dropped_at_bind,
                dropped_at_end: None,
                full_at_bind: full_buffers(),
            })
        };
        let socket = open().map_err(|error| {
            refused(format!("cannot receive on udp://{address}"), Wanted::Udp(address), &error)
        })?;
        Ok(Input::Socket(Box::new(socket)))
    }

    /// Whether it is a file of which a part could not be read.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Input::File(File { broken: Some(_), .. }))
    }

    pub(super) fn open(path: &Path, port: u16) -> anyhow::Result<Input> {
        let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
        wire::capture::datagrams(&bytes).map_err(|error| {
            let why = match error {
                DecodeError::WrongLinkType(link) => {
                    format!("its link type is {link}, which is not one that carries IP")
                }
                DecodeError::UnknownFormat => "it is neither a pcap nor a pcapng. Fix: make one with: tcpdump -w FILE udp port 6343".into(),
                error => error.to_string(),
            };
            Failure::InputMissing.error(format!("cannot read {}: {why}", path.display()))
        })?;
        let path = path.to_owned();
        Ok(Input::File(File { path, bytes, port, at_ns: 0, skipped: 0, partial: 0, broken: None }))
    }

    /// Hands over what is there, after waiting briefly for something.
    pub(super) fn turn(
        &mut self,
        take: &mut dyn FnMut(&Datagram<'_>) -> Reader,
    ) -> anyhow::Result<Turn> {
        match self {
            Input::Socket(socket) => socket.turn(take),
            Input::File(file) => Ok(file.turn(take)),
        }
    }

    /// The time of figures, on the same clock as the datagrams.
    pub(super) fn now_ns(&self) -> u64 {
        match self {
            Input::Socket(_) => monotonic_ns(),
            Input::File(file) => file.at_ns,
        }
    }

    /// Its name for people.
    pub(super) fn name(&self) -> String {
        match self {
            Input::Socket(socket) => format!("udp://{}", socket.address),
            Input::File(file) => file.path.display().to_string(),
        }
    }

    /// Datagrams that the kernel dropped at our socket, until the end began.
    pub(super) fn dropped(&self) -> u64 {
        match self {
            Input::Socket(socket) => socket.dropped(),
            Input::File(_) => 0,
        }
    }

    /// Reports that datagrams are being received from now on.
    pub(super) fn tell_start(&self) {
        if let Input::Socket(socket) = self {
            let buffer = size(socket.receive_buffer_bytes as u64);
            tell(&format!("listening on udp://{}, receive buffer {buffer}", socket.address));
        }
    }

    /// Keeps new datagrams out, so that the queued ones can be read to the end.
    pub(super) fn refuse_more(&mut self) {
        if let Input::Socket(socket) = self {
            socket.dropped_at_end = socket.dropped_now();
            // If this fails, the receive buffer still limits the rest.
            let _ = socket::refuse_new_datagrams(socket.socket.as_fd());
        }
    }

    /// Reports what happened to every datagram.
    pub(super) fn tell_end(&self, engine: &Engine) {
        let totals = engine.totals();
        tell(&format!(
            "{} datagrams = {} read + {} duplicate + {} malformed + {} of agents beyond the limit",
            grouped(totals.datagrams),
            grouped(totals.read),
            grouped(totals.duplicate),
            grouped(totals.malformed),
            grouped(totals.agent_limit),
        ));
        match self {
            Input::Socket(socket) => socket.tell_drops(),
            Input::File(file) => {
                if file.partial > 0 {
                    tell(&format!(
                        "{} of UDP not read: fragments, or not captured whole",
                        plural(file.partial, "packet", "packets")
                    ));
                }
                if totals.datagrams == 0 {
                    let others = plural(file.skipped, "datagram", "datagrams");
                    tell(&format!(
                        "no datagram to port {} in it, and {others} to others: --port says another",
                        file.port
                    ));
                }
                if let Some(error) = &file.broken {
                    tell(&format!(
                        "{}: {error}: what follows was not read. Fix: capture it again",
                        file.path.display()
                    ));
                }
            }
        }
    }
}

impl Socket {
    fn turn(&mut self, take: &mut dyn FnMut(&Datagram<'_>) -> Reader) -> anyhow::Result<Turn> {
        match self.batch.receive(self.socket.as_fd(), Wait::ForOne) {
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Turn::Quiet),
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let (at_ns, unix_ns) = (monotonic_ns(), realtime_ns());
        for received in self.batch.datagrams() {
            let source =
                received.source.address().map_or(::flows::NO_ADDRESS, |address| address.ip());
            let datagram = Datagram { bytes: received.bytes(), source, at_ns, unix_ns };
            if take(&datagram) == Reader::Gone {
                return Ok(Turn::Stopped);
            }
        }
        Ok(Turn::Took)
    }

    fn dropped(&self) -> u64 {
        let until = self.dropped_at_end.or_else(|| self.dropped_now());
        until.map_or(0, |until| until.wrapping_sub(self.dropped_at_bind).into())
    }

    fn dropped_now(&self) -> Option<u32> {
        socket::mem_info(self.socket.as_fd()).map(|info| info.dropped_datagrams).ok()
    }

    /// Reports what the kernel dropped, with the cause as far as it is known.
    fn tell_drops(&self) {
        let dropped = self.dropped();
        if dropped > 0 {
            let full = full_buffers().zip(self.full_at_bind);
            let cause = match full.map(|(now, then)| now.saturating_sub(then)) {
                Some(0) => {
                    "not for a full buffer: their checksums were wrong, or a filter refused them"
                }
                Some(full) if full >= dropped => "its buffer was full. Fix: raise --receive-buffer",
                _ => {
                    "its buffer was full, or their checksums were wrong. Fix: raise --receive-buffer"
                }
            };
            tell(&format!("the kernel dropped {} more at our socket: {cause}", grouped(dropped)));
        }

        let since_end = self.dropped_at_end.zip(self.dropped_now());
        let late = since_end.map_or(0, |(end, now)| now.wrapping_sub(end));
        if late > 0 {
            tell(&format!(
                "{} arrived after the end had begun, and were not read",
                grouped(late.into())
            ));
        }
    }
}

/// Datagrams that the kernel has dropped because a UDP socket's buffer was full, in this network namespace.
fn full_buffers() -> Option<u64> {
    let host = admin::host::Reader::system().read();
    let counts =
        [host.udp4, host.udp6].map(|errors| errors.and_then(|errors| errors.rcvbuf_errors));
    counts[0].map(|v4| v4 + counts[1].unwrap_or(0))
}

impl File {
    /// Hands over the whole file.
    fn turn(&mut self, take: &mut dyn FnMut(&Datagram<'_>) -> Reader) -> Turn {
        let Ok(mut datagrams) = wire::capture::datagrams(&self.bytes) else { return Turn::Ended };
        for datagram in datagrams.by_ref() {
            let datagram = match datagram {
                Ok(datagram) => datagram,
                Err(error) => {
                    self.broken = Some(error);
                    break;
                }
            };
            if datagram.dst.port() != self.port {
                self.skipped += 1;
                continue;
            }

            let unix_ns = datagram.time_unix_ns.unwrap_or(self.at_ns);
            // Times in a capture of several interfaces may go back.
            self.at_ns = self.at_ns.max(unix_ns);
            let (bytes, source, at_ns) = (datagram.payload, datagram.src.ip(), self.at_ns);
            if take(&Datagram { bytes, source, at_ns, unix_ns }) == Reader::Gone {
                return Turn::Stopped;
            }
        }
        self.partial = datagrams.partial_packets();
        Turn::Ended
    }
}

/// Messages go to standard error. If that is closed, there is nowhere to write them.
fn tell(text: &str) {
    crate::daemon::say_folded(&format!("weir flows: {text}\n"));
}
