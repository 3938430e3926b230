//! The host behind the time, and what senders put around it.

use super::content::{is_level, split_mnemonic, split_program};
use super::rfc3164::{Header, Next};
use super::{
    Arrival, Form, Kind, NAME_MAX_BYTES, ascii, graphic, letters_and, run_of, split_digits,
    split_name, split_word, time, without_blanks,
};

/// A character of a name, of an address, or of a relay's combination of several.
const OF_HOST: Kind = letters_and(b".-_:/@");

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
pub(super) fn read(header: &mut Header<'_>) {
    match header.rest {
        [b'M', ..] => {
            if let Some(rest) = header.rest.strip_prefix(b"Message forwarded from ") {
                let (host, rest) = split_word(rest);
                header.hostname = host.strip_suffix(b":").and_then(of);
                (header.form, header.rest) = (Form::Aix, rest);
                return;
            }
        }
        [b'[', ..] => return read_brackets(header),
        // Some daemons write this without a host.
        [b'l', ..] if header.rest.starts_with(b"last message repeated ") => return,
        [b'(' | b'U' | b'B', ..] => {
            let (word, rest) = split_name(header.rest);
            if is_model(word) {
                (header.form, header.rest) = (Form::UniFi, rest);
                return;
            }
        }
        _ => {}
    }

    let Some((host, rest)) = split(header.rest) else { return };
    header.hostname = Some(host);
    let plain = without_blanks(rest);
    let is_typed = match plain {
        // ASA writes a colon between host and content.
        [b':', behind @ ..] => header.read_type(behind),
        [b'%' | b'#', ..] => header.read_type(plain),
        _ => false,
    };
    if is_typed {
        return;
    }
    let rest = rest.strip_prefix(b": ").unwrap_or(rest);
    header.rest = rest;
    header.program = split_program(rest);
    match rest {
        _ if header.program.is_some() => {}
        [b'[', ..] => _ = read_event(header),
        // A text may begin with blanks, but not a program that has a process id.
        [b' ', ..] if has_process(without_blanks(rest)) => header.rest = without_blanks(rest),
        _ => read_behind_host(header, host),
    }
}

/// Skips what some senders put between host and program, where a program follows it for certain.
fn read_behind_host(header: &mut Header<'_>, host: &str) {
    let (word, rest) = split_name(header.rest);
    let Some(first) = word.first() else { return };
    match word {
        [.., b':'] if word.get(12) == Some(&b',') && is_mac(word.get(..12).unwrap_or_default()) => {
            (header.form, header.rest) = (Form::UniFi, rest);
        }
        // Most words here are programs, and end with a colon.
        [.., b':' | b']'] => {}
        _ if word == host.as_bytes() && split_program(rest).is_some() => header.rest = rest,
        // ArubaOS-Switch and ProCurve put the number of an event before the subsystem: `00076 ports: `.
        _ if first.is_ascii_digit()
            && word.len() == 5
            && split_digits(word, 5).1.is_empty()
            && split_program(rest).is_some() =>
        {
            (header.form, header.rest) = (Form::ProCurve, rest);
            header.msg_id = graphic(word);
        }
        _ if (is_level(word) || is_address(word)) && has_process(rest) => header.rest = rest,
        _ => {}
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
fn read_brackets(header: &mut Header<'_>) {
    let inside = header.rest.get(1..).unwrap_or_default();
    let Some(end) = inside.iter().take(NAME_MAX_BYTES).position(|byte| *byte == b']') else {
        return;
    };
    let (inside, behind) = inside.split_at(end);
    match behind {
        [_, b' ', rest @ ..] if is_address(inside) => {
            header.hostname = of(inside);
            header.rest = rest;
        }
        _ => _ = read_event(header),
    }
}

/// Reads what Data ONTAP writes: `[HOST:EVENT:SEVERITY]: `, with a process behind the host in some versions.
pub(super) fn read_event(header: &mut Header<'_>) -> bool {
    let Some((host, event, rest)) = split_event(header.rest) else { return false };
    header.form = Form::NetApp;
    (header.hostname, header.msg_id) = (Some(host), Some(event));
    (header.rest, header.next) = (rest, Next::Text);
    true
}

fn split_event(bytes: &[u8]) -> Option<(&str, &str, &[u8])> {
    let inside = bytes.strip_prefix(b"[")?;
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
    if is_level(level) { Some((of(parts[0])?, graphic(event)?, rest)) } else { None }
}
