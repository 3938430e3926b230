//! RFC 5424: `1 TIME HOST PROGRAM PROCESS TYPE DATA TEXT` after the priority, with `-` for unknown parts.

use super::{Format, Syslog, graphic, number, split_digits, split_word, time, without_end};

/// Whether it looks like this form: a version, followed by a time or `-`. A text may begin with a number, too.
pub(super) fn claims(bytes: &[u8]) -> bool {
    let (version, rest) = split_digits(bytes, 3);
    let Some(rest) = rest.strip_prefix(b" ") else { return false };
    let (time, _) = split_word(rest);

    number(version).is_some_and(|version| version > 0)
        && (time == b"-" || split_digits(time, 4).0.len() == 4 && time.get(4) == Some(&b'-'))
}

/// `None` if it has another form after all.
pub(super) fn parse<'a>(bytes: &'a [u8], syslog: &mut Syslog<'a>) -> Option<()> {
    let rest = bytes.strip_prefix(b"1 ")?;
    let (stamp, rest) = split_word(rest);
    if stamp != b"-" {
        let (stamp, behind) = time::iso(stamp)?;
        if !behind.is_empty() || !stamp.has_zone() {
            return None;
        }
        syslog.time_unix_ns = stamp.unix_ns(0);
    }

    let (hostname, rest) = split_word(rest);
    let (app_name, rest) = split_word(rest);
    let (proc_id, rest) = split_word(rest);
    let (msg_id, rest) = split_word(rest);
    syslog.hostname = known(hostname)?;
    syslog.app_name = known(app_name)?;
    syslog.proc_id = known(proc_id)?;
    syslog.msg_id = known(msg_id)?;

    let (data, rest) = split_structured_data(rest)?;
    syslog.structured_data = (data != b"-").then_some(data);
    let text = match rest {
        [] => rest,
        // Some senders end the line directly after the data.
        [b'\n' | b'\r' | 0, ..] => rest,
        _ => rest.strip_prefix(b" ")?,
    };
    syslog.message = without_end(text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text));
    syslog.format = Format::Rfc5424;
    Some(())
}

/// The bytes after the priority that begin with the structured data, and its length; `None` if there is none.
pub(super) fn split_at_data(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let mut rest = bytes.strip_prefix(b"1 ")?;
    for _ in ["time", "host", "program", "process", "type"] {
        let (word, behind) = split_word(rest);
        graphic(word)?;
        rest = behind;
    }
    let (data, _) = split_structured_data(rest)?;
    Some((rest, data.len()))
}

/// The elements of structured data, one after another.
pub(super) fn elements(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let element = rest;
        rest = behind_element(rest.strip_prefix(b"[").map(|_| rest)?)?;
        element.get(..element.len() - rest.len())
    })
}

/// A header field: `Some(None)` for `-`. `None` if it is not a valid field.
fn known(field: &[u8]) -> Option<Option<&str>> {
    let field = graphic(field)?;
    Some((field != "-").then_some(field))
}

/// Splits off `-`, or consecutive elements in brackets.
fn split_structured_data(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if bytes.starts_with(b"-") {
        return bytes.split_at_checked(1);
    }

    let mut rest = bytes;
    while rest.starts_with(b"[") {
        rest = behind_element(rest)?;
    }

    let len = bytes.len() - rest.len();
    if len == 0 { None } else { bytes.split_at_checked(len) }
}

/// What follows `[id name="value" …]`.
fn behind_element(element: &[u8]) -> Option<&[u8]> {
    let mut rest = behind_name(element.get(1..)?)?;
    loop {
        // Some senders put a space before the bracket.
        let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
        rest = rest.get(spaces..)?;
        if let Some(rest) = rest.strip_prefix(b"]") {
            return Some(rest);
        }
        if spaces == 0 {
            return None;
        }

        rest = behind_name(rest)?.strip_prefix(b"=\"")?;
        rest = behind_value(rest)?;
    }
}

/// What follows an identifier or the name of a parameter.
fn behind_name(bytes: &[u8]) -> Option<&[u8]> {
    let is_name = |byte: &&u8| byte.is_ascii_graphic() && !matches!(byte, b'=' | b']' | b'"');
    let len = bytes.iter().take_while(is_name).count();
    if len == 0 { None } else { bytes.get(len..) }
}

/// What follows a value and its closing quote. A backslash escapes the next character.
fn behind_value(bytes: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            b'"' => return bytes.get(at + 1..),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}
