//! RFC 3164 and what is sent in its name: `TIME HOST PROGRAM[PROCESS]: TEXT` after the priority, where every part may be missing
//! or look different, and devices have headers of their own.

use super::content::{self, Program, split_mnemonic, split_program};
use super::device::{self, Named};
use super::host;
use super::time::{self, Stamp};
use super::zone::ZoneWord;
use super::{
    Arrival, Depth, Form, Format, NAME_MAX_BYTES, Syslog, parse_at, run, split_name, text,
    without_blanks,
};

/// What was read in front of program and text.
#[derive(Clone, Copy, Default)]
pub(super) struct Header<'a> {
    pub(super) form: Form,
    pub(super) time: Option<Time>,
    pub(super) hostname: Option<&'a str>,
    pub(super) app_name: Option<&'a str>,
    pub(super) msg_id: Option<&'a str>,
    pub(super) rest: &'a [u8],
    pub(super) next: Next,
    /// The program that `rest` begins with, where it is known already.
    pub(super) program: Option<Program<'a>>,
    /// Whether a counter, or how long the device has run, stands in front.
    pub(super) is_counted: bool,
}

impl<'a> Header<'a> {
    /// Reads the type of the message, behind which only the text is left; `false` if it is not one.
    pub(super) fn read_type(&mut self, bytes: &'a [u8]) -> bool {
        let Some((msg_id, rest)) = split_mnemonic(bytes) else { return false };
        self.msg_id = Some(msg_id);
        (self.rest, self.next) = (rest, Next::Text);
        true
    }
}

/// What may follow a header.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Next {
    /// A host, and then the rest.
    Host,
    /// A program or a mnemonic, and the text.
    #[default]
    Content,
    /// The text.
    Text,
}

/// The time in a header.
#[derive(Clone, Copy)]
pub(super) struct Time {
    /// `None` if it is out of range.
    unix_ns: Option<u64>,
    /// Whether the sender's clock is: Cisco writes `*` before a time where it is not.
    is_set: bool,
}

/// Fills in what a message says that is not RFC 5424: `line` is `bytes` without the blanks at its beginning. Nothing if it begins with
/// neither a priority nor a time: then it may be anything.
pub(super) fn parse<'a>(
    bytes: &'a [u8],
    line: &'a [u8],
    arrival: Arrival<'_>,
    syslog: &mut Syslog<'a>,
    depth: Depth,
) {
    let mut header = Header::default();
    let is_known = read(&mut header, line, arrival);
    if syslog.facility.is_none() && !(is_known && header.time.is_some()) {
        return;
    }

    syslog.format = Format::Rfc3164;
    if !is_known {
        syslog.form = Some(Form::Text);
        content::read(line, syslog);
        // A text keeps the blanks at its beginning.
        if syslog.app_name.is_none() && syslog.msg_id.is_none() {
            syslog.message = text(bytes);
        }
        return;
    }
    let program = match header.next {
        Next::Text => None,
        Next::Host | Next::Content => header.program.or_else(|| split_program(header.rest)),
    };
    let is_relay = header.next == Next::Host && depth == Depth::Outer;
    if !(is_relay && may_be_header(program, header.rest) && relayed(&header, arrival, syslog)) {
        fill(&header, program, syslog);
    }
}

fn fill<'a>(header: &Header<'a>, program: Option<Program<'a>>, syslog: &mut Syslog<'a>) {
    syslog.form = Some(header.form);
    syslog.time_unix_ns = header.time.and_then(|time| time.unix_ns);
    syslog.hostname = header.hostname;
    match header.next {
        Next::Text => syslog.message = text(header.rest),
        Next::Host | Next::Content => content::read_behind(program, header.rest, syslog),
    }
    syslog.app_name = header.app_name.or(syslog.app_name);
    syslog.msg_id = header.msg_id.or(syslog.msg_id);
}

/// Reads the header in front of program and text, and the host; `false` if it has no known form.
fn read<'a>(header: &mut Header<'a>, line: &'a [u8], arrival: Arrival<'_>) -> bool {
    header.rest = line;
    let is_read = match line {
        [b'1' | b'2', _, _, _, b'0'..=b'9', ..] if read_epoch(header, arrival) => true,
        [b'd', ..] if read_fields(header, arrival) => true,
        [b'[', ..] => host::read_event(header),
        _ => match split_time(line, arrival) {
            Some((stamp, rest)) => {
                read_stamped(header, stamp, rest, arrival);
                true
            }
            None => device::read(header, line, arrival) || read_netscreen(header, line),
        },
    };
    if is_read && header.next == Next::Host {
        host::read(header);
    }
    is_read
}

/// Splits off a time, followed by a space, a colon or the end, and Cisco's mark before it.
pub(super) fn split_time<'a>(bytes: &'a [u8], arrival: Arrival<'_>) -> Option<(Stamp, &'a [u8])> {
    let bytes = match bytes {
        [b'*' | b'.', rest @ ..] => rest,
        _ => bytes,
    };
    let (stamp, rest) = match bytes {
        [b'0'..=b'9', _, b'/', ..] => time::slashed(bytes, arrival)?,
        [b'0'..=b'9', _, _, _, b' ', ..] => time::named_month(bytes)?,
        [b'0'..=b'9', _, _, _, _, _, _, b'-' | b'/' | b':', ..] => time::iso(bytes)?,
        [b'A'..=b'Z', ..] => time::named_month(bytes)?,
        _ => return None,
    };
    matches!(rest, [] | [b' ' | b':', ..]).then_some((stamp, rest))
}

/// Reads what follows a time at the beginning: a zone and a colon, or else the place of the host.
fn read_stamped<'a>(header: &mut Header<'a>, stamp: Stamp, rest: &'a [u8], arrival: Arrival<'_>) {
    let named = match header.rest {
        [b'*' | b'.', ..] => Named::ByDevice,
        _ => Named::ByAnybody,
    };
    let is_set = !header.rest.starts_with(b"*");
    let (time, rest) = behind_time((stamp, is_set), rest, named, arrival);
    header.time = Some(time);
    match without_blanks(rest) {
        [b':', rest @ ..] => {
            header.form = Form::Cisco;
            device::read_behind_colon(header, rest);
        }
        rest => {
            header.form = stamp.form();
            (header.rest, header.next) = (rest, Next::Host);
        }
    }
}

/// The time with the zone and the year that may stand behind it, and what follows them.
pub(super) fn behind_time<'a>(
    (mut stamp, is_set): (Stamp, bool),
    rest: &'a [u8],
    named: Named,
    arrival: Arrival<'_>,
) -> (Time, &'a [u8]) {
    let (word, mut rest) = split_zone(&stamp, rest, arrival, named);
    if word.is_some() {
        rest = stamp.take_year(rest);
    }
    (Time { unix_ns: stamp.unix_ns(word, arrival), is_set }, rest)
}

/// Splits off a zone between a time without one and what follows: `EST` in ` EST host`, `NewYork` in ` NewYork: %SYS-5-…`.
fn split_zone<'a>(
    stamp: &Stamp,
    rest: &'a [u8],
    arrival: Arrival<'_>,
    named: Named,
) -> (Option<ZoneWord<'a>>, &'a [u8]) {
    let behind = without_blanks(rest);
    if behind.len() == rest.len() || stamp.has_zone() {
        return (None, rest);
    }
    // Most words end here: they are hosts.
    let may_be_zone = matches!(behind, [b'A'..=b'Z' | b'+' | b'-', ..])
        || behind.starts_with(b"utc ")
        || behind.starts_with(b"gmt ")
        || named == Named::ByDevice
        || !arrival.zone_words.is_empty();
    if !may_be_zone {
        return (None, rest);
    }
    if let [b'U', b'T', b'C', left @ ..] = behind
        && matches!(left, [b':', ..] | [b' ', b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z', ..])
        && arrival.zone_words.is_empty()
    {
        return (Some(ZoneWord::Offset(0)), left);
    }

    match split_zone_word(behind, arrival, named) {
        Some((word, left)) => (Some(word), left),
        None => (None, rest),
    }
}

fn split_zone_word<'a>(
    bytes: &'a [u8],
    arrival: Arrival<'_>,
    named: Named,
) -> Option<(ZoneWord<'a>, &'a [u8])> {
    let (word, after) = split_name(bytes);
    let (core, is_before_colon) = match word.strip_suffix(b":") {
        Some(core) => (core, true),
        None => (word, after.starts_with(b":")),
    };
    let left = bytes.get(core.len()..)?;
    if !after.is_empty()
        && let Some(zone) = ZoneWord::of(core, arrival.zone_words)
    {
        // Aironet writes both: `PST -08:00`.
        let (second, _) = split_name(after);
        let second = second.strip_suffix(b":").unwrap_or(second);
        return Some(match ZoneWord::of(second, &[]) {
            Some(offset @ ZoneWord::Offset(_))
                if second.starts_with(b"+") || second.starts_with(b"-") =>
            {
                let behind = left.len() - after.len() + second.len();
                (offset, left.get(behind..)?)
            }
            _ => (zone, left),
        });
    }

    let of_mnemonic =
        || without_blanks(left).get(1..).is_some_and(|left| split_mnemonic(left).is_some());
    let is_zone = named == Named::ByDevice
        && is_before_colon
        && matches!(core.len(), 1..=32)
        && of_mnemonic();
    is_zone.then_some((ZoneWord::Name(core), left))
}

/// A time this much before or after the arrival may be a number without a meaning.
const EPOCH_NS_MAX: u64 = 2 * 366 * 86_400 * 1_000_000_000;

/// Reads seconds since 1970, with Meraki's version before them or without.
fn read_epoch(header: &mut Header<'_>, arrival: Arrival<'_>) -> bool {
    let versioned = header.rest.strip_prefix(b"1 ");
    let Some((time, [b' ', rest @ ..])) = time::epoch(versioned.unwrap_or(header.rest)) else {
        return false;
    };
    if versioned.is_some() {
        header.form = Form::Meraki;
        header.next = Next::Text;
        header.rest = without_blanks(rest);
        if let Some((host, rest)) = host::split(rest) {
            (header.hostname, header.rest) = (Some(host), rest);
        }
    } else if time.abs_diff(arrival.unix_ns) < EPOCH_NS_MAX {
        header.form = Form::Epoch;
        (header.rest, header.next) = (rest, Next::Host);
    } else {
        return false;
    }
    header.time = Some(Time { unix_ns: Some(time), is_set: true });
    true
}

/// Most bytes of a firewall's fields that are searched for its name and its zone.
const FIELDS_BYTES_MAX: usize = 512;

/// Reads the first fields of FortiOS and of Sophos Firewall. They are the text too.
fn read_fields(header: &mut Header<'_>, arrival: Arrival<'_>) -> bool {
    let Some((stamp, rest)) = split_field_time(header.rest) else { return false };
    let near = rest.get(..rest.len().min(FIELDS_BYTES_MAX)).unwrap_or_default();
    let zone = value_of(near, &[b"tz=", b"timezone="]);
    let unix_ns = stamp.unix_ns(zone.and_then(|zone| ZoneWord::of(zone, &[])), arrival);
    header.form = Form::Fields;
    header.time = Some(Time { unix_ns, is_set: true });
    header.hostname = value_of(near, &[b"devname="]).and_then(host::of);
    header.next = Next::Text;
    true
}

fn split_field_time(line: &[u8]) -> Option<(Stamp, &[u8])> {
    // Sophos writes its kind first (`device="SFW" date=…`), or a name that is `SFW` unless it is changed (`device_name="SFW" timestamp=…`).
    let kind = line.strip_prefix(b"device=\"").or_else(|| line.strip_prefix(b"device_name=\""));
    let begin = match kind {
        Some(rest) => {
            let end = rest.iter().take(NAME_MAX_BYTES).position(|byte| *byte == b'"')?;
            rest.get(end + 2..)?
        }
        None => line,
    };
    time::fields(begin)
}

/// The value of the first field with one of these names, without quotes.
fn value_of<'a>(fields: &'a [u8], names: &[&[u8]]) -> Option<&'a [u8]> {
    let mut rest = fields;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b' ' | b',')) {
        rest = rest.get(at + 1..)?;
        if let Some(value) = names.iter().find_map(|name| rest.strip_prefix(*name)) {
            let (value, end) = match value.strip_prefix(b"\"") {
                Some(value) => (value, value.iter().position(|byte| *byte == b'"')?),
                None => (value, run(value, value.len(), |byte| !matches!(byte, b' ' | b','))),
            };
            return value.get(..end);
        }
    }
    None
}

/// Reads the host of ScreenOS, which stands where others have a program.
fn read_netscreen<'a>(header: &mut Header<'a>, line: &'a [u8]) -> bool {
    match split_name(line) {
        ([name @ .., b':'], rest) if rest.starts_with(b"NetScreen device_id=") => {
            header.form = Form::NetScreen;
            header.hostname = host::of(name);
            (header.rest, header.next) = (rest, Next::Text);
            true
        }
        _ => false,
    }
}

/// Whether a device's own header may follow a host: not where a program with a process id does, as in most messages.
fn may_be_header(program: Option<Program<'_>>, rest: &[u8]) -> bool {
    let begins =
        |bytes: &[u8]| matches!(bytes, [b'0'..=b'9' | b'A'..=b'Z' | b'*' | b'.' | b':' | b'<', ..]);
    match program {
        Some((_, Some(_), _)) => false,
        Some((_, None, behind)) => begins(rest) || begins(behind),
        None => begins(without_blanks(rest)) || begins(split_name(rest).1),
    }
}

/// Fills in the message that a relay has put its own header in front of, if it is certain that it is one: programs write times, too.
fn relayed<'a>(outer: &Header<'a>, arrival: Arrival<'_>, syslog: &mut Syslog<'a>) -> bool {
    let rest = without_blanks(outer.rest);
    if matches!(rest, [b'<', ..] | [b'1', b' ', ..]) {
        let mut inner = parse_at(rest, arrival, Depth::Inner);
        let is_sure = match rest {
            [b'<', ..] => {
                inner.facility.is_some() && (inner.time_unix_ns.is_some() || inner.msg_id.is_some())
            }
            _ => inner.format == Format::Rfc5424 && inner.fault.is_none(),
        };
        if is_sure {
            inner.form = Some(Form::Relayed);
            (inner.facility, inner.severity) = (syslog.facility, syslog.severity);
            inner.hostname = inner.hostname.or(outer.hostname);
            let outer_time = || outer.time.and_then(|time| time.unix_ns);
            inner.time_unix_ns = inner.time_unix_ns.or_else(outer_time);
            *syslog = inner;
            return true;
        }
        if rest.starts_with(b"<") {
            return false;
        }
    }

    let mut inner = Header::default();
    if !read(&mut inner, rest, arrival) || !is_sure(&inner, outer) {
        return false;
    }
    // A name without a time is a program's: Arista writes `HOST PROGRAM: COUNTER: %…`.
    let (hostname, app_name) = match (inner.time, outer.hostname, inner.hostname) {
        (None, Some(host), Some(name)) if host != name => (Some(host), Some(name)),
        (_, host, name) => (name.or(host), inner.app_name),
    };
    let time = inner.time.filter(|time| time.is_set).or(outer.time);
    let program = split_program(inner.rest);
    let inner = Header { form: Form::Relayed, hostname, app_name, time, ..inner };
    fill(&inner, program, syslog);
    true
}

/// Whether a header behind another is a device's own, and not what a program writes in its text.
fn is_sure(inner: &Header<'_>, outer: &Header<'_>) -> bool {
    if matches!(inner.form, Form::Meraki | Form::NetScaler) {
        return true;
    }
    let program = split_program(inner.rest);
    let behind = program.map_or(inner.rest, |(_, _, behind)| behind);
    let is_device = inner.time.is_some() || inner.is_counted;
    if is_device && (inner.msg_id.is_some() || split_mnemonic(behind).is_some()) {
        return true;
    }

    let is_program = program.is_some_and(|(_, proc_id, _)| proc_id.is_some());
    let is_same_host = inner.hostname.is_some() && inner.hostname == outer.hostname;
    inner.time.is_some()
        && inner.next == Next::Host
        && inner.hostname.is_some()
        && (is_program || is_same_host)
}

/// The bytes after the priority that begin with the host, and the length of its name, 0 if there is none; `None` without a time
/// before it, and for device-specific formats.
pub(super) fn split_at_host(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let arrival = Arrival::utc(0);
    let (stamp, rest) = split_time(bytes, arrival)?;
    if matches!(bytes, [b'*' | b'.', ..]) || rest.starts_with(b"  ") {
        return None;
    }

    let (_, rest) = split_zone(&stamp, rest, arrival, Named::ByAnybody);
    let rest = rest.strip_prefix(b" ")?;
    if rest.starts_with(b"Message forwarded from ") || matches!(rest, [b':' | b'[' | b' ', ..]) {
        return None;
    }
    Some((rest, host::split(rest).map_or(0, |(host, _)| host.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_host_is_behind_the_zone() {
        let check = |line: &str, expected: Option<(&str, usize)>| {
            let found = split_at_host(line.as_bytes());
            assert_eq!(found, expected.map(|(rest, len)| (rest.as_bytes(), len)), "{line}");
        };
        check("Oct 11 22:14:15 gw1 app: x", Some(("gw1 app: x", 3)));
        check("Oct 11 22:14:15 EST gw1 app: x", Some(("gw1 app: x", 3)));
        check("Oct 11 22:14:15 app: x", Some(("app: x", 0)));
        check("Oct 11 22:14:15 fw1: %ASA-6-302013: x", Some(("fw1: %ASA-6-302013: x", 3)));
        check("Oct 11 22:14:15 EST: %SYS-5-RESTART: x", None);
        check("45: Oct 11 22:14:15: %SYS-5-RESTART: x", None);
    }
}
