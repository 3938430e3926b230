//! A stream: messages of equal length one after another, complete and in order, but possibly late.

use super::udp::is_timeout;
use super::{Listening, Received, Receiving, Sending, Sent, Transport};
use crate::experiment::model::TransportName;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The send buffer of the bounded variant, in bytes as counted by the kernel: about a tenth of a second of messages.
const BOUNDED_BUFFER_BYTES: usize = 32 * 1024;
const RTO_MAX: Duration = Duration::from_secs(1);

/// TCP with one congestion control, in one variant.
pub(super) struct Tcp {
    pub(super) congestion_control: &'static str,
    pub(super) variant: Variant,
}

/// How a variant differs from the default.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// No difference: small segments wait for the acknowledgment of earlier ones (RFC 896), the sender waits when the send
    /// buffer is full, the kernel chooses the size of this buffer, and all messages have the same length.
    Plain,
    /// Small segments do not wait.
    NoDelay,
    /// The retransmission timeout doubles up to one second.
    Rto1s,
    /// The send buffer is small, and a message is discarded when it is full: old telemetry is less useful than new.
    Bounded,
    /// Each message is preceded by its length in decimal digits and a space (octet counting, RFC 6587 section 3.4.1).
    Syslog,
}

impl Transport for Tcp {
    fn name(&self) -> TransportName {
        let suffix = match self.variant {
            Variant::Plain => "",
            Variant::NoDelay => "-nodelay",
            Variant::Rto1s => "-rto1s",
            Variant::Bounded => "-bounded",
            Variant::Syslog => "-syslog",
        };
        TransportName(format!("tcp-{}{suffix}", self.congestion_control))
    }

    fn options(&self) -> String {
        let more = match self.variant {
            Variant::Plain => String::new(),
            Variant::NoDelay => ", TCP_NODELAY".to_owned(),
            Variant::Rto1s => format!(", TCP_RTO_MAX_MS {}", RTO_MAX.as_millis()),
            Variant::Bounded => format!(
                ", send buffer {BOUNDED_BUFFER_BYTES} bytes, messages refused when it is full"
            ),
            Variant::Syslog => ", octet counting (RFC 6587)".to_owned(),
        };
        format!("TCP_CONGESTION {}{more}", self.congestion_control)
    }

    fn repairs_for(&self) -> Duration {
        Duration::MAX
    }

    fn listen(&self, addr: SocketAddr) -> io::Result<Box<dyn Listening>> {
        let listener = TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        Ok(Box::new(Waiting { listener, variant: self.variant }))
    }

    fn connect(&self, to: SocketAddr, deadline: Instant) -> io::Result<Box<dyn Sending>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let stream = TcpStream::connect_timeout(&to, left.max(Duration::from_millis(1)))?;
        let context =
            |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));

        sys::tcp::set_congestion_control(stream.as_fd(), self.congestion_control)
            .map_err(|error| context(self.congestion_control, error))?;
        stream.set_nodelay(self.variant == Variant::NoDelay)?;
        if self.variant == Variant::Rto1s {
            sys::tcp::set_rto_max(stream.as_fd(), RTO_MAX)
                .map_err(|errno| context("TCP_RTO_MAX_MS", errno.into()))?;
        }

        if self.variant == Variant::Bounded {
            sys::tcp::set_send_buffer(stream.as_fd(), BOUNDED_BUFFER_BYTES)?;
            stream.set_nonblocking(true)?;
        }

        Ok(Box::new(Sender { stream, variant: self.variant, framed: Vec::new(), done: 0 }))
    }
}

struct Waiting {
    listener: TcpListener,
    variant: Variant,
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
                        variant: self.variant,
                        filled: 0,
                        frame: Vec::new(),
                    }));
                }
                Err(error) if is_timeout(&error) && Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }

            poll.clear();
            poll.add(self.listener.as_fd(), sys::poll::Interest::Readable);
            // This fails only when a signal interrupts it; `accept` then reports the state.
            let _ = poll.wait(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

struct Sender {
    stream: TcpStream,
    variant: Variant,
    /// The current message, with its frame.
    framed: Vec<u8>,
    /// Bytes of the message that the kernel has accepted.
    done: usize,
}

impl Sending for Sender {
    fn send(&mut self, message: &[u8], deadline: Instant) -> io::Result<Sent> {
        if self.variant == Variant::Bounded && self.write_now()? == Sent::Waits {
            // A partly sent message is finished first.
            return Ok(Sent::Refused);
        }

        self.framed.clear();
        self.done = 0;
        if self.variant == Variant::Syslog {
            write!(self.framed, "{} ", message.len())?;
        }
        self.framed.extend_from_slice(message);

        match self.variant {
            Variant::Bounded => self.write_or_refuse(),
            _ => self.go_on(deadline),
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
    /// Refuses a message if the kernel accepts nothing of it; a partly accepted message is continued later.
    fn write_or_refuse(&mut self) -> io::Result<Sent> {
        if self.write_now()? == Sent::Waits && self.done == 0 {
            self.framed.clear();
            return Ok(Sent::Refused);
        }
        Ok(Sent::Taken)
    }

    /// Writes what the kernel accepts immediately. The stream does not block.
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
    variant: Variant,
    /// Received bytes of the current message.
    filled: usize,
    /// The received part of the message's frame.
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

            let read = match self.variant {
                Variant::Syslog if self.frame.last() != Some(&b' ') => self.read_frame(message),
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
    /// Reads one byte of the length before the message, and checks the length when it is complete.
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
