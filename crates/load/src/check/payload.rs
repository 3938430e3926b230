use super::{Check, HEADER_BYTES, Kind};
use text::Civil;

/// The appearance of a datagram to a receiver that does not check it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// The header and filler.
    Binary,
    /// One line of text without a line feed.
    Text,
    /// A syslog message of RFC 5424 with the check data as structured data; `local0.info`.
    Syslog,
    /// A syslog message of RFC 3164; `local0.info`, time in UTC.
    SyslogRfc3164,
    /// A `StatsD` counter with the check data as a `DogStatsD` tag: `weir.gen` counts 1 for data and 0 for heartbeats.
    Statsd,
}

/// A text payload: prefix, the header's digits, suffix, then filler after a separator.
pub(super) struct Text {
    /// Ends with [`marker`](Self::marker), by which the payload is recognized.
    prefix: &'static [u8],
    marker: &'static [u8],
    suffix: &'static [u8],
    /// The beginning of the filler.
    separator: &'static [u8],
    /// Used as filler if there is not enough room for more than the separator.
    short: u8,
    write_prefix: fn(&Check, &mut [u8]),
}

const TEXT: Text = Text {
    prefix: b"weir1=",
    marker: b"weir1=",
    suffix: b"",
    separator: b" ",
    short: b' ',
    write_prefix: |_, _| {},
};

// 32473 is the enterprise number reserved for examples by RFC 5612.
const SYSLOG: Text = Text {
    prefix: b"<134>1 2000-01-01T00:00:00.000000Z weir weir-gen - - [weir@32473 weir1=\"",
    marker: b"[weir@32473 weir1=\"",
    suffix: b"\"]",
    separator: b" ",
    short: b' ',
    write_prefix: |check, prefix| write_rfc3339(check.stamp_ns, &mut prefix[7..33]),
};

const SYSLOG_RFC3164: Text = Text {
    prefix: b"<134>Jan  1 00:00:00 weir weir-gen: weir1=",
    marker: b" weir-gen: weir1=",
    suffix: b"",
    separator: b" ",
    short: b' ',
    write_prefix: |check, prefix| write_rfc3164(check.stamp_ns, &mut prefix[5..20]),
};

const STATSD: Text = Text {
    prefix: b"weir.gen:1|c|#weir1:",
    marker: b"|c|#weir1:",
    suffix: b"",
    separator: b",p:",
    // A tag needs a name and a value; empty lines are ignored.
    short: b'\n',
    write_prefix: |check, prefix| {
        prefix[9] = if check.kind == Kind::Data { b'1' } else { b'0' };
    },
};

const TEXTS: [Payload; 4] =
    [Payload::Text, Payload::Syslog, Payload::SyslogRfc3164, Payload::Statsd];

impl Payload {
    /// Size of the smallest datagram that can carry the check data: binary 48, text 102, RFC 5424 170, RFC 3164 138,
    /// `StatsD` 116.
    pub const fn size_min_bytes(self) -> usize {
        match self.text() {
            None => HEADER_BYTES,
            Some(text) => text.size_min_bytes(),
        }
    }

    pub(super) const fn text(self) -> Option<&'static Text> {
        match self {
            Payload::Binary => None,
            Payload::Text => Some(&TEXT),
            Payload::Syslog => Some(&SYSLOG),
            Payload::SyslogRfc3164 => Some(&SYSLOG_RFC3164),
            Payload::Statsd => Some(&STATSD),
        }
    }

    /// The text payload whose marker is in a datagram.
    pub(super) fn recognise(datagram: &[u8]) -> Option<(Payload, &'static Text)> {
        TEXTS.into_iter().find_map(|payload| {
            let text = payload.text()?;
            let marker_at = text.prefix.len() - text.marker.len();
            let found = datagram.get(marker_at..text.prefix.len())? == text.marker;
            found.then_some((payload, text))
        })
    }
}

impl Text {
    pub(super) const fn digits_at(&self) -> usize {
        self.prefix.len()
    }

    const fn size_min_bytes(&self) -> usize {
        self.prefix.len() + 2 * HEADER_BYTES + self.suffix.len()
    }

    /// Writes everything except the digits and the filler.
    pub(super) fn write_frame(&self, check: &Check, datagram: &mut [u8]) {
        let (frame, filler) = datagram.split_at_mut(self.size_min_bytes());
        let prefix = &mut frame[..self.prefix.len()];
        prefix.copy_from_slice(self.prefix);
        (self.write_prefix)(check, prefix);
        let suffix_at = frame.len() - self.suffix.len();
        frame[suffix_at..].copy_from_slice(self.suffix);
        match filler.split_at_mut_checked(self.separator.len()) {
            Some((first, rest)) if !rest.is_empty() => first.copy_from_slice(self.separator),
            _ => filler.fill(self.short),
        }
    }
}

fn write_decimal(mut value: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// `2026-01-31T23:59:59.123456`, 26 bytes.
fn write_rfc3339(stamp_ns: u64, out: &mut [u8]) {
    let at = Civil::of(stamp_ns);
    write_decimal(at.year, &mut out[0..4]);
    write_decimal(at.month, &mut out[5..7]);
    write_decimal(at.day, &mut out[8..10]);
    write_decimal(at.hour, &mut out[11..13]);
    write_decimal(at.minute, &mut out[14..16]);
    write_decimal(at.second, &mut out[17..19]);
    write_decimal(at.micros, &mut out[20..26]);
}

/// `Jan  1 23:59:59`, 15 bytes.
fn write_rfc3164(stamp_ns: u64, out: &mut [u8]) {
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let at = Civil::of(stamp_ns);
    let month_at = (at.month as usize - 1) * 3;
    out[0..3].copy_from_slice(&MONTHS[month_at..month_at + 3]);
    write_decimal(at.day, &mut out[4..6]);
    if at.day < 10 {
        out[4] = b' ';
    }
    write_decimal(at.hour, &mut out[7..9]);
    write_decimal(at.minute, &mut out[10..12]);
    write_decimal(at.second, &mut out[13..15]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_date(unix_seconds: u64, expected: &str) {
        let mut text = *b"0000-00-00T00:00:00.000000";
        write_rfc3339(unix_seconds * 1_000_000_000, &mut text);
        assert_eq!(std::str::from_utf8(&text).unwrap(), format!("{expected}.000000"));
    }

    #[test]
    fn dates() {
        check_date(0, "1970-01-01T00:00:00");
        check_date(951_782_400, "2000-02-29T00:00:00");
        check_date(951_868_799, "2000-02-29T23:59:59");
        check_date(1_735_689_599, "2024-12-31T23:59:59");
        check_date(4_102_444_800, "2100-01-01T00:00:00");
    }

    #[test]
    fn documented_minimum_sizes() {
        let sizes = [
            Payload::Binary,
            Payload::Text,
            Payload::Syslog,
            Payload::SyslogRfc3164,
            Payload::Statsd,
        ]
        .map(Payload::size_min_bytes);
        assert_eq!(sizes, [48, 102, 170, 138, 116]);
    }
}
