//! RFC 3164 and what is sent in its name: `TIME HOST PROGRAM[PROCESS]: TEXT` after the priority, where every part may be missing
//! or look different.
//!
//! Cisco devices put a sequence number, their own name or both before the time, may mark that their clock is not set, put a colon
//! after the time, and begin the text with `%FACILITY-SEVERITY-MNEMONIC:`. Others write the time in ISO 8601.

use super::time::{self, Stamp};
use super::{Arrival, Format, Syslog, graphic, split_digits, split_word, without_end};

/// The longest host name in DNS. Also the limit for programs and types.
const NAME_MAX_BYTES: usize = 255;

/// `None` if it begins with neither a priority nor a time: then it may be anything.
pub(super) fn parse<'a>(bytes: &'a [u8], arrival: Arrival, syslog: &mut Syslog<'a>) -> Option<()> {
    let behind_sequence = behind_sequence(bytes);
    match split_header(behind_sequence) {
        Some((origin, stamp, rest)) => {
            syslog.hostname = origin;
            behind_time(rest, stamp, arrival, syslog);
        }
        None if syslog.facility.is_none() => return None,
        None if behind_sequence.starts_with(b"%") => content(behind_sequence, syslog),
        None => content(bytes, syslog),
    }

    syslog.format = Format::Rfc3164;
    Some(())
}

/// The bytes after the priority that begin with the host, and the length of its name, 0 if there is none; `None` without a time
/// before it, and for device-specific formats.
pub(super) fn split_at_host(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (_, rest) = split_time(bytes)?;
    let rest = rest.strip_prefix(b" ")?;
    if rest.starts_with(b" ")
        || rest.starts_with(b"Message forwarded from ")
        || rest.starts_with(b":")
    {
        return None;
    }
    let (host, _) = split_host(rest);
    Some((rest, host.map_or(0, str::len)))
}

/// Skips a sequence number (`45: `), whose digits may be missing.
fn behind_sequence(bytes: &[u8]) -> &[u8] {
    let (_, rest) = split_digits(bytes, 20);
    rest.strip_prefix(b": ").unwrap_or(bytes)
}

/// Splits off the time and the device's name before it (`router1: `), if any.
fn split_header(bytes: &[u8]) -> Option<(Option<&str>, Stamp, &[u8])> {
    if let Some((stamp, rest)) = split_time(bytes) {
        return Some((None, stamp, rest));
    }

    let is_end = |byte: &u8| !is_of_host(*byte) || *byte == b':';
    let mut len = bytes.iter().take(NAME_MAX_BYTES).position(is_end)?;
    // IOS XR writes `RP/0/RSP0/CPU0:` without a space after it, and an IPv6 address contains colons.
    loop {
        let (name, rest) = bytes.split_at_checked(len)?;
        let rest = rest.strip_prefix(b":")?;
        if let Some((stamp, rest)) = split_time(rest.strip_prefix(b" ").unwrap_or(rest)) {
            return Some((Some(graphic(name)?), stamp, rest));
        }
        len += 1 + rest.iter().take(NAME_MAX_BYTES.checked_sub(len)?).position(is_end)?;
    }
}

/// Splits off a time, followed by a space, a colon or the end.
fn split_time(bytes: &[u8]) -> Option<(Stamp, &[u8])> {
    let bytes = match bytes {
        [b'*' | b'.', rest @ ..] => rest,
        _ => bytes,
    };
    let (stamp, rest) = time::named_month(bytes).or_else(|| time::iso(bytes))?;
    matches!(rest, [] | [b' ' | b':', ..]).then_some((stamp, rest))
}

/// Parses what follows the time: a host and the content or, from devices, a colon and the content.
fn behind_time<'a>(bytes: &'a [u8], stamp: Stamp, arrival: Arrival, syslog: &mut Syslog<'a>) {
    let (zone, bytes) = split_zone(bytes);
    let stamp = if matches!(zone, b"UTC" | b"GMT") { stamp.with_utc() } else { stamp };
    syslog.time_unix_ns = stamp.nearest_unix_ns(arrival);

    let bytes = bytes.trim_ascii_start();
    if let Some(rest) = bytes.strip_prefix(b":") {
        return content(rest.strip_prefix(b" ").unwrap_or(rest), syslog);
    }
    if syslog.hostname.is_some() {
        return content(bytes, syslog);
    }

    let (host, rest) = split_host(bytes);
    syslog.hostname = host;
    content(rest, syslog);
}

/// Splits off a zone name between time and colon (` UTC: `). Only UTC's names are unambiguous.
fn split_zone(bytes: &[u8]) -> (&[u8], &[u8]) {
    let zone = bytes.strip_prefix(b" ").and_then(|rest| {
        let len = rest.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
        let (zone, rest) = rest.split_at(len);
        // A program may have such a name too, but then no `%` follows.
        (matches!(len, 1..=5) && rest.starts_with(b": %")).then_some((zone, rest))
    });
    zone.unwrap_or((&[], bytes))
}

/// Splits off the host, unless the word is already a program, or the last word.
fn split_host(bytes: &[u8]) -> (Option<&str>, &[u8]) {
    // AIX writes this before the host.
    if let Some(rest) = bytes.strip_prefix(b"Message forwarded from ") {
        let (host, rest) = split_word(rest);
        return (host.strip_suffix(b":").and_then(graphic), rest);
    }

    let (word, rest) = split_word(bytes);
    let is_host = word.len() <= NAME_MAX_BYTES
        && word.iter().all(|byte| is_of_host(*byte))
        && !word.ends_with(b":")
        && !rest.is_empty();
    match graphic(word) {
        // ASA writes a colon between host and content.
        Some(host) if is_host => (Some(host), rest.strip_prefix(b": ").unwrap_or(rest)),
        _ => (None, bytes),
    }
}

/// A character of a name, of an address with its zone, or of a relay's combination of several.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'/' | b'@')
}

/// Parses program, process, type and text.
fn content<'a>(bytes: &'a [u8], syslog: &mut Syslog<'a>) {
    let mut rest = bytes;
    if let Some((app_name, proc_id, behind)) = split_program(rest) {
        syslog.app_name = Some(app_name);
        syslog.proc_id = proc_id;
        rest = behind;
    }
    if let Some((msg_id, behind)) = split_mnemonic(rest) {
        syslog.msg_id = Some(msg_id);
        rest = behind;
    }
    syslog.message = without_end(rest);
}

/// Splits off `sshd[4711]: ` or `kernel: `.
fn split_program(bytes: &[u8]) -> Option<(&str, Option<&str>, &[u8])> {
    let is_name = |byte: u8| byte.is_ascii_graphic() && !b"{}\"'=,;<>[%".contains(&byte);
    let mut len = 0;
    // A colon ends the name only before a space: `Foo::Bar: text`.
    while let Some(&byte) = bytes.get(len)
        && len <= NAME_MAX_BYTES
        && is_name(byte)
        && !is_colon(bytes.get(len..)?)
    {
        len += 1;
    }

    let (name, rest) = bytes.split_at_checked(len)?;
    let (proc_id, rest) = match rest.strip_prefix(b"[") {
        Some(inside) => {
            let end = inside.iter().take(NAME_MAX_BYTES).position(|byte| *byte == b']')?;
            let (proc_id, rest) = inside.split_at_checked(end)?;
            (Some(graphic(proc_id)?), rest.get(1..)?)
        }
        None => (None, rest),
    };

    let rest = match rest.strip_prefix(b":") {
        Some(behind) if is_colon(rest) => behind,
        // With a process id it is a program, even without a colon.
        _ if proc_id.is_some() && matches!(rest, [] | [b' ', ..]) => rest,
        _ => return None,
    };
    Some((graphic(name)?, proc_id, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// Whether the bytes begin with a colon that ends something.
fn is_colon(bytes: &[u8]) -> bool {
    matches!(bytes, [b':'] | [b':', b' ' | b'\t' | b'\n' | b'\r' | 0, ..])
}

/// Splits off `%SYS-5-CONFIG_I: `, without percent sign and colon.
fn split_mnemonic(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let bytes = bytes.strip_prefix(b"%")?;
    let is_of_mnemonic = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let len = bytes.iter().take(NAME_MAX_BYTES).take_while(is_of_mnemonic).count();
    let (mnemonic, rest) = bytes.split_at_checked(len)?;

    let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b":")?;
    Some((graphic(mnemonic)?, rest.strip_prefix(b" ").unwrap_or(rest)))
}
