//! Writes the sender's address into a message, for receivers behind a relay.

use super::{rfc3164, rfc5424, split_priority, without_blanks, without_mark};
use std::io::Write;
use std::net::IpAddr;

/// Longest text written by [`write_origin`], in bytes: an element with the longest IPv6 address (39).
pub const ORIGIN_BYTES_MAX: usize = 64;

/// Where in a message the text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginPlace {
    /// Bytes of the message before it.
    pub at: usize,
    /// Bytes of the message that it replaces.
    pub replaced_bytes: usize,
    /// Length of the text.
    pub text_bytes: usize,
}

/// Writes the text that names a message's sender, and returns where it goes:
///
/// - RFC 5424: the parameter `ip` of the element `origin` (section 7.2), in a new element, or in an existing one. An element that
///   already has the parameter is left unchanged: then nothing is written or replaced.
/// - RFC 3164 with a time: the host name (section 4.1.2 allows an address there), in place of the existing one.
///
/// `None` if the message has neither form, so there is no place for it.
pub fn write_origin(
    message: &[u8],
    sender: IpAddr,
    room: &mut [u8; ORIGIN_BYTES_MAX],
) -> Option<OriginPlace> {
    let (Some(_), rest) = split_priority(without_mark(message)) else { return None };
    let rest = without_blanks(rest);
    if rfc5424::claims(rest) {
        let (data, data_bytes) = rfc5424::split_at_data(rest)?;
        let at = message.len() - data.len();
        return element(at, data.get(..data_bytes)?, sender, room);
    }

    let (host, replaced_bytes) = rfc3164::split_at_host(rest)?;
    let at = message.len() - host.len();
    let text_bytes = match replaced_bytes {
        0 => print(format_args!("{sender} "), room)?,
        _ => print(format_args!("{sender}"), room)?,
    };
    Some(OriginPlace { at, replaced_bytes, text_bytes })
}

fn element(
    at: usize,
    data: &[u8],
    sender: IpAddr,
    room: &mut [u8; ORIGIN_BYTES_MAX],
) -> Option<OriginPlace> {
    const NAME: &[u8] = b"[origin";

    let is_origin = |element: &&[u8]| {
        let behind = element.strip_prefix(NAME);
        behind.is_some_and(|behind| behind.starts_with(b" ") || behind.starts_with(b"]"))
    };
    let Some(element) = rfc5424::elements(data).find(is_origin) else {
        let replaced_bytes = usize::from(data == b"-");
        let text_bytes = print(format_args!("[origin ip=\"{sender}\"]"), room)?;
        return Some(OriginPlace { at, replaced_bytes, text_bytes });
    };

    // An element may occur only once in a message (section 6.3.2).
    let has_ip = element.windows(5).any(|bytes| bytes == b" ip=\"");
    let text_bytes = if has_ip { 0 } else { print(format_args!(" ip=\"{sender}\""), room)? };
    let before = element.as_ptr().addr() - data.as_ptr().addr();
    Some(OriginPlace { at: at + before + NAME.len(), replaced_bytes: 0, text_bytes })
}

fn print(text: std::fmt::Arguments<'_>, room: &mut [u8; ORIGIN_BYTES_MAX]) -> Option<usize> {
    let mut left = &mut room[..];
    left.write_fmt(text).ok()?;
    let left_bytes = left.len();
    Some(ORIGIN_BYTES_MAX - left_bytes)
}
