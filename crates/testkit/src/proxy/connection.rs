//! One connection through the proxy, and how much of it a fault lets through.

use super::Fault;
use socket2::SockRef;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use sys::poll::{Interest, PollSet};

/// Bytes to read at once, and so the most that the proxy holds in one direction.
const CHUNK_BYTES: u64 = 64 * 1024;

/// The bytes that all connections together may forward now, under [`Fault::Slow`].
pub(super) struct Limits {
    bytes_per_sec: Option<u64>,
    refilled: Instant,
    sent_bytes: u64,
    answered_bytes: u64,
}

impl Limits {
    pub(super) fn new(fault: Fault) -> Limits {
        let bytes_per_sec = match fault {
            Fault::Slow { bytes_per_sec } => Some(bytes_per_sec),
            _ => None,
        };
        let all = if bytes_per_sec.is_none() { u64::MAX } else { 0 };
        Limits { bytes_per_sec, refilled: Instant::now(), sent_bytes: all, answered_bytes: all }
    }

    /// Unused allowance is kept for a tenth of a second.
    pub(super) fn refill(&mut self, now: Instant) {
        let Some(rate) = self.bytes_per_sec else { return };
        let more = (now - self.refilled).as_nanos() * u128::from(rate) / 1_000_000_000;
        if more == 0 {
            return;
        }
        self.refilled = now;
        let kept_max = (rate / 10).max(1);
        let filled = |left: u64| left.saturating_add(more as u64).min(kept_max);
        self.sent_bytes = filled(self.sent_bytes);
        self.answered_bytes = filled(self.answered_bytes);
    }
}

/// What to do with a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Keep,
    Close,
    Reset,
}

/// What one step of a connection did.
pub(super) struct Stepped {
    pub(super) then: Step,
    pub(super) fired: bool,
    pub(super) sent_bytes: u64,
    pub(super) answered_bytes: u64,
}

pub(super) struct Connection {
    client: TcpStream,
    server: TcpStream,
    sent: Way,
    answered: Way,
    /// Whether the current fault has fired here.
    has_fired: bool,
}

impl Connection {
    pub(super) fn new(client: TcpStream, server: TcpStream) -> Connection {
        for stream in [&client, &server] {
            // Either fails only if the peer is gone, which the first read reports too.
            let _ = stream.set_nonblocking(true);
            let _ = stream.set_nodelay(true);
        }
        let (sent, answered) = (Way::default(), Way::default());
        Connection { client, server, sent, answered, has_fired: false }
    }

    /// Resets the counts for the next fault.
    pub(super) fn forget_fault(&mut self) {
        self.has_fired = false;
        self.sent.forwarded_bytes = 0;
        self.answered.forwarded_bytes = 0;
    }

    /// Ends it so that both ends see `ECONNRESET`.
    pub(super) fn reset(self) {
        reset(self.client);
        reset(self.server);
    }

    /// Adds what the connection is waiting for.
    pub(super) fn add_to(&self, set: &mut PollSet, fault: Fault, limits: &Limits) {
        if fault != Fault::Hang {
            self.sent.add_to(set, &self.client, &self.server, limits.sent_bytes);
            self.answered.add_to(set, &self.server, &self.client, limits.answered_bytes);
        }
    }

    /// Forwards what is available, as far as the fault allows.
    pub(super) fn step(&mut self, fault: Fault, limits: &mut Limits) -> Stepped {
        let before = (self.sent.forwarded_bytes, self.answered.forwarded_bytes);
        let moved = self.forward(fault, limits);
        let sent_bytes = self.sent.forwarded_bytes - before.0;
        let answered_bytes = self.answered.forwarded_bytes - before.1;

        let is_over = self.sent.is_over && self.answered.is_over;
        let (fires, then) = match fault {
            _ if moved.is_err() => (false, Step::Reset),
            _ if is_over => (false, Step::Close),
            Fault::ResetAfter { sent_bytes } if self.sent.forwarded_bytes >= sent_bytes => {
                // With 0, at the first byte that the client sends.
                let fires = sent_bytes > 0 || has_more(&self.client);
                (fires, if fires { Step::Reset } else { Step::Keep })
            }
            Fault::CloseAfter { answered_bytes }
                if self.answered.forwarded_bytes >= answered_bytes =>
            {
                let fires = answered_bytes > 0 || has_more(&self.server);
                (fires, if fires { Step::Close } else { Step::Keep })
            }
            Fault::Hang => (has_more(&self.client), Step::Keep),
            Fault::Slow { .. } => {
                let waits = (limits.sent_bytes == 0 && has_more(&self.client))
                    || (limits.answered_bytes == 0 && has_more(&self.server));
                (waits, Step::Keep)
            }
            _ => (false, Step::Keep),
        };
        let fired = fires && !self.has_fired;
        self.has_fired |= fires;
        Stepped { then, fired, sent_bytes, answered_bytes }
    }

    fn forward(&mut self, fault: Fault, limits: &mut Limits) -> io::Result<()> {
        let (mut sent_max, mut answered_max) = (limits.sent_bytes, limits.answered_bytes);
        match fault {
            Fault::Hang => return Ok(()),
            Fault::ResetAfter { sent_bytes } => {
                sent_max = sent_bytes.saturating_sub(self.sent.read_bytes());
            }
            Fault::CloseAfter { answered_bytes } => {
                answered_max = answered_bytes.saturating_sub(self.answered.read_bytes());
            }
            Fault::None | Fault::Slow { .. } | Fault::Refuse => {}
        }
        let sent = self.sent.forward(&self.client, &self.server, sent_max)?;
        let answered = self.answered.forward(&self.server, &self.client, answered_max)?;
        limits.sent_bytes -= sent;
        limits.answered_bytes -= answered;
        Ok(())
    }
}

/// One direction of a connection.
#[derive(Default)]
struct Way {
    /// Read and not written yet.
    pending: Vec<u8>,
    /// Bytes forwarded since the current fault was set.
    forwarded_bytes: u64,
    has_ended: bool,
    /// The end of the stream was forwarded too.
    is_over: bool,
}

impl Way {
    fn read_bytes(&self) -> u64 {
        self.forwarded_bytes + self.pending.len() as u64
    }

    fn add_to(&self, set: &mut PollSet, from: &TcpStream, to: &TcpStream, read_max: u64) {
        if !self.pending.is_empty() {
            set.add(to.as_fd(), Interest::Writable);
        } else if !self.has_ended && read_max > 0 {
            set.add(from.as_fd(), Interest::Readable);
        }
    }

    /// Reads at most `read_max` bytes, and writes. Returns how many were read.
    fn forward(
        &mut self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        read_max: u64,
    ) -> io::Result<u64> {
        let mut read = 0;
        if self.pending.is_empty() && !self.has_ended && read_max > 0 {
            self.pending.resize(read_max.min(CHUNK_BYTES) as usize, 0);
            let result = would_block_as_none(from.read(&mut self.pending));
            let taken = result.as_ref().ok().copied().flatten().unwrap_or(0);
            self.pending.truncate(taken);
            self.has_ended = result? == Some(0);
            read = taken as u64;
        }

        if !self.pending.is_empty() {
            let written = would_block_as_none(to.write(&self.pending))?.unwrap_or(0);
            self.pending.drain(..written);
            self.forwarded_bytes += written as u64;
        }
        if self.has_ended && self.pending.is_empty() && !self.is_over {
            self.is_over = true;
            to.shutdown(Shutdown::Write)?;
        }
        Ok(read)
    }
}

pub(super) fn add_listener(set: &mut PollSet, listener: &TcpListener) {
    set.add(listener.as_fd(), Interest::Readable);
}

/// Closes with a RST instead of a FIN.
pub(super) fn reset(stream: TcpStream) {
    let lingering = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    lingering.expect("a TCP socket has the option");
}

fn has_more(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_ok_and(|len| len > 0)
}

fn would_block_as_none(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(len) => Ok(Some(len)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
