//! A stream: messages of equal length one after another, all of them, in order, some day.

use super::udp::is_timeout;
use super::{Listening, Received, Receiving, Sending, Sent, Transport};
use crate::experiment::model::TransportName;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The send buffer of the bounded kind, in bytes of the kernel's accounting: about a tenth of a second of messages.
const BOUNDED_BUFFER_BYTES: usize = 32 * 1024;
const RTO_MAX: Duration = Duration::from_secs(1);

/// TCP with one congestion control and one set of options.
pub(super) struct Tcp {
    congestion_control: &'static str,
    nagle: Nagle,
    buffer: Buffer,
    rto: Rto,
    framing: Framing,
}

/// Whether small segments wait for the acknowledgement of earlier ones (RFC 896).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nagle {
    On,
    Off,
}

/// What happens to a message when the send buffer is full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Buffer {
    /// The sender waits, and the buffer grows as the kernel likes.
    Waits,
    /// The buffer is small, and the message is thrown away: old telemetry is worth less than new.
    Refuses,
}

/// How far the retransmission timeout may double.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rto {
    System,
    OneSecond,
}

/// How the receiver finds the beginning of the next message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// All messages are of one length.
    FixedLength,
    /// Their length in decimal digits and a space before each (octet counting, RFC 6587 section 3.4.1).
    Syslog,
}

impl Tcp {
    pub(super) fn new(congestion_control: &'static str) -> Tcp {
        Tcp {
            congestion_control,
            nagle: Nagle::On,
            buffer: Buffer::Waits,
            rto: Rto::System,
            framing: Framing::FixedLength,
        }
    }

    pub(super) fn without_nagle(self) -> Tcp {
        Tcp { nagle: Nagle::Off, ..self }
    }

    pub(super) fn with_bounded_buffer(self) -> Tcp {
        Tcp { buffer: Buffer::Refuses, ..self }
    }

    pub(super) fn with_rto_max_1s(self) -> Tcp {
        Tcp { rto: Rto::OneSecond, ..self }
    }

    pub(super) fn framed_as_syslog(self) -> Tcp {
        Tcp { framing: Framing::Syslog, ..self }
    }
}

impl Transport for Tcp {
    fn name(&self) -> TransportName {
        let mut name = format!("tcp-{}", self.congestion_control);
        for (is_so, part) in [
            (self.nagle == Nagle::Off, "-nodelay"),
            (self.rto == Rto::OneSecond, "-rto1s"),
            (self.buffer == Buffer::Refuses, "-bounded"),
            (self.framing == Framing::Syslog, "-syslog"),
        ] {
            if is_so {
                name.push_str(part);
            }
        }
        TransportName(name)
    }

    fn options(&self) -> String {
        let mut parts = vec![format!("TCP_CONGESTION {}", self.congestion_control)];
        if self.nagle == Nagle::Off {
            parts.push("TCP_NODELAY".to_owned());
        }
        if self.rto == Rto::OneSecond {
            parts.push(format!("TCP_RTO_MAX_MS {}", RTO_MAX.as_millis()));
        }
        if self.buffer == Buffer::Refuses {
            parts.push(format!(
                "send buffer {BOUNDED_BUFFER_BYTES} bytes, messages refused when it is full"
            ));
        }
        if self.framing == Framing::Syslog {
            parts.push("octet counting (RFC 6587)".to_owned());
        }

        parts.join(", ")
    }

    fn is_reliable(&self) -> bool {
        true
    }

    fn listen(&self, addr: SocketAddr) -> io::Result<Box<dyn Listening>> {
        let listener = TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        Ok(Box::new(Waiting { listener, framing: self.framing }))
    }

    fn connect(&self, to: SocketAddr, deadline: Instant) -> io::Result<Box<dyn Sending>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let stream = TcpStream::connect_timeout(&to, left.max(Duration::from_millis(1)))?;
        let context =
            |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));

        sys::tcp::set_congestion_control(stream.as_fd(), self.congestion_control)
            .map_err(|error| context(self.congestion_control, error))?;
        stream.set_nodelay(self.nagle == Nagle::Off)?;
        if self.rto == Rto::OneSecond {
            sys::tcp::set_rto_max(stream.as_fd(), RTO_MAX)
                .map_err(|errno| context("TCP_RTO_MAX_MS", errno.into()))?;
        }

        if self.buffer == Buffer::Refuses {
            sys::tcp::set_send_buffer(stream.as_fd(), BOUNDED_BUFFER_BYTES)?;
            stream.set_nonblocking(true)?;
        }

        Ok(Box::new(Sender {
            stream,
            framing: self.framing,
            buffer: self.buffer,
            framed: Vec::new(),
            done: 0,
        }))
    }
}

struct Waiting {
    listener: TcpListener,
    framing: Framing,
}

impl Listening for Waiting {
    fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    fn accept(self: Box<Self>, deadline: Instant) -> io::Result<Box<dyn Receiving>> {
        let mut poll = sys::poll::PollSet::default();
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(Box::new(Receiver {
                        stream,
                        framing: self.framing,
                        filled: 0,
                        frame: Vec::new(),
                    }));
                }
                Err(error) if is_timeout(&error) && Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }

            poll.clear();
            poll.add(self.listener.as_fd(), sys::poll::Interest::Readable);
            // An error here is a signal: accept says what there is.
            let _ = poll.wait(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

struct Sender {
    stream: TcpStream,
    framing: Framing,
    buffer: Buffer,
    /// The message under way, with its frame.
    framed: Vec<u8>,
    /// Bytes of it that the kernel has.
    done: usize,
}

impl Sending for Sender {
    fn send(&mut self, message: &[u8], deadline: Instant) -> io::Result<Sent> {
        if self.buffer == Buffer::Refuses && self.write_now()? == Sent::Waits {
            // A message that was begun is finished first.
            return Ok(Sent::Refused);
        }
        self.framed.clear();
        self.done = 0;
        if self.framing == Framing::Syslog {
            write!(self.framed, "{} ", message.len())?;
        }
        self.framed.extend_from_slice(message);
        match self.buffer {
            Buffer::Waits => self.go_on(deadline),
            Buffer::Refuses => self.write_or_refuse(),
        }
    }

    fn go_on(&mut self, deadline: Instant) -> io::Result<Sent> {
        while let Some(rest) = self.framed.get(self.done..).filter(|rest| !rest.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Sent::Waits);
            }
            self.stream.set_write_timeout(Some(left.max(Duration::from_micros(1))))?;
            match self.stream.write(rest) {
                Ok(len) => self.done += len,
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Sent::Taken)
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn tcp(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }
}

impl Sender {
    /// Refuses a message of which the kernel takes nothing; one that it takes a part of is under way.
    fn write_or_refuse(&mut self) -> io::Result<Sent> {
        if self.write_now()? == Sent::Waits && self.done == 0 {
            self.framed.clear();
            return Ok(Sent::Refused);
        }
        Ok(Sent::Taken)
    }

    /// Writes what the kernel takes at once. The stream does not block.
    fn write_now(&mut self) -> io::Result<Sent> {
        while let Some(rest) = self.framed.get(self.done..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(len) => self.done += len,
                Err(error) if is_timeout(&error) => return Ok(Sent::Waits),
                Err(error) => return Err(error),
            }
        }
        Ok(Sent::Taken)
    }
}

struct Receiver {
    stream: TcpStream,
    framing: Framing,
    /// Bytes of the message under way that have come.
    filled: usize,
    /// Its frame, as far as it has come.
    frame: Vec<u8>,
}

impl Receiving for Receiver {
    fn receive(&mut self, message: &mut [u8], deadline: Instant) -> io::Result<Received> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Received::Nothing);
            }
            self.stream.set_read_timeout(Some(left.max(Duration::from_micros(1))))?;

            let read = match self.framing {
                Framing::Syslog if self.frame.last() != Some(&b' ') => self.read_frame(message),
                _ => {
                    self.stream.read(&mut message[self.filled..]).inspect(|len| self.filled += len)
                }
            };

            match read {
                Ok(0) => return Ok(Received::End),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }

            if self.filled == message.len() {
                self.filled = 0;
                self.frame.clear();
                return Ok(Received::Message);
            }
        }
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Receiver {
    /// Reads one byte of the length before the message, and checks it when it is whole.
    fn read_frame(&mut self, message: &[u8]) -> io::Result<usize> {
        let mut byte = [0];
        let len = self.stream.read(&mut byte)?;
        self.frame.extend_from_slice(&byte[..len]);
        let expected = format!("{} ", message.len());
        if expected.as_bytes().starts_with(&self.frame) {
            return Ok(len);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "not the length of a message"))
    }
}
