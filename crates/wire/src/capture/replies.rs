//! Which reply of a capture answers which request: a reply alone seldom says of which protocol its socket is.

use super::protocol::{DCCPDIAG_GETSOCK, Protocol, is_event, kin, kin_of_reply};
use crate::DecodeError;
use crate::bytes::u16_at;
use crate::inet_diag::request::{SOCK_DESTROY, SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK};
use crate::netlink::{
    HEADER_BYTES, Message, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTI, NLM_F_REQUEST, NLMSG_DONE,
    NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, done_status, error_of,
};

/// Requests that may wait for their answers at once. A host has as many as programs ask at the same moment; with more, the
/// oldest counts as unanswered.
const OPEN_MAX: usize = 256;

/// What a message of a capture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A TCP socket: [`decode`](crate::inet_diag::decode) is for its body, and says whether it is damaged.
    Tcp,
    /// The end of a TCP socket, which the kernel multicasts; [`decode`](crate::inet_diag::decode) is for its body as well. A
    /// monitor hears it once for each program that listens.
    Close,
    /// A socket of another protocol.
    Other(Protocol),
    /// A socket of a protocol that neither the message nor a request in the capture says.
    Untold,
    /// A request.
    Request,
    /// The end of a dump, and that all is well.
    End,
    /// The kernel refused a request, or ended a dump early.
    Failed(Failure),
    /// Messages were lost before the capture (`NLMSG_OVERRUN`).
    Lost,
    /// Nothing: an acknowledgement or a filler.
    Nothing,
}

/// What failed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whose sockets were asked for; `None` where the capture does not show it.
    pub protocol: Option<Protocol>,
    /// What was asked.
    pub asked: Asked,
    /// The kernel's reason: a positive `errno`.
    pub errno: i32,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Asked {
    /// Every socket that fits.
    Dump,
    /// One socket.
    LookUp,
    /// The end of a socket (`SOCK_DESTROY`).
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

    /// What the request asked that an error repeats the header of.
    fn of_echo(echo: &[u8]) -> Self {
        let Some(head) = echo.first_chunk::<HEADER_BYTES>() else { return Self::Unknown };
        Self::of(u16_at::<4, HEADER_BYTES>(head), u16_at::<6, HEADER_BYTES>(head))
    }
}

/// Reads the messages of a capture in their order, and keeps what is open between them: each request until the kernel has
/// answered it, by the port of the socket that asked and the sequence number.
///
/// Where two requests of one sequence number are open at once, and the capture does not show which of them a reply answers,
/// the reply is judged by itself, as one without a request is.
#[derive(Clone, Debug)]
pub struct Replies {
    /// Oldest first.
    open: Vec<Open>,
    /// What a reply counts as when nothing says its protocol.
    otherwise: Option<Protocol>,
    unanswered: Vec<Option<Protocol>>,
    requests: u64,
    headless_dumps: u64,
    interrupted_dumps: u64,
}

/// A request, or a dump whose request the capture does not have.
#[derive(Clone, Copy, Debug)]
struct Open {
    port: Port,
    sequence: u32,
    protocol: Option<Protocol>,
    /// The request says the protocol; otherwise it is that of the first socket that says its own.
    is_told: bool,
    asked: Asked,
    is_interrupted: bool,
}

/// The netlink port of the socket that asked. Few programs write it into their requests; the kernel says it in every reply.
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
    /// It answers this one, or others that ask for the same protocol.
    is_certain: bool,
}

impl Replies {
    /// Begins a capture. `otherwise` is what a socket counts as when nothing says its protocol: in a file of
    /// `ss -D`, which writes nothing else, [`Protocol::Tcp`].
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

    /// What the next message is.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the status of an end or an error is cut, [`DecodeError::UnknownKind`] for a message that
    /// the socket diagnosis does not have. A body that is damaged is [`decode`](crate::inet_diag::decode)'s to find.
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

    /// The requests that the capture has no answer to, or not the end of it: whose sockets each asked for, `None` where that is
    /// not known. Complete after the last message.
    pub fn unanswered(&self) -> impl Iterator<Item = Option<Protocol>> + '_ {
        let open = self.open.iter().map(|open| open.protocol);
        self.unanswered.iter().copied().chain(open)
    }

    /// Dumps of TCP, or of a protocol that is not known, whose request, and perhaps first sockets, came before the capture began;
    /// 0 for a capture without any request, which holds answers only.
    #[must_use]
    pub const fn headless_dumps(&self) -> u64 {
        if self.requests == 0 { 0 } else { self.headless_dumps }
    }

    /// Dumps that the kernel marked as disturbed by a change (`NLM_F_DUMP_INTR`): sockets may be missing or twice in them.
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

    /// Keeps a request or dump, and gives its place.
    fn begin(&mut self, open: Open) -> usize {
        // Bounded, since a capture may hold requests whose answers it lacks.
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
        // What the request claimed does not count any more: the kernel says the port.
        open.port = Port::Known(message.port_id);
        let protocol = if open.is_told { open.protocol } else { by_itself() };
        open.protocol = open.protocol.or(protocol);

        if before.is_none() && protocol.is_none_or(|protocol| protocol == Protocol::Tcp) {
            self.headless_dumps += 1;
        }

        // A look-up has one answer; a dump stays open until its end.
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
            // Bytes that are of no family at all are damaged, and decoding says how.
            None if kin_of_reply(message).is_none() => Meaning::Tcp,
            None => Meaning::Untold,
        }
    }

    fn done(&mut self, message: &Message<'_>) -> Result<Meaning, DecodeError> {
        let status = done_status(message.body)?;

        let mut protocol = None;
        if message.port_id == 0 && message.sequence == 0 {
            // No socket has port 0: this is the end of a file that `Writer` made, for all that is in it.
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

    /// Which of several requests was answered is not known, so what the others are is not known either.
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

        // The kernel repeats the request, or only its header where the socket asked for that (`NETLINK_CAP_ACK`).
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

    /// The request that an error is about: the newest without an answer, since of a socket that is still busy with one dump the
    /// kernel refuses the second (-EBUSY); or else a dump under way.
    fn refused(&self, message: &Message<'_>, asked: Asked) -> Option<usize> {
        let is_it = |open: &Open| {
            let is_asked = asked == Asked::Unknown || asked == open.asked;
            is_asked && open.may_be_answered_by(message, None)
        };

        // A dump under way has a known port; a request without an answer has none yet.
        let newest = self.open.iter().rposition(|open| is_it(open) && !open.port.is_known());
        newest.or_else(|| self.open.iter().position(is_it))
    }

    /// The request that a message answers: one whose port it names, or one whose port is not known yet.
    fn find(&self, message: &Message<'_>, kin: Option<u8>) -> Option<Found> {
        let by_sequence = |is_claimed_elsewhere: bool| {
            let fits = self.open.iter().enumerate().filter(move |(_, open)| {
                open.may_be_answered_by(message, kin)
                    && open.port.is_claimed_elsewhere(message.port_id) == is_claimed_elsewhere
            });
            // Of several, one that has been answered before is likelier than one that waits, else the oldest.
            fits.fold(None, |found: Option<Found>, (index, open)| {
                let Some(before) = found else { return Some(Found { index, is_certain: true }) };
                let same = self.open.get(before.index).map(|open| open.protocol);
                Some(Found {
                    index: if open.port.is_known() { index } else { before.index },
                    is_certain: before.is_certain && same == Some(open.protocol),
                })
            })
        };

        // Some programs claim the number of their process, which is another socket's port or nobody's.
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
            // No socket has port 0: the end of a dump that says it was written by a program, which left the port out.
            Port::Known(port) => {
                port == message.port_id || (message.port_id == 0 && message.kind == NLMSG_DONE)
            }
            Port::Unknown | Port::Claimed(_) => true,
        };

        // Only dumps have an end.
        let is_kind = message.kind != NLMSG_DONE || self.asked == Asked::Dump;
        self.sequence == message.sequence && is_port && is_kin && is_kind
    }

    /// 1 for the first message of a dump that says it was disturbed.
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
