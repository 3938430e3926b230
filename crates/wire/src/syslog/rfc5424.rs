//! RFC 5424: `1 TIME HOST PROGRAM PROCESS TYPE DATA TEXT` after the priority, with `-` for unknown parts.

use super::{
    Arrival, Fault, Form, Format, Syslog, graphic, run, split_digits, split_word, text, time,
    without_blanks, without_mark,
};

/// Whether it looks like this form: the version, followed by a time or `-`. A text may begin with a number, too.
pub(super) fn claims(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"1 ") else { return false };
    match rest {
        [b'-', b' ', ..] | [b' ', ..] => true,
        _ => {
            let (_, behind) = split_digits(rest, 4);
            // A blank in place of the `T` is a fault of the time, and not another form.
            let is_clock = |behind: &[u8]| {
                matches!(behind.get(6..), Some([b' ', b'0'..=b'2', b'0'..=b'9', b':', ..]))
            };
            let is_time = behind.iter().take(8).any(|byte| *byte == b'T') || is_clock(behind);
            rest.len() - behind.len() == 4 && behind.starts_with(b"-") && is_time
        }
    }
}

/// Fills in what the message says; `false` if it has another form after all.
pub(super) fn parse<'a>(bytes: &'a [u8], arrival: Arrival<'_>, syslog: &mut Syslog<'a>) -> bool {
    if !claims(bytes) {
        return false;
    }

    let rest = bytes.get(2..).unwrap_or_default();
    let prioritized = *syslog;
    read(rest, arrival, syslog, Blanks::One);
    // An empty part is two blanks in a row where the message is clean without one of them.
    if syslog.fault.is_some() && syslog.structured_data.is_none() {
        let mut single = prioritized;
        read(without_blanks(rest), arrival, &mut single, Blanks::Any);
        if single.fault.is_none() {
            *syslog = single;
        }
    }

    let is_sure = is_sure(syslog, rest);
    if !is_sure {
        *syslog = prioritized;
    }
    is_sure
}

/// What may stand between two parts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blanks {
    One,
    Any,
}

/// Whether a message that is not clean can be no other text. Without a priority or a time many texts begin like this form.
fn is_sure(syslog: &Syslog<'_>, rest: &[u8]) -> bool {
    let is_timed = !rest.starts_with(b"-");
    match syslog.fault {
        None => is_timed || syslog.facility.is_some(),
        Some(_) if syslog.facility.is_none() => false,
        Some(Fault::StructuredData) if !is_timed => {
            matches!(syslog.message, Some([b'[' | b'-', ..]) | None)
        }
        Some(_) => is_timed,
    }
}

/// Reads the parts up to the first that is not as the RFC says; what follows is the message then.
fn read<'a>(rest: &'a [u8], arrival: Arrival<'_>, syslog: &mut Syslog<'a>, blanks: Blanks) {
    syslog.format = Format::Rfc5424;
    syslog.form = Some(Form::Rfc5424);
    if let Err((fault, rest)) = read_parts(rest, arrival, syslog, blanks) {
        syslog.fault = syslog.fault.or(Some(fault));
        syslog.message = text(without_blanks(rest));
    }
}

/// The fault, and what begins with the part that has it.
fn read_parts<'a>(
    rest: &'a [u8],
    arrival: Arrival<'_>,
    syslog: &mut Syslog<'a>,
    blanks: Blanks,
) -> Result<(), (Fault, &'a [u8])> {
    let (word, behind) = split_part(rest, blanks);
    if word != b"-" {
        let Some((stamp, b"")) = time::iso(word) else { return Err((Fault::Time, rest)) };
        // Which zone is the only doubt here: the other parts are as sure as with it.
        syslog.fault = (!stamp.has_zone()).then_some(Fault::TimeZone);
        syslog.time_unix_ns = stamp.unix_ns(None, arrival);
    }

    let (word, rest) = split_part(behind, blanks);
    syslog.hostname = known(word).ok_or((Fault::Hostname, behind))?;
    let (word, behind) = split_part(rest, blanks);
    syslog.app_name = known(word).ok_or((Fault::AppName, rest))?;
    let (word, rest) = split_part(behind, blanks);
    syslog.proc_id = known(word).ok_or((Fault::ProcId, behind))?;
    let (word, behind) = split_part(rest, blanks);
    syslog.msg_id = known(word).ok_or((Fault::MsgId, rest))?;

    let rest = behind;
    let (data, behind) = split_structured_data(rest).ok_or((Fault::StructuredData, rest))?;
    match behind {
        [] | [b' ' | b'\n' | b'\r' | 0, ..] => {}
        _ if data == b"-" => return Err((Fault::StructuredData, rest)),
        _ => syslog.fault = syslog.fault.or(Some(Fault::Message)),
    }
    syslog.structured_data = (data != b"-").then_some(data);
    syslog.message = text(without_mark(behind.strip_prefix(b" ").unwrap_or(behind)));
    Ok(())
}

/// Splits off a part of the header; an empty one if it has bytes that no part may have.
fn split_part(bytes: &[u8], blanks: Blanks) -> (&[u8], &[u8]) {
    let len = run(bytes, bytes.len(), |byte| byte.is_ascii_graphic());
    let (word, behind) = bytes.split_at(len);
    match behind {
        [] => (word, behind),
        [b' ', rest @ ..] if blanks == Blanks::One => (word, rest),
        [b' ', ..] => (word, without_blanks(behind)),
        _ => (b"", bytes),
    }
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

/// A part of the header: `Some(None)` for `-`, `None` if it is empty.
fn known(part: &[u8]) -> Option<Option<&str>> {
    match part {
        [] => None,
        b"-" => Some(None),
        _ => str::from_utf8(part).ok().map(Some),
    }
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
    let is_name = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'=' | b']' | b'"');
    let len = run(bytes, bytes.len(), is_name);
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
