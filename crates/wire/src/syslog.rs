//! Syslog as devices send it: RFC 5424, RFC 3164, and what is sent in their names.
//!
//! [`FORMS`] lists every form that is read, with its senders, the document and examples. The most certain form is tried
//! first, and a form that does not apply costs a few comparisons. A part that no form is sure of is absent. Nothing is
//! copied. A message of unknown form is [`Format::Unparsed`]: the caller has the bytes. A message may be any bytes; only
//! its text and structured data may be invalid UTF-8.

mod content;
mod device;
mod forms;
mod host;
mod origin;
mod rfc3164;
mod rfc5424;
mod time;
mod zone;

pub use forms::{Example, FORMS, Form, FormDocument};
pub use origin::{ORIGIN_BYTES_MAX, OriginPlace, write_origin};
pub use zone::{Zone, ZoneChange};

/// The longest host name in DNS. Also the limit for programs and types.
const NAME_MAX_BYTES: usize = 255;

/// A parsed message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syslog<'a> {
    /// Which RFC it follows.
    pub format: Format,
    /// How its header was read; `None` if it is not parsed.
    pub form: Option<Form>,
    /// The first part that is not as the RFC says. The parts before it are present, and `message` has the rest.
    pub fault: Option<Fault>,
    /// 0 to 23; absent if the message does not begin with a valid `<number>`.
    pub facility: Option<u8>,
    /// 0 (worst) to 7; absent if the facility is.
    pub severity: Option<u8>,
    /// The sender's time, in nanoseconds since 1970, UTC.
    pub time_unix_ns: Option<u64>,
    /// The host named in the message.
    pub hostname: Option<&'a str>,
    /// The program.
    pub app_name: Option<&'a str>,
    /// The process id, or what the sender put in its place.
    pub proc_id: Option<&'a str>,
    /// The type of message; for Cisco devices, the text between `%` and the colon.
    pub msg_id: Option<&'a str>,
    /// Elements with their brackets and escapes.
    pub structured_data: Option<&'a [u8]>,
    /// The text, without byte order mark and line end. Absent if the message is not parsed, or has no text.
    pub message: Option<&'a [u8]>,
}

/// The RFC that a message follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// None of those below.
    #[default]
    Unparsed,
    /// RFC 5424: version, time, host, program, process, type, structured data, text.
    Rfc5424,
    /// RFC 3164: facility and severity, or a time, or both, before the text; host and program if they can be
    /// identified.
    Rfc3164,
}

/// The part of an RFC 5424 message that is not as the RFC says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not a time.
    Time,
    /// The time has no zone. It is read in the listener's, and the parts behind it are read.
    TimeZone,
    Hostname,
    AppName,
    ProcId,
    MsgId,
    /// Missing, or neither `-` nor elements. `message` begins with it.
    StructuredData,
    /// No blank before the text.
    Message,
}

/// The context for completing times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'z> {
    /// When the message was received: a time without a year gets the nearest one.
    pub unix_ns: u64,
    /// The zone for a time without one, or with a word for it that is not known.
    pub zone: &'z Zone,
    /// Words behind a time that name a zone, besides those of UTC, which everybody means in the same way.
    pub zone_words: &'z [(String, Zone)],
}

static UTC: Zone = Zone::fixed(0);

impl Arrival<'static> {
    /// An arrival where times are UTC unless they name their zone.
    pub const fn utc(unix_ns: u64) -> Arrival<'static> {
        Arrival { unix_ns, zone: &UTC, zone_words: &[] }
    }
}

/// Parses one message, for example a datagram.
pub fn parse<'a>(bytes: &'a [u8], arrival: Arrival<'_>) -> Syslog<'a> {
    parse_at(bytes, arrival, Depth::Outer)
}

/// Whether a message is inside another, which a relay has put around it. There is no third level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Outer,
    Inner,
}

fn parse_at<'a>(bytes: &'a [u8], arrival: Arrival<'_>, depth: Depth) -> Syslog<'a> {
    let (priority, rest) = split_priority(without_mark(without_end(bytes)));
    let mut syslog = Syslog {
        facility: priority.map(|priority| priority >> 3),
        severity: priority.map(|priority| priority & 7),
        ..Syslog::default()
    };

    let rest = without_mark(rest);
    let line = without_blanks(rest);
    if !rfc5424::parse(line, arrival, &mut syslog) {
        rfc3164::parse(rest, line, arrival, &mut syslog, depth);
    }
    syslog
}

/// Splits off `<0>` to `<191>`, without leading zeros.
fn split_priority(bytes: &[u8]) -> (Option<u8>, &[u8]) {
    let priority = bytes.strip_prefix(b"<").and_then(|rest| {
        let (priority, behind) = split_number(rest, 3);
        let digits = rest.len() - behind.len();
        let is_plain = digits == 1 || digits > 0 && !rest.starts_with(b"0");
        let rest = behind.strip_prefix(b">").filter(|_| is_plain && priority <= 191)?;
        Some((u8::try_from(priority).ok()?, rest))
    });

    match priority {
        Some((priority, rest)) => (Some(priority), rest),
        None => (None, bytes),
    }
}

/// How many bytes at the beginning are of a kind, at most `max`.
fn run(bytes: &[u8], max: usize, is_of_kind: impl Fn(u8) -> bool) -> usize {
    let near = bytes.get(..max).unwrap_or(bytes);
    near.iter().position(|byte| !is_of_kind(*byte)).unwrap_or(near.len())
}

/// Which bytes are of a kind.
type Kind = [bool; 256];

/// The kind with ASCII letters, digits and these.
const fn letters_and(others: &[u8]) -> Kind {
    let (mut kind, mut byte, mut at) = ([false; 256], 0, 0);
    while byte < 256 {
        kind[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    while at < others.len() {
        kind[others[at] as usize] = true;
        at += 1;
    }
    kind
}

/// How many bytes at the beginning are of a kind, at most `max`.
fn run_of(bytes: &[u8], max: usize, kind: &Kind) -> usize {
    run(bytes, max, |byte| kind[usize::from(byte)])
}

/// Splits off decimal digits at the beginning, at most `max`.
fn split_digits(bytes: &[u8], max: usize) -> (&[u8], &[u8]) {
    bytes.split_at(run(bytes, max, |byte| byte.is_ascii_digit()))
}

/// Splits off the number of the decimal digits at the beginning, at most `max` and 9; 0 if there is none.
fn split_number(bytes: &[u8], max: usize) -> (u32, &[u8]) {
    let (mut number, mut len) = (0, 0);
    for byte in bytes.iter().take(max) {
        if !byte.is_ascii_digit() {
            break;
        }
        number = number * 10 + u32::from(byte - b'0');
        len += 1;
    }
    (number, bytes.get(len..).unwrap_or_default())
}

/// Splits at the first space; the second part is empty if there is none.
fn split_word(bytes: &[u8]) -> (&[u8], &[u8]) {
    let len = bytes.iter().position(|byte| *byte == b' ').unwrap_or(bytes.len());
    let (word, rest) = bytes.split_at(len);
    (word, rest.get(1..).unwrap_or_default())
}

/// Splits off a word that may be a name, up to a blank, and all blanks behind it. What is longer than a name is cut.
fn split_name(bytes: &[u8]) -> (&[u8], &[u8]) {
    let is_blank = |byte: u8| matches!(byte, b' ' | b'\t');
    let (word, rest) = bytes.split_at(run(bytes, NAME_MAX_BYTES + 2, |byte| !is_blank(byte)));
    let blanks = run(rest, rest.len(), is_blank);
    (word, rest.get(blanks..).unwrap_or_default())
}

/// The bytes as text, if they are printable ASCII without spaces and not empty.
fn graphic(bytes: &[u8]) -> Option<&str> {
    let is_graphic = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic);
    str::from_utf8(bytes).ok().filter(|_| is_graphic)
}

/// Bytes that are known to be ASCII as text, if they are not empty.
fn ascii(bytes: &[u8]) -> Option<&str> {
    if bytes.is_empty() { None } else { str::from_utf8(bytes).ok() }
}

/// The bytes without the blanks at their beginning.
fn without_blanks(bytes: &[u8]) -> &[u8] {
    match bytes {
        [b' ', ..] => {
            let blanks = run(bytes, bytes.len(), |byte| byte == b' ');
            bytes.get(blanks..).unwrap_or_default()
        }
        _ => bytes,
    }
}

/// The bytes without a byte order mark, which some senders put before the priority and others before the text.
fn without_mark(bytes: &[u8]) -> &[u8] {
    match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => rest,
        _ => bytes,
    }
}

/// A message without line ends and NULs at its end.
fn without_end(text: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r' | 0);
    let len = text.iter().rposition(|byte| !is_end(byte)).map_or(0, |last| last + 1);
    text.get(..len).unwrap_or_default()
}

/// A text; `None` if it is empty.
fn text(bytes: &[u8]) -> Option<&[u8]> {
    Some(bytes).filter(|bytes| !bytes.is_empty())
}
