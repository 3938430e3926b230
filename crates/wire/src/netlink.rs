//! Netlink framing (RFC 3549 section 2.3.2, `include/uapi/linux/netlink.h`): messages in a datagram, attributes in a message.
//!
//! All integers are in the byte order of the host that wrote them, which is assumed to be this host's.

use crate::DecodeError;
use crate::bytes::{behind, count, header, u16_at, u32_at};

/// Bytes of `struct nlmsghdr`.
pub const HEADER_BYTES: usize = 16;
/// Bytes of `struct nlattr`.
pub const ATTRIBUTE_HEADER_BYTES: usize = 4;

/// A message without content.
pub const NLMSG_NOOP: u16 = 1;
/// An error or, with code 0, an acknowledgment: see [`error_of`].
pub const NLMSG_ERROR: u16 = 2;
/// The end of a dump: see [`done_status`].
pub const NLMSG_DONE: u16 = 3;
/// Data was lost.
pub const NLMSG_OVERRUN: u16 = 4;

/// A request.
pub const NLM_F_REQUEST: u16 = 0x1;
/// Part of a multi-part reply that ends with [`NLMSG_DONE`].
pub const NLM_F_MULTI: u16 = 0x2;
/// Requests an acknowledgment.
pub const NLM_F_ACK: u16 = 0x4;
/// The dump was disturbed by a change; `inet_diag` never sets it.
pub const NLM_F_DUMP_INTR: u16 = 0x10;
/// The whole table instead of one entry (`NLM_F_ROOT | NLM_F_MATCH`).
pub const NLM_F_DUMP: u16 = 0x300;

/// `NLA_TYPE_MASK`: an attribute's type without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// One netlink message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`, `NLM_F_…`.
    pub flags: u16,
    /// `nlmsg_seq`: a reply repeats the request's.
    pub sequence: u32,
    /// `nlmsg_pid`: in a reply, the port of the requesting socket; 0 in multicast messages from the kernel.
    pub port_id: u32,
    /// What follows the header, without padding.
    pub body: &'a [u8],
    /// Header and body, without padding. In an `inet_diag` reply this may contain MD5 keys: see
    /// [`redact`](crate::inet_diag::redact).
    pub raw: &'a [u8],
}

/// The messages of one datagram. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Reads a datagram, or any run of messages aligned to 4.
    #[must_use]
    pub const fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }

    /// The bytes not read yet; empty after an error.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let message = Message::first(self.rest);
        self.rest = match &message {
            Ok(message) => behind(self.rest, message.raw.len()),
            // The beginning of the next message is unknown.
            Err(_) => &[],
        };
        Some(message)
    }
}

impl<'a> Message<'a> {
    /// The message at the start of `bytes`; what follows it is ignored.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] with fewer bytes than a header, [`DecodeError::BadLength`] if `nlmsg_len` is less than a
    /// header or more than `bytes`.
    pub fn first(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let head: &[u8; HEADER_BYTES] = header(bytes)?;
        let length = u32_at::<0, HEADER_BYTES>(head);
        let bad = DecodeError::BadLength { length, have: count(bytes.len()) };
        let raw = usize::try_from(length).ok().and_then(|len| bytes.get(..len)).ok_or(bad)?;

        Ok(Self {
            kind: u16_at::<4, HEADER_BYTES>(head),
            flags: u16_at::<6, HEADER_BYTES>(head),
            sequence: u32_at::<8, HEADER_BYTES>(head),
            port_id: u32_at::<12, HEADER_BYTES>(head),
            // `nlmsg_len` includes the header: a smaller value is wrong.
            body: raw.get(HEADER_BYTES..).ok_or(bad)?,
            raw,
        })
    }
}

/// The attributes of a message or of a nested attribute: type (flags masked off) and payload. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Reads a run of attributes aligned to 4.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes not read yet, starting at the next attribute's header; empty after an error.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let attribute = first_attribute(self.rest);
        self.rest = match &attribute {
            Ok((_, payload)) => behind(self.rest, ATTRIBUTE_HEADER_BYTES + payload.len()),
            Err(_) => &[],
        };
        Some(attribute)
    }
}

#[inline]
fn first_attribute(bytes: &[u8]) -> Result<(u16, &[u8]), DecodeError> {
    let head: &[u8; ATTRIBUTE_HEADER_BYTES] = header(bytes)?;
    let length = u16_at::<0, ATTRIBUTE_HEADER_BYTES>(head);
    let payload = bytes
        .get(ATTRIBUTE_HEADER_BYTES..usize::from(length))
        .ok_or(DecodeError::BadLength { length: length.into(), have: count(bytes.len()) })?;
    Ok((u16_at::<2, ATTRIBUTE_HEADER_BYTES>(head) & NLA_TYPE_MASK, payload))
}

/// The code in the body of an [`NLMSG_ERROR`]: 0 is an acknowledgment, otherwise a negative errno.
///
/// # Errors
/// [`DecodeError::Truncated`] with fewer than 4 bytes.
pub fn error_of(body: &[u8]) -> Result<i32, DecodeError> {
    Ok(i32::from_ne_bytes(*header(body)?))
}

/// The status in the body of an [`NLMSG_DONE`]: 0, or the negative errno that ended the dump early. An empty body counts as
/// 0, because some families send it.
///
/// # Errors
/// [`DecodeError::Truncated`] with one to three bytes.
pub fn done_status(body: &[u8]) -> Result<i32, DecodeError> {
    if body.is_empty() { Ok(0) } else { error_of(body) }
}

/// Appends one message to a buffer: header, body, attributes, padding.
#[derive(Debug)]
pub struct MessageWriter<'v> {
    out: &'v mut Vec<u8>,
    start: usize,
}

impl<'v> MessageWriter<'v> {
    /// Writes the header. [`finish`](Self::finish) sets the length.
    pub fn begin(out: &'v mut Vec<u8>, kind: u16, flags: u16, sequence: u32) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(&flags.to_ne_bytes());
        out.extend_from_slice(&sequence.to_ne_bytes());
        // The port id, which the kernel knows anyway.
        out.extend_from_slice(&[0; 4]);
        Self { out, start }
    }

    /// Appends bytes of a fixed part; the caller keeps them a multiple of 4 if attributes follow.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Appends one attribute with its padding. A payload longer than an attribute can be (65,531 bytes) is truncated.
    pub fn attribute(&mut self, kind: u16, payload: &[u8]) -> &mut Self {
        let most = usize::from(u16::MAX) - ATTRIBUTE_HEADER_BYTES;
        let payload = payload.get(..most).unwrap_or(payload);
        let length = (payload.len() + ATTRIBUTE_HEADER_BYTES) as u16;
        self.out.extend_from_slice(&length.to_ne_bytes());
        self.out.extend_from_slice(&kind.to_ne_bytes());
        self.out.extend_from_slice(payload);
        self.pad();
        self
    }

    /// Appends an attribute with a name, terminated by a zero byte if it is no longer than the kernel's names
    /// (`TCP_CA_NAME_MAX`, `TCP_ULP_NAME_MAX`: 16 including the zero). A longer one ends where the attribute ends.
    pub fn text(&mut self, kind: u16, text: &str) -> &mut Self {
        let mut payload = text.as_bytes().to_vec();
        if payload.len() < 16 {
            payload.push(0);
        }
        self.attribute(kind, &payload)
    }

    /// Appends an attribute whose payload is the attributes written by `inner`.
    pub fn nested(&mut self, kind: u16, inner: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.out.len();
        self.attribute(kind, &[]);
        inner(self);
        // Only known now: `attribute` has written the length of an empty one.
        let length = u16::try_from(self.out.len() - start).unwrap_or(u16::MAX);
        if let Some(place) = self.out.get_mut(start..start + 2) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
        self
    }

    /// Sets the length.
    pub fn finish(&mut self) {
        let length = count(self.out.len() - self.start);
        if let Some(place) = self.out.get_mut(self.start..self.start + 4) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
        self.pad();
    }

    fn pad(&mut self) {
        let len = self.out.len() - self.start;
        self.out.resize(self.start + len.next_multiple_of(4), 0);
    }
}
