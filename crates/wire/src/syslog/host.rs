//! The host behind the time, and what senders put around it.

use super::content::{is_level, split_mnemonic, split_program};
use super::rfc3164::{Header, Next};
use super::{
    Arrival, Form, Kind, NAME_MAX_BYTES, ascii, graphic, letters_and, run_of, split_digits,
    split_name, split_word, time, without_blanks,
};

/// A character of a name, of an address, or of a relay's combination of several.
pub(super) const OF_HOST: Kind = letters_and(b".-_:/@");

/// A word as a host: not a number, a clock or an uptime, and not how bad something is.
pub(super) fn of(word: &[u8]) -> Option<&str> {
    if run_of(word, word.len(), &OF_HOST) == word.len() { of_letters(word) } else { None }
}

/// The same for a word of which all characters may be in a host.
pub(super) fn of_letters(word: &[u8]) -> Option<&str> {
    let is_host = word.len() <= NAME_MAX_BYTES
        && matches!(word, [b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b':' | b'_', ..])
        && !(word.first().is_some_and(u8::is_ascii_digit) && is_number_or_time(word))
        && !is_level(word);
    if is_host { ascii(word) } else { None }
}

fn is_number_or_time(word: &[u8]) -> bool {
    word.iter().all(u8::is_ascii_digit)
        || time::uptime(word).is_some_and(<[u8]>::is_empty)
        || word.contains(&b'/') && time::slashed(word, Arrival::utc(0)).is_some()
        || is_engine(word)
}

/// Whether it is the packet engine of Citrix NetScaler, which stands behind its host: `0-PPE-1`.
fn is_engine(word: &[u8]) -> bool {
    let (_, rest) = split_digits(word, 3);
    rest.strip_prefix(b"-PPE-").is_some_and(|rest| split_digits(rest, 3).1.is_empty())
}

/// Splits off a host and the blank behind it, unless the word is a program, or the last word.
pub(super) fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let len = run_of(bytes, NAME_MAX_BYTES + 1, &OF_HOST);
    let (word, rest) = bytes.split_at_checked(len)?;
    let rest = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b"\t"))?;
    if rest.is_empty() {
        return None;
    }

    match word.strip_suffix(b":") {
        None => Some((of_letters(word)?, rest)),
        // Before a mnemonic a word with a colon is the device: `fw1: %ASA-6-302013: `. Else it is a program.
        Some(name) => {
            let is_device =
                split_mnemonic(rest).is_some() || rest.starts_with(b"NetScreen device_id=");
            if is_device { Some((of_letters(name)?, rest)) } else { None }
        }
    }
}

/// Reads the host, and what stands between it and the program.
pub(super) fn read(header: Header<'_>) -> Header<'_> {
    let bytes = header.rest;
    match bytes {
        [b'M', ..] => {
            if let Some(rest) = bytes.strip_prefix(b"Message forwarded from ") {
                let (host, rest) = split_word(rest);
                let hostname = host.strip_suffix(b":").and_then(of);
                return Header { form: Form::Aix, hostname, rest, ..header };
            }
        }
        [b'[', ..] => return bracketed(header),
        // Some daemons write this without a host.
        [b'l', ..] if bytes.starts_with(b"last message repeated ") => return header,
        [b'(' | b'U' | b'B', ..] => {
            let (word, rest) = split_name(bytes);
            if is_model(word) {
                return Header { form: Form::UniFi, rest, ..header };
            }
        }
        _ => {}
    }

    let Some((host, rest)) = split(bytes) else { return header };
    // ASA writes a colon between host and content.
    let plain = without_blanks(rest);
    let typed = Header { hostname: Some(host), rest: plain, ..header };
    let typed = match plain {
        [b':', behind @ ..] => Header { rest: behind, ..typed }.with_type(),
        [b'%' | b'#', ..] => typed.with_type(),
        _ => None,
    };
    if let Some(typed) = typed {
        return typed;
    }
    let rest = rest.strip_prefix(b": ").unwrap_or(rest);
    let program = split_program(rest);
    let header = Header { hostname: Some(host), rest, program, ..header };
    match rest {
        _ if program.is_some() => header,
        [b'[', ..] => event(header).unwrap_or(header),
        // A text may begin with blanks, but not a program that has a process id.
        [b' ', ..] if has_process(without_blanks(rest)) => {
            Header { rest: without_blanks(rest), ..header }
        }
        _ => behind_host(header, host),
    }
}

/// Skips what some senders put between host and program, where a program follows it for certain.
fn behind_host<'a>(header: Header<'a>, host: &str) -> Header<'a> {
    let (word, rest) = split_name(header.rest);
    let Some(first) = word.first() else { return header };
    // Most words here are programs, and end with a colon.
    let is_next = |form| Header { form, rest, ..header };
    match word {
        [.., b':'] if word.get(12) == Some(&b',') && is_mac(word.get(..12).unwrap_or_default()) => {
            is_next(Form::UniFi)
        }
        [.., b':' | b']'] => header,
        _ if word == host.as_bytes() && split_program(rest).is_some() => is_next(header.form),
        _ if first.is_ascii_digit() && word.len() == 5 && split_digits(word, 5).1.is_empty() => {
            numbered(header, word, rest)
        }
        _ if (is_level(word) || is_address(word)) && has_process(rest) => is_next(header.form),
        _ => header,
    }
}

fn has_process(bytes: &[u8]) -> bool {
    split_program(bytes).is_some_and(|(_, proc_id, _)| proc_id.is_some())
}

/// Whether a word is an IPv4 or IPv6 address; it need not be a valid one.
fn is_address(word: &[u8]) -> bool {
    let is_v4 = word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let is_v6 = word.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b':');
    is_v4 && word.contains(&b'.') || is_v6 && word.contains(&b':')
}

/// Reads the number of an event that ArubaOS-Switch and ProCurve put before the subsystem: `00076 ports: `.
fn numbered<'a>(header: Header<'a>, number: &'a [u8], rest: &'a [u8]) -> Header<'a> {
    match split_program(rest) {
        Some(_) => Header { form: Form::ProCurve, msg_id: graphic(number), rest, ..header },
        None => header,
    }
}

/// Whether a word is what UniFi's access points write in the place of the host: `U7PG2,0123456789ab,v4.3.20`, in older versions with
/// parentheses and quotes. It has no name of the host.
fn is_model(word: &[u8]) -> bool {
    let mut parts = word.split(|byte| *byte == b',');
    let (Some(_), Some(mac), Some(version)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    is_mac(mac) && version.starts_with(b"v")
}

fn is_mac(word: &[u8]) -> bool {
    word.len() == 12 && word.iter().all(u8::is_ascii_hexdigit)
}

/// Reads what stands in brackets in the place of the host: an address (`[192.0.2.5] `), or an event of Data ONTAP.
fn bracketed(header: Header<'_>) -> Header<'_> {
    let inside = header.rest.get(1..).unwrap_or_default();
    let Some(end) = inside.iter().take(NAME_MAX_BYTES).position(|byte| *byte == b']') else {
        return header;
    };
    let (inside, behind) = inside.split_at(end);
    let behind = behind.get(1..).unwrap_or_default();
    if is_address(inside)
        && let Some(rest) = behind.strip_prefix(b" ")
    {
        return Header { hostname: of(inside), rest, ..header };
    }

    event(header).unwrap_or(header)
}

/// Reads what Data ONTAP writes: `[HOST:EVENT:SEVERITY]: `, with a process behind the host in some versions.
pub(super) fn event(header: Header<'_>) -> Option<Header<'_>> {
    let inside = header.rest.strip_prefix(b"[")?;
    let end = inside.iter().take(NAME_MAX_BYTES).position(|byte| *byte == b']')?;
    let (inside, behind) = inside.split_at(end);
    let rest = behind.strip_prefix(b"]: ")?;

    let mut parts = [&b""[..]; 4];
    let mut count = 0;
    for part in inside.split(|byte| *byte == b':') {
        *parts.get_mut(count)? = without_blanks(part);
        count += 1;
    }
    let (event, level) = match count {
        3 => (parts[1], parts[2]),
        4 => (parts[2], parts[3]),
        _ => return None,
    };
    let (host, event) = (of(parts[0])?, graphic(event)?);
    is_level(level).then_some(Header {
        form: Form::NetApp,
        hostname: Some(host),
        msg_id: Some(event),
        rest,
        next: Next::Text,
        ..header
    })
}
