//! Time zones as the changes of their offset, and the words for zones behind a time.

/// A time zone: an offset, and when it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    offset_seconds: i32,
    changes: Vec<ZoneChange>,
}

/// A change of a zone's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneChange {
    /// When it happens, in seconds since 1970, UTC.
    pub unix_seconds: i64,
    /// The offset from then on, in seconds east of UTC.
    pub offset_seconds: i32,
}

/// Longer than any zone's offset.
const OFFSET_SECONDS_MAX: i64 = 26 * 3600;

impl Zone {
    /// A zone that never changes.
    pub const fn fixed(offset_seconds: i32) -> Zone {
        Zone { offset_seconds, changes: Vec::new() }
    }

    /// A zone whose offset is `offset_seconds` before the first of the changes, which are in order of time.
    pub fn changing(offset_seconds: i32, changes: Vec<ZoneChange>) -> Zone {
        Zone { offset_seconds, changes }
    }

    /// The offset at a time.
    fn offset_at(&self, unix_seconds: i64) -> i32 {
        let passed = self.changes.partition_point(|change| change.unix_seconds <= unix_seconds);
        let last = passed.checked_sub(1).and_then(|last| self.changes.get(last));
        last.map_or(self.offset_seconds, |change| change.offset_seconds)
    }

    /// The time at which clocks of the zone show `local_seconds`. Where they show it twice, the one nearer to `near`. Where
    /// they leave it out, the time that it would have been without the change.
    pub(super) fn unix_seconds(&self, local_seconds: i64, near: i64) -> i64 {
        if self.changes.is_empty() {
            return local_seconds - i64::from(self.offset_seconds);
        }
        self.unix_seconds_by_changes(local_seconds, near)
    }

    // Apart, because most times say their offset or are in UTC.
    #[inline(never)]
    fn unix_seconds_by_changes(&self, local_seconds: i64, near: i64) -> i64 {
        let before = self.offset_at(local_seconds - OFFSET_SECONDS_MAX);
        let after = self.offset_at(local_seconds + OFFSET_SECONDS_MAX);
        let [early, late] = [before, after].map(|offset| local_seconds - i64::from(offset));
        if before == after {
            return early;
        }

        let is_shown = |unix_seconds: i64, offset| self.offset_at(unix_seconds) == offset;
        match (is_shown(early, before), is_shown(late, after)) {
            (true, true) if (late - near).abs() < (early - near).abs() => late,
            (false, true) => late,
            _ => early,
        }
    }
}

/// What stands behind a time in the place of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneWord<'a> {
    /// An offset from UTC, in seconds.
    Offset(i32),
    /// A name that may mean several zones.
    Name(&'a [u8]),
}

/// Abbreviations in the IANA database, those that it had before it wrote numbers for them, and their German forms. Words
/// that name machines more often (`CAT`, `ART`, `PET`, `GET`, `WIT`) are not in it: a site that has them lists them.
const ABBREVIATIONS: [&[u8]; 75] = [
    b"ACDT", b"ACST", b"ACWST", b"ADT", b"AEDT", b"AEST", b"AKDT", b"AKST", b"AMT", b"AST",
    b"AWST", b"AZT", b"BRST", b"BRT", b"BST", b"CDT", b"CEST", b"CET", b"CHST", b"ChST", b"CLST",
    b"CLT", b"CST", b"CST6CDT", b"EAT", b"EDT", b"EEST", b"EET", b"EST", b"EST5EDT", b"HADT",
    b"HAST", b"HDT", b"HKT", b"HST", b"ICT", b"IDT", b"IRDT", b"IRST", b"IST", b"JST", b"KST",
    b"MDT", b"MEST", b"MESZ", b"MET", b"MEZ", b"MSD", b"MSK", b"MST", b"MST7MDT", b"MYT", b"NDT",
    b"NPT", b"NST", b"NZDT", b"NZST", b"PDT", b"PHT", b"PKT", b"PST", b"PST8PDT", b"SAST", b"SGT",
    b"SST", b"TRT", b"UYT", b"WAT", b"WEST", b"WET", b"WEZ", b"WIB", b"WITA", b"YEKT", b"YST",
];

impl<'a> ZoneWord<'a> {
    /// The word as a zone, if it can be nothing else: `UTC`, `+02:00`, `CEST`, `GMT-3`, `TZ-6`.
    pub(super) fn of(word: &'a [u8], listed: &[(String, Zone)]) -> Option<ZoneWord<'a>> {
        if listed.iter().any(|(name, _)| name.as_bytes() == word) {
            return Some(ZoneWord::Name(word));
        }
        // Most words end here: a zone begins with a capital or a sign.
        if matches!(word, b"UTC" | b"GMT" | b"Z" | b"UCT" | b"utc" | b"gmt") {
            return Some(ZoneWord::Offset(0));
        }
        if !matches!(word, [b'A'..=b'Z' | b'+' | b'-', ..]) || word.len() > 40 {
            return None;
        }
        if let Some(offset_seconds) = offset(word) {
            return Some(ZoneWord::Offset(offset_seconds));
        }

        // `GMT+1` is an hour ahead of it, but POSIX and `Etc/GMT+1` mean an hour behind: not exact.
        let is_relative = [&b"UTC"[..], b"GMT", b"TZ"].iter().any(|base| {
            let behind = word.strip_prefix(*base);
            matches!(behind, Some([b'+' | b'-', b'0'..=b'9', ..]))
        });
        (is_relative || is_iana(word) || ABBREVIATIONS.contains(&word))
            .then_some(ZoneWord::Name(word))
    }
}

/// Whether a word begins like a name of the IANA database. Hosts have no slash, and a relay's chains of hosts no such first part.
fn is_iana(word: &[u8]) -> bool {
    const AREAS: [&[u8]; 10] = [
        b"Africa/",
        b"America/",
        b"Antarctica/",
        b"Arctic/",
        b"Asia/",
        b"Atlantic/",
        b"Australia/",
        b"Etc/",
        b"Europe/",
        b"Pacific/",
    ];
    word.contains(&b'/') && AREAS.iter().any(|area| word.starts_with(area))
}

/// Seconds east of UTC of `+02:00`, `+0200` or `+02`.
fn offset(word: &[u8]) -> Option<i32> {
    let (sign, digits) = match word {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let pair = |tens: u8, ones: u8| {
        let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
        is_number.then(|| i32::from(tens - b'0') * 10 + i32::from(ones - b'0'))
    };
    let (hours, minutes) = match *digits {
        [a, b] => (pair(a, b)?, 0),
        [a, b, c, d] | [a, b, b':', c, d] => (pair(a, b)?, pair(c, d)?),
        _ => return None,
    };
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_zone_only_if_it_can_be_nothing_else() {
        let check = |word: &str, expected| assert_eq!(ZoneWord::of(word.as_bytes(), &[]), expected);
        check("UTC", Some(ZoneWord::Offset(0)));
        check("+02:00", Some(ZoneWord::Offset(7_200)));
        check("-0730", Some(ZoneWord::Offset(-27_000)));
        check("-03", Some(ZoneWord::Offset(-10_800)));
        for name in ["EST", "CEST", "GMT+1", "TZ-6", "ChST"] {
            check(name, Some(ZoneWord::Name(name.as_bytes())));
        }
        for host in ["gw1", "EST1", "est", "NewYork", "TZ", "GMT+", "WEB", "-", "--", "+1:00", ""] {
            check(host, None);
        }
        let listed = [("Wien".to_owned(), Zone::fixed(3_600))];
        assert_eq!(ZoneWord::of(b"Wien", &listed), Some(ZoneWord::Name(b"Wien")));
    }

    #[test]
    fn a_clock_that_is_put_back_shows_an_hour_twice_and_one_put_forward_leaves_one_out() {
        // Vienna in 2026: forward on 29 March and back on 25 October, both at 1:00 UTC.
        let (spring, autumn) = (1_774_746_000, 1_792_890_000);
        let change = |unix_seconds, offset_seconds| ZoneChange { unix_seconds, offset_seconds };
        let zone = Zone::changing(3_600, vec![change(spring, 7_200), change(autumn, 3_600)]);
        let check = |local, near, expected| assert_eq!(zone.unix_seconds(local, near), expected);
        check(spring + 3_599, spring, spring - 1);
        check(spring + 7_200, spring, spring);
        check(spring + 3_600 + 1_800, spring, spring + 1_800);
        check(autumn + 7_199 - 3_600, autumn, autumn - 3_601);
        check(autumn + 7_200, autumn, autumn + 3_600);
        check(autumn + 3_600 + 60, autumn - 3_600, autumn - 3_540);
        check(autumn + 3_600 + 60, autumn + 100, autumn + 60);
    }
}
