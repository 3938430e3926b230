//! One walk of the kernel's socket table in one namespace, with every answer checked.

mod steps;

pub(crate) use steps::Steps;

use ledger::NamespaceError;
use std::fmt;
use sys::Errno;
use sys::clock::monotonic_ns;
use sys::netlink::{DUMP_BUFFER_BYTES, Socket};
use wire::DecodeError;
use wire::inet_diag::request::{IPPROTO_TCP, IPPROTO_UDP, SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK};
use wire::inet_diag::{Extensions, Family, Kind, Request, SocketId, SocketMessage, States, decode};
use wire::netlink::{Messages, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, done_status, error_of};

/// Which protocol's sockets are walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    #[default]
    Tcp,
    Udp,
}

impl Transport {
    /// The IP protocol number.
    #[must_use]
    pub const fn protocol(self) -> u16 {
        match self {
            Transport::Tcp => IPPROTO_TCP,
            Transport::Udp => IPPROTO_UDP,
        }
    }
}

/// A request to the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub transport: Transport,
    /// States of the wanted sockets.
    pub states: States,
    /// Wanted attributes.
    pub extensions: Extensions,
    /// A filter that the kernel applies. Empty for none.
    pub bytecode: &'a [u8],
}

/// Receives the results of a walk.
pub trait Visitor {
    /// One socket, and its message as the kernel sent it, including the netlink header.
    fn socket(&mut self, message: &SocketMessage<'_>, raw: &[u8]);

    /// A message that violates its format.
    fn malformed(&mut self, error: DecodeError);

    /// Called after each datagram, at most a few milliseconds apart: a chance for other work.
    fn pause(&mut self) {}
}

/// What a walk took.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Walked {
    /// Bytes read.
    pub bytes: u64,
    /// Datagrams read.
    pub datagrams: u64,
    /// Dumps requested: one, or one per family.
    pub dumps: u64,
    /// Time in the kernel: the walk itself.
    pub kernel_ns: u64,
    /// Whether the kernel reported that its table changed meanwhile. `inet_diag` of Linux up to 6.18 never does.
    pub interrupted: bool,
}

/// Why a walk ended early. What was visited before counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkError {
    /// Sending or receiving failed.
    Syscall { call: &'static str, errno: Errno },
    /// The kernel refused the request or cut off its answer.
    Refused(Errno),
    /// This kernel has no socket diagnosis for TCP or UDP, or its module (`tcp_diag`, `udp_diag`) is not loaded.
    NoDiag(Transport),
    /// A datagram was larger than our buffer. No known kernel sends one.
    Truncated,
    /// The framing of a datagram is invalid.
    Malformed(DecodeError),
    /// The answer ended without its end mark.
    Incomplete,
}

impl WalkError {
    /// One of a few words, for counters.
    #[must_use]
    pub fn cause(self) -> NamespaceError {
        match self {
            WalkError::Syscall { .. } => NamespaceError::Syscall,
            WalkError::Refused(_) => NamespaceError::Refused,
            // Only walks of the collector are counted, and those are of TCP.
            WalkError::NoDiag(_) => NamespaceError::NoTcpDiag,
            WalkError::Truncated => NamespaceError::Truncated,
            WalkError::Malformed(_) => NamespaceError::Malformed,
            WalkError::Incomplete => NamespaceError::Incomplete,
        }
    }
}

impl fmt::Display for WalkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalkError::Syscall { call, errno } => {
                write!(f, "{call} at the netlink socket: {errno}")
            }
            WalkError::Refused(errno) => {
                write!(f, "the kernel refused to list its sockets: {errno}")
            }
            WalkError::NoDiag(Transport::Tcp) => f.write_str(
                "this kernel cannot list TCP sockets: load its module with `modprobe tcp_diag`",
            ),
            WalkError::NoDiag(Transport::Udp) => f.write_str(
                "this kernel cannot list UDP sockets: load its module with `modprobe udp_diag`",
            ),
            WalkError::Truncated => f.write_str("the kernel's answer was larger than the buffer"),
            WalkError::Malformed(error) => write!(f, "the kernel's answer is malformed: {error}"),
            WalkError::Incomplete => f.write_str("the kernel's answer ended without its end mark"),
        }
    }
}

impl std::error::Error for WalkError {}

/// Which form of request the kernel answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// One walk for both families.
    Both,
    /// One walk per family.
    Each,
}

/// Walks tables. Keeps its buffer, but no socket.
#[derive(Debug)]
pub struct Walker {
    buffer: Box<[u8]>,
    request: Vec<u8>,
    sequence: u32,
    /// Transport of the last request.
    transport: Transport,
    form: Form,
    last: Walked,
}

impl Default for Walker {
    fn default() -> Walker {
        Walker {
            buffer: vec![0; DUMP_BUFFER_BYTES].into_boxed_slice(),
            request: Vec::new(),
            sequence: 0,
            transport: Transport::Tcp,
            form: Form::Both,
            last: Walked::default(),
        }
    }
}

impl Walker {
    /// Visits every socket in the namespace of `socket`. One walk of the kernel's table serves both families if the kernel knows
    /// the older request (all do so far); otherwise there are two. For UDP there are always two.
    ///
    /// # Errors
    /// See [`WalkError`]. What was visited before stays visited.
    pub fn walk(
        &mut self,
        socket: &Socket,
        ask: &Ask<'_>,
        visitor: &mut impl Visitor,
    ) -> Result<Walked, WalkError> {
        let mut walked = Walked::default();
        let result = self.walk_into(socket, ask, visitor, &mut walked);
        self.last = walked;
        result.map(|()| walked)
    }

    /// What the last walk took, up to its end or its error.
    #[must_use]
    pub fn last(&self) -> Walked {
        self.last
    }

    fn walk_into(
        &mut self,
        socket: &Socket,
        ask: &Ask<'_>,
        visitor: &mut impl Visitor,
        walked: &mut Walked,
    ) -> Result<(), WalkError> {
        // Only TCP has the request for both families.
        if self.form == Form::Both && ask.transport == Transport::Tcp {
            match self.dump(socket, Kind::Both, ask, visitor, walked) {
                // Nothing was answered yet, and the request itself may be unknown (net/core/sock_diag.c, sock_diag_rcv_msg).
                Err(WalkError::Refused(Errno::INVAL | Errno::OPNOTSUPP) | WalkError::NoDiag(_))
                    if walked.datagrams <= 1 =>
                {
                    self.each(socket, ask, visitor, walked)?;
                    self.form = Form::Each;
                }
                result => result?,
            }
        } else {
            self.each(socket, ask, visitor, walked)?;
        }

        Ok(())
    }

    fn each(
        &mut self,
        socket: &Socket,
        ask: &Ask<'_>,
        visitor: &mut impl Visitor,
        walked: &mut Walked,
    ) -> Result<(), WalkError> {
        for family in [Family::Inet, Family::Inet6] {
            self.dump(socket, Kind::Family(family), ask, visitor, walked)?;
        }
        Ok(())
    }

    fn dump(
        &mut self,
        socket: &Socket,
        kind: Kind,
        ask: &Ask<'_>,
        visitor: &mut impl Visitor,
        walked: &mut Walked,
    ) -> Result<(), WalkError> {
        self.request(socket, kind, ask, walked)?;
        while self.datagram(socket, visitor, walked)? == Progress::GoesOn {
            visitor.pause();
        }
        Ok(())
    }

    /// Requests the sockets of one kind. The kernel produces the first part of its answer while the request is being sent.
    fn request(
        &mut self,
        socket: &Socket,
        kind: Kind,
        ask: &Ask<'_>,
        walked: &mut Walked,
    ) -> Result<(), WalkError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.transport = ask.transport;
        let Ask { transport, states, extensions, bytecode } = *ask;
        let request = Request {
            kind,
            protocol: transport.protocol(),
            states,
            extensions,
            src_port: 0,
            dst_port: 0,
            bytecode,
            sequence: self.sequence,
        };

        self.request.clear();
        request.encode(&mut self.request);

        let asked_ns = monotonic_ns();
        walked.dumps += 1;
        socket.send(&self.request).map_err(|errno| WalkError::Syscall { call: "sendto", errno })?;
        walked.kernel_ns += monotonic_ns().saturating_sub(asked_ns);
        Ok(())
    }

    /// Queries one socket by addresses and cookie, with the attributes of a walk, and appends the kernel's message about it.
    /// Returns whether the kernel has the socket.
    pub(crate) fn look_up(
        &mut self,
        socket: &Socket,
        id: &SocketId,
        ask: &Ask<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        self.sequence = self.sequence.wrapping_add(1);
        self.request.clear();
        Request::exact(*id, ask.extensions, self.sequence).encode(&mut self.request);
        if socket.send(&self.request).is_err() {
            return false;
        }

        // The kernel has answered before `send` returns. Anything else in the queue answers an earlier request.
        loop {
            let received = match socket.receive(&mut self.buffer) {
                Err(Errno::INTR) => continue,
                Err(_) => return false,
                Ok(received) => received,
            };

            if !received.is_whole_and_from_the_kernel() {
                continue;
            }

            let first = Messages::new(received.bytes).next();
            let Some(Ok(message)) = first.filter(
                |message| matches!(message, Ok(message) if message.sequence == self.sequence),
            ) else {
                continue;
            };
            // An error: the kernel no longer has the socket.
            if message.kind != SOCK_DIAG_BY_FAMILY {
                return false;
            }

            out.extend_from_slice(message.raw);
            // As in a datagram, where the next message starts at a multiple of 4 (NLMSG_ALIGN).
            out.resize(out.len().next_multiple_of(4), 0);
            return true;
        }
    }

    /// Reads one datagram of the answer.
    fn datagram(
        &mut self,
        socket: &Socket,
        visitor: &mut impl Visitor,
        walked: &mut Walked,
    ) -> Result<Progress, WalkError> {
        let asked_ns = monotonic_ns();
        let received = loop {
            match socket.receive(&mut self.buffer) {
                Err(Errno::INTR) => {}
                // Each receive produces the next part (netlink_recvmsg in net/netlink/af_netlink.c), so there is always something
                // to read until the end of a dump.
                Err(Errno::AGAIN) => return Err(WalkError::Incomplete),
                Err(errno) => return Err(WalkError::Syscall { call: "recvmsg", errno }),
                // The borrow checker cannot follow a borrow out of the loop: the length is enough.
                Ok(received) => {
                    break (received.bytes.len(), received.truncated, received.sender_port_id);
                }
            }
        };

        let (len, truncated, sender) = received;
        walked.kernel_ns += monotonic_ns().saturating_sub(asked_ns);
        // Any process may send to our port. The kernel's own port id is 0.
        if sender != 0 {
            return Ok(Progress::GoesOn);
        }

        walked.datagrams += 1;
        walked.bytes += len as u64;
        if truncated {
            return Err(WalkError::Truncated);
        }

        for message in Messages::new(self.buffer.get(..len).unwrap_or_default()) {
            let message = message.map_err(WalkError::Malformed)?;
            if message.sequence != self.sequence {
                // The rest of an answer to an earlier request.
                continue;
            }

            walked.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.kind {
                SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK => match decode(message.body) {
                    Ok(socket) => visitor.socket(&socket, message.raw),
                    Err(error) => visitor.malformed(error),
                },
                NLMSG_DONE => {
                    return self.status(done_status(message.body)).map(|()| Progress::Done);
                }
                NLMSG_ERROR => {
                    // 0 is an acknowledgment.
                    self.status(error_of(message.body))?;
                }
                _ => {}
            }
        }

        Ok(Progress::GoesOn)
    }

    fn status(&self, code: Result<i32, DecodeError>) -> Result<(), WalkError> {
        match code.map_err(WalkError::Malformed)? {
            0 => Ok(()),
            // net/ipv4/inet_diag.c, inet_diag_lock_handler: no handler for this protocol is loaded.
            code if code == -Errno::NOENT.0 => Err(WalkError::NoDiag(self.transport)),
            code => Err(WalkError::Refused(Errno(code.saturating_neg()))),
        }
    }
}

/// Whether a walk has more to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    GoesOn,
    Done,
}
