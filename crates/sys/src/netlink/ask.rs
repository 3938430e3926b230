//! Questions to rtnetlink, one at a time, and the framing that they need.

use super::{DUMP_BUFFER_BYTES, Protocol, Socket};
use crate::Errno;
use std::io;
use std::time::Duration;

pub(crate) const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_ACK: u16 = 4;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSGHDR_BYTES: usize = 16;

/// The kernel answers at once; a limit keeps a surprise from hanging the caller.
const PATIENCE: Duration = Duration::from_secs(2);

/// A socket for questions whose answers are few. Its memory is reused.
pub(crate) struct Asker {
    socket: Socket,
    sequence: u32,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Asker {
    pub(crate) fn open() -> io::Result<Asker> {
        let socket = Socket::open(Protocol::Route)?;
        socket.set_receive_timeout(PATIENCE)?;
        Ok(Asker { socket, sequence: 0, request: Vec::new(), buffer: vec![0; DUMP_BUFFER_BYTES] })
    }

    /// Sends one request and hands every message of its answer to `each`, as type and body.
    ///
    /// The answer is over with an error or acknowledgement, with the end of a dump, or, when neither was asked for, with the
    /// first datagram.
    pub(crate) fn ask(
        &mut self,
        (kind, flags): (u16, u16),
        body: &[u8],
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<(), Errno> {
        self.send((kind, flags), body)?;
        let has_end = flags & (NLM_F_DUMP | NLM_F_ACK) != 0;
        loop {
            let received = match self.socket.receive(&mut self.buffer) {
                Err(Errno::INTR) => continue,
                received => received?,
            };
            if received.sender_port_id != 0 {
                continue;
            }
            if received.truncated {
                return Err(Errno::MSGSIZE);
            }
            let mut rest = received.bytes;
            let mut is_ours = false;
            while let Some((message, next)) = split_message(rest) {
                rest = next;
                // What a question that was given up left behind has another number.
                if message.sequence != self.sequence {
                    continue;
                }
                is_ours = true;
                match message.kind {
                    NLMSG_DONE | NLMSG_ERROR => return status(message.body),
                    kind => each(kind, message.body),
                }
            }
            if is_ours && !has_end {
                return Ok(());
            }
        }
    }

    fn send(&mut self, (kind, flags): (u16, u16), body: &[u8]) -> Result<(), Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = (NLMSGHDR_BYTES + body.len()) as u32;
        self.request.clear();
        self.request.extend_from_slice(&bytes.to_ne_bytes());
        self.request.extend_from_slice(&kind.to_ne_bytes());
        self.request.extend_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        self.request.extend_from_slice(&self.sequence.to_ne_bytes());
        self.request.extend_from_slice(&[0; 4]); // the port id is the kernel's to fill in
        self.request.extend_from_slice(body);
        self.socket.send(&self.request)
    }
}

/// The number that an error, an acknowledgement or the end of a dump starts with: 0 or a negative error number.
fn status(body: &[u8]) -> Result<(), Errno> {
    match body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code)) {
        0 => Ok(()),
        code => Err(Errno(code.saturating_neg())),
    }
}

/// Appends an attribute whose value is a multiple of four bytes long.
pub(crate) fn append_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Message<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

/// Splits `struct nlmsghdr` and its body off the front; `None` at the end or at a length that lies.
fn split_message(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let len = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let sequence = u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
    let body = bytes.get(NLMSGHDR_BYTES..len)?;
    let next = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((Message { kind, sequence, body }, next))
}

/// Finds an attribute (`struct rtattr`: length, type, value, padded to four) by its type.
pub(crate) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_lie_end_the_walk() {
        assert_eq!(split_message(&[255; 20]), None);
        assert_eq!(attribute(&[0, 0, 0, 0], 1), None);
        assert_eq!(attribute(&[255, 0, 1, 0], 1), None);
    }
}
