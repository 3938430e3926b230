//! Looks up what the kernel still has at the addresses of a closed connection.

use crate::ends::Look;
use sys::Errno;
use sys::netlink::Socket;
use wire::inet_diag::request::SOCK_DIAG_BY_FAMILY;
use wire::inet_diag::{Extensions, Request, SocketId, SocketMessage, State, decode};
use wire::netlink::{Messages, NLMSG_ERROR, error_of};

/// Queries single sockets. Keeps its memory, but no socket: 2.5 µs per query.
#[derive(Debug)]
pub(crate) struct Looker {
    request: Vec<u8>,
    buffer: Box<[u8]>,
    sequence: u32,
}

/// An answer without optional attributes is about 120 bytes long.
const ANSWER_BYTES_MAX: usize = 4_096;

impl Default for Looker {
    fn default() -> Looker {
        Looker {
            request: Vec::new(),
            buffer: vec![0; ANSWER_BYTES_MAX].into_boxed_slice(),
            sequence: 0,
        }
    }
}

impl Looker {
    /// Looks in the socket's namespace. `None` when the kernel does not answer.
    pub(crate) fn look(&mut self, socket: &Socket, id: &SocketId) -> Option<Look> {
        self.sequence = self.sequence.wrapping_add(1);
        self.request.clear();

        // Without the cookie: a socket that was in no dump gets one only when its event is made, so its minisock has a different
        // one (inet_twsk_alloc copies what is there).
        Request::exact(id.without_cookie(), Extensions::NONE, self.sequence)
            .encode(&mut self.request);
        socket.send(&self.request).ok()?;

        // The kernel has answered before `send` returns. Anything else in the queue answers an earlier query.
        loop {
            let received = match socket.receive(&mut self.buffer) {
                Err(Errno::INTR) => continue,
                received => received.ok()?,
            };

            if !received.is_whole_and_from_the_kernel() {
                continue;
            }

            for message in Messages::new(received.bytes) {
                let message = message.ok()?;
                if message.sequence != self.sequence {
                    continue;
                }

                return match message.kind {
                    SOCK_DIAG_BY_FAMILY => Some(meaning(&decode(message.body).ok()?, id)),
                    NLMSG_ERROR if error_of(message.body) == Ok(-Errno::NOENT.0) => {
                        Some(Look::Nothing)
                    }
                    _ => None,
                };
            }
        }
    }
}

fn meaning(found: &SocketMessage<'_>, id: &SocketId) -> Look {
    let is_between_the_same = [(found.id.src, id.src), (found.id.dst, id.dst)].iter().all(
        // An IPv4 connection of an IPv6 socket has a minisock of either family.
        |(found, id)| {
            found.port() == id.port() && found.ip().to_canonical() == id.ip().to_canonical()
        },
    );

    match found.state {
        State::Listen => Look::Listener,
        State::TimeWait | State::FinWait2 if is_between_the_same => Look::Minisock,
        _ => Look::Other,
    }
}
