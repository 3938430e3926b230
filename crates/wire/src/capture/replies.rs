//! Matches the replies of a capture with its requests: a reply alone seldom reveals its socket's protocol.

use super::protocol::{DCCPDIAG_GETSOCK, Protocol, is_event, kin, kin_of_reply};
use crate::DecodeError;
use crate::bytes::u16_at;
use crate::inet_diag::request::{SOCK_DESTROY, SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK};
use crate::netlink::{
    HEADER_BYTES, Message, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTI, NLM_F_REQUEST, NLMSG_DONE,
    NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, done_status, error_of,
};

/// Most requests that may wait for replies at once. A host has as many as programs asking at the same moment; beyond this, the
/// oldest counts as unanswered.
const OPEN_MAX: usize = 256;

/// The meaning of a message in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A TCP socket: pass the body to [`decode`](crate::inet_diag::decode), which detects damage.
    Tcp,
    /// The end of a TCP socket, which the kernel multicasts; pass the body to [`decode`](crate::inet_diag::decode) as well. A
    /// monitor receives it once for each program that listens.
    Close,
    /// A socket of another protocol.
    Other(Protocol),
    /// A socket whose protocol neither the message nor a request in the capture reveals.
    Untold,
    /// A request.
    Request,
    /// The successful end of a dump.
    End,
    /// The kernel refused a request, or ended a dump early.
    Failed(Failure),
    /// Messages were lost before the capture (`NLMSG_OVERRUN`).
    Lost,
    /// No meaning: an acknowledgment or a filler.
    Nothing,
}

/// What failed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The protocol asked for; `None` if the capture does not show it.
    pub protocol: Option<Protocol>,
    /// The kind of request.
    pub asked: Asked,
    /// The kernel's reason: a positive `errno`.
    pub errno: i32,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Asked {
    /// Every matching socket.
    Dump,
    /// One socket.
    LookUp,
    /// Destroying a socket (`SOCK_DESTROY`).
    Destroy,
    /// The capture does not show it.
    Unknown,
}

impl Asked {
    const fn of(kind: u16, flags: u16) -> Self {
        match kind {
            SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK | DCCPDIAG_GETSOCK if flags & NLM_F_DUMP != 0 => {
                Self::Dump
            }
            SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK | DCCPDIAG_GETSOCK => Self::LookUp,
            SOCK_DESTROY => Self::Destroy,
            _ => Self::Unknown,
        }
    }

    /// The kind of the request whose header an error repeats.
    fn of_echo(echo: &[u8]) -> Self {
        let Some(head) = echo.first_chunk::<HEADER_BYTES>() else { return Self::Unknown };
        Self::of(u16_at::<4, HEADER_BYTES>(head), u16_at::<6, HEADER_BYTES>(head))
    }
}

/// Reads the messages of a capture in order, and keeps track of open requests: each one until the kernel has answered it, by the
/// port of the requesting socket and the sequence number.
///
/// When two requests with the same sequence number are open at once, and the capture does not reveal which of them a reply
/// answers, the reply is judged by itself, like one without a request.
#[derive(Clone, Debug)]
pub struct Replies {
    /// Oldest first.
    open: Vec<Open>,
    /// The protocol to assume for a reply that nothing identifies.
    otherwise: Option<Protocol>,
    unanswered: Vec<Option<Protocol>>,
    requests: u64,
    headless_dumps: u64,
    interrupted_dumps: u64,
}

/// A request, or a dump whose request is not in the capture.
#[derive(Clone, Copy, Debug)]
struct Open {
    port: Port,
    sequence: u32,
    protocol: Option<Protocol>,
    /// The request states the protocol; otherwise it is taken from the first socket that reveals its own.
    is_told: bool,
    asked: Asked,
    is_interrupted: bool,
}

/// The netlink port of the requesting socket. Few programs write it into their requests; the kernel puts it into every reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Unknown,
    Claimed(u32),
    Known(u32),
}

/// The request that a message answers.
#[derive(Clone, Copy)]
struct Found {
    index: usize,
    /// The message answers this request, or others that all ask for the same protocol.
    is_certain: bool,
}

impl Replies {
    /// Starts with a new capture. `otherwise` is the protocol to assume for a socket that nothing identifies: for a file of `ss
    /// -D`, which contains nothing else, [`Protocol::Tcp`].
    #[must_use]
    pub const fn new(otherwise: Option<Protocol>) -> Self {
        Self {
            open: Vec::new(),
            otherwise,
            unanswered: Vec::new(),
            requests: 0,
            headless_dumps: 0,
            interrupted_dumps: 0,
        }
    }

    /// The meaning of the next message.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the status of an end or an error is truncated, [`DecodeError::UnknownKind`] for a message
    /// type that the socket diagnosis does not have. Damage in a body is for [`decode`](crate::inet_diag::decode) to detect.
    pub fn judge(&mut self, message: &Message<'_>) -> Result<Meaning, DecodeError> {
        let is_request = message.flags & NLM_F_REQUEST != 0;
        match message.kind {
            NLMSG_NOOP => Ok(Meaning::Nothing),
            NLMSG_ERROR => self.error(message),
            NLMSG_DONE => self.done(message),
            NLMSG_OVERRUN => Ok(Meaning::Lost),
            SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK | DCCPDIAG_GETSOCK if is_request => {
                self.request(message);
                Ok(Meaning::Request)
            }
            SOCK_DESTROY if is_request => Ok(Meaning::Request),
            SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK | DCCPDIAG_GETSOCK => Ok(self.reply(message)),
            kind => Err(DecodeError::UnknownKind(kind)),
        }
    }

    /// The protocols of requests that have no answer in the capture, or an incomplete one; `None` if the protocol is unknown.
    /// Complete after the last message.
    pub fn unanswered(&self) -> impl Iterator<Item = Option<Protocol>> + '_ {
        let open = self.open.iter().map(|open| open.protocol);
        self.unanswered.iter().copied().chain(open)
    }

    /// Dumps of TCP, or of an unknown protocol, whose request, and possibly first sockets, came before the capture began; 0 for a
    /// capture without any request, which holds only replies.
    #[must_use]
    pub const fn headless_dumps(&self) -> u64 {
        if self.requests == 0 { 0 } else { self.headless_dumps }
    }

    /// Dumps that the kernel marked as disturbed by a change (`NLM_F_DUMP_INTR`): they may lack sockets or list some twice.
    #[must_use]
    pub const fn interrupted_dumps(&self) -> u64 {
        self.interrupted_dumps
    }

    fn request(&mut self, message: &Message<'_>) {
        self.requests += 1;
        self.begin(Open {
            port: if message.port_id == 0 { Port::Unknown } else { Port::Claimed(message.port_id) },
            sequence: message.sequence,
            protocol: Protocol::of_request(message),
            is_told: true,
            asked: Asked::of(message.kind, message.flags),
            is_interrupted: false,
        });
    }

    /// Stores a request or dump, and returns its index.
    fn begin(&mut self, open: Open) -> usize {
        // Bounded, because a capture may hold requests without their replies.
        if self.open.len() == OPEN_MAX {
            self.unanswered.push(self.open.remove(0).protocol);
        }
        self.open.push(open);
        self.open.len() - 1
    }

    fn reply(&mut self, message: &Message<'_>) -> Meaning {
        if is_event(message)
            && let Some(own) = Protocol::of_reply(message)
        {
            return if own == Protocol::Tcp { Meaning::Close } else { Meaning::Other(own) };
        }

        let before = self.find(message, kin_of_reply(message));
        let found = before.or_else(|| {
            let is_dump = message.flags & NLM_F_MULTI != 0;
            is_dump.then(|| Found { index: self.begin_headless(message), is_certain: true })
        });

        let by_itself = || Protocol::of_reply(message);
        let Some(Found { index, is_certain }) = found else {
            return self.meaning(by_itself(), message);
        };

        if !is_certain {
            self.forget_protocols(message);
        }

        let Some(open) = self.open.get_mut(index) else {
            return self.meaning(by_itself(), message);
        };

        self.interrupted_dumps += open.note_interruption(message);
        // The port that the request claimed no longer counts: the kernel's is authoritative.
        open.port = Port::Known(message.port_id);
        let protocol = if open.is_told { open.protocol } else { by_itself() };
        open.protocol = open.protocol.or(protocol);

        if before.is_none() && protocol.is_none_or(|protocol| protocol == Protocol::Tcp) {
            self.headless_dumps += 1;
        }

        // A lookup has one reply; a dump stays open until its end.
        if open.asked == Asked::LookUp {
            self.open.remove(index);
        }

        self.meaning(protocol, message)
    }

    fn begin_headless(&mut self, message: &Message<'_>) -> usize {
        self.begin(Open {
            port: Port::Known(message.port_id),
            sequence: message.sequence,
            protocol: None,
            is_told: false,
            asked: Asked::Dump,
            is_interrupted: false,
        })
    }

    fn meaning(&self, protocol: Option<Protocol>, message: &Message<'_>) -> Meaning {
        match protocol.or(self.otherwise) {
            Some(Protocol::Tcp) => Meaning::Tcp,
            Some(other) => Meaning::Other(other),
            // Bytes of no known family are damaged, and decoding reports how.
            None if kin_of_reply(message).is_none() => Meaning::Tcp,
            None => Meaning::Untold,
        }
    }

    fn done(&mut self, message: &Message<'_>) -> Result<Meaning, DecodeError> {
        let status = done_status(message.body)?;

        let mut protocol = None;
        if message.port_id == 0 && message.sequence == 0 {
            // No socket has port 0: this is the end of a file made by `Writer`, and ends everything in it.
            self.open.clear();
        } else if let Some(Found { index, is_certain }) = self.find(message, None) {
            if !is_certain {
                self.forget_protocols(message);
            }
            let mut open = self.open.remove(index);
            self.interrupted_dumps += open.note_interruption(message);
            protocol = open.protocol;
        } else {
            self.interrupted_dumps += u64::from(message.flags & NLM_F_DUMP_INTR != 0);
        }

        Ok(match status {
            0.. => Meaning::End,
            errno => Meaning::Failed(Failure {
                protocol: protocol.or(self.otherwise),
                asked: Asked::Dump,
                errno: errno.saturating_neg(),
            }),
        })
    }

    /// It is unknown which of several requests was answered, so the protocols of the others are unknown too.
    fn forget_protocols(&mut self, message: &Message<'_>) {
        for open in &mut self.open {
            if open.may_be_answered_by(message, None) {
                (open.protocol, open.is_told) = (None, false);
            }
        }
    }

    fn error(&mut self, message: &Message<'_>) -> Result<Meaning, DecodeError> {
        let code = error_of(message.body)?;
        if code >= 0 {
            return Ok(Meaning::Nothing);
        }

        // The kernel repeats the request, or only its header if the socket asked for that (`NETLINK_CAP_ACK`).
        let echo = message.body.get(4..).unwrap_or_default();
        let asked = Asked::of_echo(echo);
        let of_request =
            self.refused(message, asked).and_then(|index| self.open.remove(index).protocol);
        let of_echo = || Message::first(echo).ok().and_then(|echo| Protocol::of_request(&echo));

        Ok(Meaning::Failed(Failure {
            protocol: of_request.or_else(of_echo).or(self.otherwise),
            asked,
            errno: code.saturating_neg(),
        }))
    }

    /// The request that an error is about: the newest unanswered one, because the kernel refuses a second dump while the socket
    /// is busy with one (-EBUSY); otherwise a dump in progress.
    fn refused(&self, message: &Message<'_>, asked: Asked) -> Option<usize> {
        let is_it = |open: &Open| {
            let is_asked = asked == Asked::Unknown || asked == open.asked;
            is_asked && open.may_be_answered_by(message, None)
        };

        // A dump in progress has a known port; an unanswered request does not have one yet.
        let newest = self.open.iter().rposition(|open| is_it(open) && !open.port.is_known());
        newest.or_else(|| self.open.iter().position(is_it))
    }

    /// The request that a message answers: one with the port in the message, or one whose port is still unknown.
    fn find(&self, message: &Message<'_>, kin: Option<u8>) -> Option<Found> {
        let by_sequence = |is_claimed_elsewhere: bool| {
            let fits = self.open.iter().enumerate().filter(move |(_, open)| {
                open.may_be_answered_by(message, kin)
                    && open.port.is_claimed_elsewhere(message.port_id) == is_claimed_elsewhere
            });
            // Of several, prefer one that has been answered before; otherwise the oldest.
            fits.fold(None, |found: Option<Found>, (index, open)| {
                let Some(before) = found else { return Some(Found { index, is_certain: true }) };
                let same = self.open.get(before.index).map(|open| open.protocol);
                Some(Found {
                    index: if open.port.is_known() { index } else { before.index },
                    is_certain: before.is_certain && same == Some(open.protocol),
                })
            })
        };

        // Some programs claim their process id, which may be another socket's port or nobody's.
        by_sequence(false).or_else(|| by_sequence(true))
    }
}

impl Open {
    fn may_be_answered_by(&self, message: &Message<'_>, kin_of_message: Option<u8>) -> bool {
        let is_kin = match (kin(self.protocol), kin_of_message) {
            (Some(wanted), Some(said)) => wanted == said,
            _ => true,
        };

        let is_port = match self.port {
            // No socket has port 0: it marks the end of a dump written by a program that left the port out.
            Port::Known(port) => {
                port == message.port_id || (message.port_id == 0 && message.kind == NLMSG_DONE)
            }
            Port::Unknown | Port::Claimed(_) => true,
        };

        // Only dumps have an end.
        let is_kind = message.kind != NLMSG_DONE || self.asked == Asked::Dump;
        self.sequence == message.sequence && is_port && is_kin && is_kind
    }

    /// 1 for the first message of a dump that is marked as disturbed.
    fn note_interruption(&mut self, message: &Message<'_>) -> u64 {
        let is_new = message.flags & NLM_F_DUMP_INTR != 0 && !self.is_interrupted;
        self.is_interrupted |= is_new;
        u64::from(is_new)
    }
}

impl Port {
    const fn is_known(self) -> bool {
        matches!(self, Self::Known(_))
    }

    const fn is_claimed_elsewhere(self, port: u32) -> bool {
        matches!(self, Self::Claimed(claimed) if claimed != port)
    }
}
