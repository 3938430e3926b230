//! Netlink requests, one at a time, and their framing.

use super::{DUMP_BUFFER_BYTES, Protocol, Socket};
use crate::Errno;
use std::io;
use std::time::Duration;

pub(crate) const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_ACK: u16 = 4;
pub(crate) const NLM_F_ECHO: u16 = 8;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
/// Marks an attribute that holds attributes (`NLA_F_NESTED`).
const NESTED: u16 = 0x8000;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSGHDR_BYTES: usize = 16;
const NETLINK_CAP_ACK: libc::c_int = 10;
const NETLINK_EXT_ACK: libc::c_int = 11;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// The kernel answers at once; the timeout only keeps an unforeseen case from hanging the caller.
const PATIENCE: Duration = Duration::from_secs(2);

/// A socket for requests with few answers. Reuses its memory.
pub(crate) struct Asker {
    socket: Socket,
    sequence: u32,
    request: Vec<u8>,
    buffer: Vec<u8>,
    explanation: Option<String>,
}

impl Asker {
    pub(crate) fn open() -> io::Result<Asker> {
        Asker::open_on(Protocol::Route)
    }

    pub(crate) fn open_on(protocol: Protocol) -> io::Result<Asker> {
        let socket = Socket::open(protocol)?;
        socket.set_receive_timeout(PATIENCE)?;
        let buffer = vec![0; DUMP_BUFFER_BYTES];
        Ok(Asker { socket, sequence: 0, request: Vec::new(), buffer, explanation: None })
    }

    /// Opens a socket on which the kernel explains errors in words, where it can (since Linux 4.12).
    pub(crate) fn open_explaining() -> io::Result<Asker> {
        let asker = Asker::open()?;
        // A kernel without these options answers with the error number alone.
        let _ = asker.socket.set(NETLINK_CAP_ACK, 1);
        let _ = asker.socket.set(NETLINK_EXT_ACK, 1);
        Ok(asker)
    }

    /// The kernel's explanation of the last error, if [`Self::open_explaining`] made this and the kernel gave one.
    pub(crate) fn take_explanation(&mut self) -> Option<String> {
        self.explanation.take()
    }

    /// Sends one request and passes every message of its answer to `each`, as type and body.
    ///
    /// The answer ends with an error or acknowledgment, with the end of a dump or, if the request asked for neither, with the
    /// first datagram.
    pub(crate) fn ask(
        &mut self,
        (kind, flags): (u16, u16),
        body: &[u8],
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<(), Errno> {
        self.explanation = None;
        self.send((kind, flags), body)?;

        let has_end = flags & (NLM_F_DUMP | NLM_F_ACK) != 0;

        loop {
            let received = match self.socket.receive(&mut self.buffer) {
                Err(Errno::INTR) => continue,
                received => received?,
            };

            // Another process may send to this port id.
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
                // Answers to an abandoned request have another sequence number.
                if message.sequence != self.sequence {
                    continue;
                }
                is_ours = true;
                match message.kind {
                    NLMSG_DONE => return status(message.body),
                    NLMSG_ERROR => {
                        self.explanation = explanation(message.body);
                        return status(message.body);
                    }
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

/// The number at the start of an error, an acknowledgment or the end of a dump: 0 or a negative error number.
fn status(body: &[u8]) -> Result<(), Errno> {
    match body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code)) {
        0 => Ok(()),
        code => Err(Errno(code.saturating_neg())),
    }
}

/// The explanation in a `struct nlmsgerr` that holds the header of the request but not its body (`NETLINK_CAP_ACK`).
fn explanation(body: &[u8]) -> Option<String> {
    let words = attribute(body.get(4 + NLMSGHDR_BYTES..)?, NLMSGERR_ATTR_MSG)?;
    let words = words.split(|&byte| byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(words).into_owned())
}

/// Appends an attribute, padded to a multiple of four bytes.
pub(crate) fn append_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Appends an attribute that holds what `fill` appends.
pub(crate) fn append_nested(body: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = body.len();
    append_attribute(body, kind | NESTED, &[]);
    fill(body);
    let len = (body.len() - start) as u16;
    body[start..start + 2].copy_from_slice(&len.to_ne_bytes());
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Message<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

/// Splits `struct nlmsghdr` and its body off the front; `None` at the end or when the length is wrong.
fn split_message(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let len = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let sequence = u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
    let body = bytes.get(NLMSGHDR_BYTES..len)?;
    let next = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((Message { kind, sequence, body }, next))
}

/// The messages of one datagram, as type and body.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (message, next) = split_message(rest)?;
        rest = next;
        Some((message.kind, message.body))
    })
}

/// Passes every event queued on a multicast socket to `each`, as decoded by `read`, and `lost` where events were lost.
pub(crate) fn drain<E: Copy>(
    socket: &Socket,
    buffer: &mut [u8],
    lost: E,
    read: impl Fn(u16, &[u8]) -> Option<E>,
    mut each: impl FnMut(E),
) {
    loop {
        let received = match socket.receive(buffer) {
            Ok(received) => received,
            Err(Errno::INTR) => continue,
            Err(Errno::NOBUFS) => {
                each(lost);
                continue;
            }
            // Empty. Other errors cannot occur on a socket that is only read.
            Err(_) => return,
        };

        // Another process may send to this port id.
        if received.sender_port_id != 0 {
            continue;
        }
        if received.truncated {
            each(lost);
        }

        messages(received.bytes).filter_map(|(kind, body)| read(kind, body)).for_each(&mut each);
    }
}

/// Finds an attribute (`struct rtattr`: length, type, value, padded to four) by its type.
pub(crate) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..len)?;
        if kind & !NESTED == wanted {
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

    #[test]
    fn what_is_nested_and_padded_is_found_again() {
        let mut bytes = Vec::new();
        append_nested(&mut bytes, 18, |bytes| {
            append_attribute(bytes, 1, b"veth\0");
            append_attribute(bytes, 2, &[7; 4]);
        });
        assert_eq!(bytes.len(), 4 + 12 + 8);
        let inner = attribute(&bytes, 18).unwrap();
        assert_eq!(attribute(inner, 1), Some(&b"veth\0"[..]));
        assert_eq!(attribute(inner, 2), Some(&[7; 4][..]));
    }
}
