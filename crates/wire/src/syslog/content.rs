//! What follows the header: program, process, type and text.

use super::{
    Kind, NAME_MAX_BYTES, Syslog, ascii, graphic, letters_and, run, run_of, split_digits, text,
    time, without_blanks,
};

/// A program, its process id, and what follows.
pub(super) type Program<'a> = (&'a str, Option<&'a str>, &'a [u8]);

/// Reads program, process, type and text.
pub(super) fn read<'a>(bytes: &'a [u8], syslog: &mut Syslog<'a>) {
    read_behind(split_program(bytes), bytes, syslog);
}

/// Reads type and text behind a program, if there is one.
pub(super) fn read_behind<'a>(
    program: Option<Program<'a>>,
    bytes: &'a [u8],
    syslog: &mut Syslog<'a>,
) {
    let mut rest = bytes;
    if let Some((app_name, proc_id, behind)) = program {
        syslog.app_name = Some(app_name);
        syslog.proc_id = proc_id;
        rest = behind;
    }
    let mnemonic = match program {
        None => split_mnemonic(rest).or_else(|| split_bare_module(rest)),
        Some(_) => split_mnemonic(rest),
    };
    if let Some((msg_id, behind)) = mnemonic {
        syslog.msg_id = Some(msg_id);
        rest = behind;
    }
    syslog.message = text(rest);
}

/// Splits off `sshd[4711]: ` or `kernel: `.
pub(super) fn split_program(bytes: &[u8]) -> Option<Program<'_>> {
    let mut len = run_of(bytes, NAME_MAX_BYTES + 1, &OF_PROGRAM);
    // A colon ends the name only before a space: `Foo::Bar: text`.
    while let Some([b':', ..]) = bytes.get(len..)
        && !is_colon(bytes.get(len..)?)
    {
        len += 1 + run_of(bytes.get(len + 1..)?, NAME_MAX_BYTES, &OF_PROGRAM);
        if len > NAME_MAX_BYTES {
            return None;
        }
    }

    let (name, rest) = bytes.split_at_checked(len)?;
    let (proc_id, rest) = match rest.strip_prefix(b"[") {
        Some(inside) => {
            let len = run(inside, NAME_MAX_BYTES, |byte| byte.is_ascii_graphic() && byte != b']');
            let (proc_id, rest) = inside.split_at_checked(len)?;
            (Some(ascii(proc_id)?), rest.strip_prefix(b"]")?)
        }
        None => (None, rest),
    };

    let rest = match rest.strip_prefix(b":") {
        // With a process id it is a program, even without a blank or a colon.
        Some(behind) if is_colon(rest) || proc_id.is_some() => behind,
        _ if proc_id.is_some() && matches!(rest, [] | [b' ', ..]) => rest,
        _ => return None,
    };
    if !is_program(name) {
        return None;
    }
    let name = ascii(name)?;
    Some((name, proc_id, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// The characters of a program's name besides the colon.
const OF_PROGRAM: Kind = letters_and(b"!#$&()*+-./?@\\]^_`|~");

/// Whether a word before a colon can be a program: not a counter, an address, a clock, an uptime, a type, or how bad it is.
fn is_program(name: &[u8]) -> bool {
    let Some(first) = name.first() else { return false };
    if name.ends_with(b":") || is_level(name) {
        return false;
    }
    if !first.is_ascii_digit() {
        return *first != b'#' && !(name.contains(&b'/') && begins_with_module(name));
    }
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b':');
    !name.iter().all(is_of_number) && time::uptime(name).is_none_or(|rest| !rest.is_empty())
}

/// Whether a word says only how bad something is, alone or behind a facility (`daemon.info`).
pub(super) fn is_level(word: &[u8]) -> bool {
    // Most words end here, by their last letter.
    let last = word.last().copied().unwrap_or_default() | 0x20;
    if !matches!(last, b'c' | b'e' | b'g' | b'l' | b'n' | b'o' | b'r' | b't' | b'y') {
        return false;
    }
    let level = match word.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => word.get(dot + 1..).unwrap_or_default(),
        None => word,
    };
    let levels: &[&[u8]] = match level.len() {
        3 => &[b"err"],
        4 => &[b"crit", b"info", b"warn"],
        5 => &[b"alert", b"debug", b"emerg", b"error", b"fatal", b"panic", b"trace"],
        6 => &[b"notice", b"severe"],
        7 => &[b"verbose", b"warning"],
        8 => &[b"critical"],
        9 => &[b"emergency"],
        11 => &[b"information"],
        13 => &[b"informational"],
        _ => return false,
    };
    levels.iter().any(|one| level.eq_ignore_ascii_case(one))
}

/// Whether the bytes begin with a colon that ends something.
fn is_colon(bytes: &[u8]) -> bool {
    matches!(bytes, [b':'] | [b':', b' ' | b'\t' | b'\n' | b'\r' | 0, ..])
}

/// Splits off the type of a device's message: of Cisco `%SYS-5-CONFIG_I: `, of Huawei and H3C `%%10IFNET/3/LINK_UPDOWN: `, without
/// percent signs and colon. Blanks before it belong to it.
pub(super) fn split_mnemonic(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let bytes = match bytes {
        [b' ', ..] => without_blanks(bytes),
        _ => bytes,
    };
    // AireOS writes `#APF-4-…` in place of `%APF-4-…`, depending on the version.
    let inside = match bytes {
        [b'%', inside @ ..] => inside,
        [b'#', inside @ ..] => return split_cisco(inside),
        _ => return None,
    };
    match inside {
        [b'%', ..] => split_module(inside.get(1..)?),
        // NX-OS names the virtual device first: `%$ VDC-1 %$ %ETHPORT-5-IF_UP: `.
        [b'$', behind @ ..] => {
            let end = behind.iter().take(NAME_MAX_BYTES).position(|byte| *byte == b'%')?;
            let behind = behind.get(end..)?.strip_prefix(b"%$")?;
            split_cisco(without_blanks(behind).strip_prefix(b"%")?)
        }
        _ => split_cisco(inside).or_else(|| split_behind_unit(inside)),
    }
}

/// Splits off `SYS-5-CONFIG_I: `. A digit from 0 to 7 stands between two hyphens; otherwise it is a text with a percent sign.
#[inline]
fn split_cisco(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let len = run_of(bytes, NAME_MAX_BYTES, &OF_MNEMONIC);
    let (mnemonic, rest) = bytes.split_at_checked(len)?;
    let is_severity = |bytes: &[u8]| matches!(bytes, [b'-', b'0'..=b'7', b'-', _]);
    if mnemonic.starts_with(b"-") || !mnemonic.windows(4).any(is_severity) {
        return None;
    }

    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let rest = match rest {
        [b':', rest @ ..] => rest.strip_prefix(b" ").unwrap_or(rest),
        // ACI puts no colon before its codes: `%LOG_LOCAL0-6-SYSTEM_MSG [F0321][raised]`.
        [b'[', ..] => rest,
        _ => return None,
    };
    Some((ascii(mnemonic)?, rest))
}

const OF_MNEMONIC: Kind = letters_and(b"-_");

/// Splits off what Dell FTOS writes: `STKUNIT0-M:CP %SEC-5-LOGIN_SUCCESS: `, with the unit first.
fn split_behind_unit(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let is_of_unit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b':');
    let len = run(bytes, 32, is_of_unit);
    let (unit, rest) = bytes.split_at_checked(len)?;
    if unit.contains(&b':') { split_cisco(rest.strip_prefix(b" %")?) } else { None }
}

/// Splits off `10IFNET/3/LINK_UPDOWN: `: two digits for the version, the module, the severity and the mnemonic.
fn split_module(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (version, rest) = split_digits(bytes, 2);
    if version.len() == 2 { split_bare_module(rest) } else { None }
}

/// Whether a word is a module with what Huawei may add to it: `IFNET/4/IF_STATE(l)`.
fn begins_with_module(word: &[u8]) -> bool {
    word.split(|byte| *byte == b'(').next().is_some_and(is_module)
}

/// Whether a word names a module, a severity and a mnemonic: `IFNET/3/LINK_UPDOWN`.
fn is_module(word: &[u8]) -> bool {
    word.windows(3).any(|bytes| matches!(bytes, [b'/', b'0'..=b'7', b'/']))
        && word.iter().all(|byte| is_of_module(*byte))
}

fn is_of_module(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/')
}

/// Splits off `IFNET/3/LINK_UPDOWN: `, as older versions of both write it.
fn split_bare_module(bytes: &[u8]) -> Option<(&str, &[u8])> {
    // Most texts end here.
    if !bytes.first().is_some_and(u8::is_ascii_uppercase) {
        return None;
    }
    let len = run(bytes, NAME_MAX_BYTES, is_of_module);
    let (module, mut rest) = bytes.split_at_checked(len)?;
    if !is_module(module) {
        return None;
    }

    // Huawei adds the kind of information and a number: `(l)[7]`.
    for (open, close) in [(b'(', b')'), (b'[', b']')] {
        if rest.first() == Some(&open) {
            let end = rest.iter().take(32).position(|byte| *byte == close)?;
            rest = rest.get(end + 1..)?;
        }
    }
    let rest = rest.strip_prefix(b":")?;
    Some((graphic(module)?, rest.strip_prefix(b" ").unwrap_or(rest)))
}
