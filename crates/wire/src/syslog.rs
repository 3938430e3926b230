//! Syslog in practice: RFC 5424, RFC 3164, and what devices make of the latter.
//!
//! Nothing is copied. Parts that cannot be identified are absent, and a message of unknown form is
//! [`Format::Unparsed`]: the caller has the bytes. A message may be any bytes; only its text and structured data may be
//! invalid UTF-8.

mod origin;
mod rfc3164;
mod rfc5424;
mod time;

pub use origin::{ORIGIN_BYTES_MAX, OriginPlace, write_origin};

/// A parsed message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syslog<'a> {
    /// Its form.
    pub format: Format,
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

/// The form of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// None of the forms below.
    #[default]
    Unparsed,
    /// RFC 5424: version, time, host, program, process, type, structured data, text.
    Rfc5424,
    /// RFC 3164: facility and severity, or a time, or both, before the text; host and program if they can be
    /// identified.
    Rfc3164,
}

/// The context for completing times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the message was received: a time without a year gets the nearest one.
    pub unix_ns: u64,
    /// East of UTC: the zone for a time without one.
    pub zone_offset_seconds: i32,
}

/// Parses one message, for example a datagram.
pub fn parse(bytes: &[u8], arrival: Arrival) -> Syslog<'_> {
    let (priority, rest) = split_priority(bytes);
    let mut syslog = Syslog {
        facility: priority.map(|priority| priority >> 3),
        severity: priority.map(|priority| priority & 7),
        ..Syslog::default()
    };

    let is_known = if priority.is_some() && rfc5424::claims(rest) {
        rfc5424::parse(rest, &mut syslog)
    } else {
        rfc3164::parse(rest, arrival, &mut syslog)
    };

    match is_known {
        Some(()) => syslog,
        // A message understood only in part reveals nothing.
        None => {
            Syslog { facility: syslog.facility, severity: syslog.severity, ..Syslog::default() }
        }
    }
}

/// Splits off `<0>` to `<191>`, without leading zeros.
fn split_priority(bytes: &[u8]) -> (Option<u8>, &[u8]) {
    let priority = bytes.strip_prefix(b"<").and_then(|rest| {
        let (digits, rest) = split_digits(rest, 3);
        let rest = rest.strip_prefix(b">")?;
        let is_plain = digits.len() == 1 || !digits.starts_with(b"0");
        let priority = number(digits).filter(|number| is_plain && *number <= 191)?;
        Some((u8::try_from(priority).ok()?, rest))
    });

    match priority {
        Some((priority, rest)) => (Some(priority), rest),
        None => (None, bytes),
    }
}

/// Splits off decimal digits at the beginning, at most `max`.
fn split_digits(bytes: &[u8], max: usize) -> (&[u8], &[u8]) {
    let len = bytes.iter().take(max).take_while(|byte| byte.is_ascii_digit()).count();
    bytes.split_at(len)
}

/// The value of up to 9 digits; `None` if there is no digit.
fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits.iter().try_fold(0_u32, |sum, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + u32::from(digit - b'0'))
    })
}

/// Splits at the first space; the second part is empty if there is none.
fn split_word(bytes: &[u8]) -> (&[u8], &[u8]) {
    let len = bytes.iter().position(|byte| *byte == b' ').unwrap_or(bytes.len());
    let (word, rest) = bytes.split_at(len);
    (word, rest.get(1..).unwrap_or_default())
}

/// The bytes as text, if they are printable ASCII without spaces and not empty.
fn graphic(bytes: &[u8]) -> Option<&str> {
    let is_graphic = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic);
    str::from_utf8(bytes).ok().filter(|_| is_graphic)
}

/// The text of a message without its terminator.
fn without_end(text: &[u8]) -> Option<&[u8]> {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r' | 0);
    let len = text.iter().rposition(|byte| !is_end(byte)).map_or(0, |last| last + 1);
    text.get(..len).filter(|text| !text.is_empty())
}
