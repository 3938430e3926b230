//! Times in messages.

use super::zone::{Zone, ZoneWord};
use super::{Arrival, Form, split_digits, split_number};

/// A time as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    year: Option<u32>,
    month: u32,
    day: u32,
    second_of_day: u32,
    nanoseconds: u32,
    /// East of UTC, if stated.
    offset_seconds: Option<i32>,
    form: Form,
}

/// The number of a month.
fn month_of(name: &[u8; 3]) -> Option<u32> {
    Some(match name {
        b"Jan" => 1,
        b"Feb" => 2,
        b"Mar" => 3,
        b"Apr" => 4,
        b"May" => 5,
        b"Jun" => 6,
        b"Jul" => 7,
        b"Aug" => 8,
        b"Sep" => 9,
        b"Oct" => 10,
        b"Nov" => 11,
        b"Dec" => 12,
        _ => return None,
    })
}

const DAY_SECONDS: i64 = 86_400;
/// The average of the Gregorian calendar, which is accurate enough to find the current year.
const YEAR_SECONDS: i64 = 31_556_952;

/// Further from now than this, another year may be nearer.
const HALF_YEAR_SECONDS: i64 = 182 * DAY_SECONDS;

impl Stamp {
    pub(super) fn has_zone(&self) -> bool {
        self.offset_seconds.is_some()
    }

    /// Takes the year that stands behind the time or its zone, if it has none so far, and returns what follows it.
    pub(super) fn take_year<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let [b' ', c @ (b'1' | b'2'), cc, y, yy, rest @ ..] = bytes else { return bytes };
        if self.year.is_none()
            && matches!(rest, [b' ' | b':', ..])
            && let (Some(century), Some(year)) = (pair(*c, *cc), pair(*y, *yy))
            && matches!(century * 100 + year, 1970..2500)
        {
            self.year = Some(century * 100 + year);
            return rest;
        }
        bytes
    }

    /// The form of a header that begins with it.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Nanoseconds since 1970. A time without a year gets the year in which it is nearest to the arrival; the zone is the
    /// time's own, or else that of the word behind it, or else the arrival's. `None` before 1970, and beyond the range of
    /// signed 64-bit numbers, in 2262, because stores use those for times.
    pub(super) fn unix_ns(&self, word: Option<ZoneWord<'_>>, arrival: Arrival<'_>) -> Option<u64> {
        let now = i64::try_from(arrival.unix_ns / 1_000_000_000).ok()?;
        let zone = self.zone(word, arrival);
        let this_year = u32::try_from(1970 + now / YEAR_SECONDS).ok()?;
        let seconds = self.unix_seconds(self.year.unwrap_or(this_year), zone, now);
        let seconds = match self.year {
            Some(_) => seconds?,
            // Nearly always it is this year.
            None => match seconds {
                Some(seconds) if (seconds - now).abs() < HALF_YEAR_SECONDS => seconds,
                _ => self.nearest(this_year, zone, now)?,
            },
        };

        let whole = u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?;
        let time = whole.checked_add(self.nanoseconds.into())?;
        (time <= i64::MAX as u64).then_some(time)
    }

    fn zone<'z>(&self, word: Option<ZoneWord<'_>>, arrival: Arrival<'z>) -> Clock<'z> {
        if let Some(offset) = self.offset_seconds {
            return Clock::Offset(offset);
        }
        match word {
            Some(ZoneWord::Offset(offset)) => Clock::Offset(offset),
            Some(ZoneWord::Name(name)) => {
                let is_it = |(listed, _): &&(String, Zone)| listed.as_bytes() == name;
                let listed = arrival.zone_words.iter().find(is_it);
                Clock::Zone(listed.map_or(arrival.zone, |(_, zone)| zone))
            }
            None => Clock::Zone(arrival.zone),
        }
    }

    /// In which of three years it is nearest. A 29 February that none of them has remains unknown.
    fn nearest(&self, this_year: u32, zone: Clock<'_>, now: i64) -> Option<i64> {
        let years = [this_year.saturating_sub(1), this_year + 1, this_year];
        let seconds = years.map(|year| self.unix_seconds(year, zone, now));
        seconds.into_iter().flatten().min_by_key(|seconds| (seconds - now).abs())
    }

    /// `None` if the year has no such day.
    fn unix_seconds(&self, year: u32, zone: Clock<'_>, now: i64) -> Option<i64> {
        if self.day > days_of(self.month, year) {
            return None;
        }
        let days = days_since_1970(year, self.month, self.day);
        let local = days * DAY_SECONDS + i64::from(self.second_of_day);
        Some(match zone {
            Clock::Offset(offset) => local - i64::from(offset),
            Clock::Zone(zone) => zone.unix_seconds(local, now),
        })
    }
}

/// What a time is relative to.
#[derive(Clone, Copy)]
enum Clock<'z> {
    /// Seconds east of UTC.
    Offset(i32),
    Zone(&'z Zone),
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

fn days_of(month: u32, year: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1 January 1970 in the Gregorian calendar, for years with up to four digits.
fn days_since_1970(year: u32, month: u32, day: u32) -> i64 {
    // Years begin in March here, so the leap day is their last.
    let (year, month) = if month > 2 { (year + 4800, month - 3) } else { (year + 4799, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let day_of_year = (153 * month + 2) / 5 + day;
    // In this formula, day zero (1 March 4801 BC) is 2,472,633 days before 1970.
    i64::from(year * 365 + leap_days + day_of_year) - 2_472_633
}

/// Splits off `2003-10-11T22:14:15.003Z`. The `T` may be a space, the hyphens slashes, and the zone may be missing. Sophos UTM
/// writes `2003:10:11-22:14:15`, Citrix NetScaler may be told to write `2003/10/11:22:14:15`.
pub(super) fn iso(bytes: &[u8]) -> Option<(Stamp, &[u8])> {
    // Most of what begins with a digit ends here.
    let [c, cc, y, yy, separator @ (b'-' | b'/' | b':'), m, mm, second, d, dd, between, rest @ ..] =
        bytes
    else {
        return None;
    };
    if second != separator {
        return None;
    }
    let year = pair(*c, *cc)? * 100 + pair(*y, *yy)?;
    let (month, day) = (pair(*m, *mm)?, pair(*d, *dd)?);
    let form = match (separator, between) {
        (b'-', b'T') | (b'-' | b'/', b' ') => Form::Iso,
        (b':', b'-') => Form::Sophos,
        (b'/', b':') => Form::NetScaler,
        _ => return None,
    };
    let (second_of_day, nanoseconds, rest) = clock(rest)?;
    let (offset_seconds, rest) = zone(rest)?;

    let stamp =
        Stamp { year: Some(year), month, day, second_of_day, nanoseconds, offset_seconds, form };
    checked(stamp).map(|stamp| (stamp, rest))
}

/// Splits off `Oct 11 22:14:15`. A year may come before the month (NX-OS), after the day (ASA) or after the time (Junos), a
/// weekday before all.
pub(super) fn named_month(bytes: &[u8]) -> Option<(Stamp, &[u8])> {
    let bytes = behind_weekday(bytes);
    let (year, rest) = match bytes {
        [b'0'..=b'9', ..] => {
            let (year, rest) = fixed(bytes, 4)?;
            (Some(year), rest.strip_prefix(b" ")?)
        }
        _ => (None, bytes),
    };
    let [a, b, c, b' ', rest @ ..] = rest else { return None };
    let month = month_of(&[*a, *b, *c])?;
    // `Oct  1`, `Oct 01` and `Oct 1` are the same.
    let (day, rest) = split_number(rest.strip_prefix(b" ").unwrap_or(rest), 2);
    let rest = rest.strip_prefix(b" ")?;

    let (year, rest) = match fixed(rest, 4) {
        Some((behind, rest)) if year.is_none() => (Some(behind), rest.strip_prefix(b" ")?),
        _ => (year, rest),
    };
    let (second_of_day, nanoseconds, rest) = clock(rest)?;
    // Huawei and Check Point add an offset: `22:14:15+02:00`, Huawei with precision `22:14:15.120.1+02:00`.
    let (offset_seconds, rest) = match rest {
        [b' ' | b':', ..] => (None, rest),
        [b'.', b'0'..=b'9', rest @ ..] => zone(rest)?,
        _ => zone(rest)?,
    };

    let form = Form::Rfc3164;
    let stamp = Stamp { year, month, day, second_of_day, nanoseconds, offset_seconds, form };
    let mut stamp = checked(stamp)?;
    let rest = stamp.take_year(rest);
    Some((stamp, rest))
}

/// Skips `Sun ` of ctime(3).
fn behind_weekday(bytes: &[u8]) -> &[u8] {
    const DAYS: [&[u8; 3]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
    match bytes {
        // The month is next, and not the number of a day.
        [a, b, c, b' ', rest @ ..]
            if rest.first().is_some_and(u8::is_ascii_uppercase)
                && DAYS.contains(&&[*a, *b, *c]) =>
        {
            rest
        }
        _ => bytes,
    }
}

/// Splits off `10/11/2026:22:14:15` of Citrix NetScaler, whose first number is the month unless the device is told that it is the
/// day. Where it may be either, it is the day if that is today.
pub(super) fn slashed<'a>(bytes: &'a [u8], arrival: Arrival<'_>) -> Option<(Stamp, &'a [u8])> {
    let (first, rest) = fixed(bytes, 2)?;
    let (second, rest) = fixed(rest.strip_prefix(b"/")?, 2)?;
    let (year, rest) = fixed(rest.strip_prefix(b"/")?, 4)?;
    let (second_of_day, nanoseconds, rest) = clock(rest.strip_prefix(b":")?)?;

    let now = i64::try_from(arrival.unix_ns / 1_000_000_000).ok()?;
    let of = |month, day| {
        let (year, offset_seconds, form) = (Some(year), None, Form::NetScaler);
        checked(Stamp { year, month, day, second_of_day, nanoseconds, offset_seconds, form })
    };
    let distance = |stamp: &Stamp| {
        let days = days_since_1970(year, stamp.month, stamp.day);
        (days * DAY_SECONDS + i64::from(second_of_day) - now).abs()
    };
    let (month_first, day_first) = (of(first, second), of(second, first));
    let is_today = |stamp: &Stamp| distance(stamp) < 2 * DAY_SECONDS;
    let stamp = match (month_first, day_first) {
        (Some(_), Some(day_first))
            if !month_first.is_some_and(|one| is_today(&one)) && is_today(&day_first) =>
        {
            day_first
        }
        _ => month_first.or(day_first)?,
    };
    Some((stamp, rest))
}

/// Splits off `date=2026-10-11 time=22:14:15` of FortiOS, with a comma where it writes CSV, or `timestamp="2026-10-11T22:14:15+0200"` of
/// Sophos Firewall.
pub(super) fn fields(bytes: &[u8]) -> Option<(Stamp, &[u8])> {
    if let Some(quoted) = bytes.strip_prefix(b"timestamp=\"") {
        let (stamp, rest) = iso(quoted)?;
        return Some((Stamp { form: Form::Fields, ..stamp }, rest.strip_prefix(b"\"")?));
    }
    let (year, rest) = fixed(bytes.strip_prefix(b"date=")?, 4)?;
    let (month, rest) = fixed(rest.strip_prefix(b"-")?, 2)?;
    let (day, rest) = fixed(rest.strip_prefix(b"-")?, 2)?;
    let rest = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b","))?;
    let (second_of_day, nanoseconds, rest) = clock(rest.strip_prefix(b"time=")?)?;
    let (year, offset_seconds, form) = (Some(year), None, Form::Fields);
    let stamp = Stamp { year, month, day, second_of_day, nanoseconds, offset_seconds, form };
    checked(stamp).map(|stamp| (stamp, rest))
}

/// Splits off seconds since 1970, with or without a fraction of up to nine digits: nanoseconds.
pub(super) fn epoch(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (high, behind) = split_number(bytes, 5);
    let (low, rest) = split_number(behind, 5);
    if bytes.len() - rest.len() != 10 || rest.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let seconds = u64::from(high) * 100_000 + u64::from(low);

    let (nanoseconds, rest) = match rest {
        [b'.', digits @ ..] => fraction(digits)?,
        _ => (0, rest),
    };
    let time = seconds * 1_000_000_000 + u64::from(nanoseconds);
    (time <= i64::MAX as u64).then_some((time, rest))
}

/// Splits off how long a Cisco device has run: `00:01:23`, `3w2d`, `2y10w`.
pub(super) fn uptime(bytes: &[u8]) -> Option<&[u8]> {
    let (_, rest) = split_digits(bytes, 4);
    match rest {
        [b':', ..] if rest.len() < bytes.len() => {
            let (_, rest) = fixed(rest.get(1..)?, 2)?;
            let (_, rest) = fixed(rest.strip_prefix(b":")?, 2)?;
            match rest {
                [b'.', fraction @ ..] => Some(split_digits(fraction, 9).1),
                _ => Some(rest),
            }
        }
        _ => {
            let mut rest = bytes;
            for _ in 0..3 {
                let (digits, behind) = split_digits(rest, 4);
                match behind {
                    [b'y' | b'w' | b'd' | b'h' | b'm' | b's', behind @ ..]
                        if !digits.is_empty() =>
                    {
                        rest = behind;
                    }
                    _ => break,
                }
            }
            (rest.len() < bytes.len()).then_some(rest)
        }
    }
}

/// The time, if its day exists in some year.
fn checked(stamp: Stamp) -> Option<Stamp> {
    // Any leap year.
    let year = stamp.year.unwrap_or(2000);
    let is_day =
        (1..=12).contains(&stamp.month) && (1..=days_of(stamp.month, year)).contains(&stamp.day);
    is_day.then_some(stamp)
}

/// Splits off a number of exactly `digits` digits.
fn fixed(bytes: &[u8], digits: usize) -> Option<(u32, &[u8])> {
    let (head, rest) = bytes.split_at_checked(digits)?;
    let mut number = 0;
    for byte in head {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u32::from(byte - b'0');
    }
    Some((number, rest))
}

/// The number of two digits.
fn pair(tens: u8, ones: u8) -> Option<u32> {
    let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
    is_number.then(|| u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
}

/// Splits off `22:14:15`, `22:14:15.003` or, of Cisco's call managers, `10:14:15 PM.003`: the second of the day, and nanoseconds.
fn clock(bytes: &[u8]) -> Option<(u32, u32, &[u8])> {
    let [h, hh, b':', m, mm, b':', s, ss, rest @ ..] = bytes else { return None };
    let (hour, minute, second) = (pair(*h, *hh)?, pair(*m, *mm)?, pair(*s, *ss)?);
    // A leap second is 60, and counts as the next second.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (hour, rest) = match rest {
        [b' ', half @ (b'A' | b'P'), b'M', rest @ ..]
            if matches!(hour, 1..=12) && matches!(rest, [] | [b' ' | b'.' | b':', ..]) =>
        {
            (hour % 12 + if *half == b'P' { 12 } else { 0 }, rest)
        }
        _ => (hour, rest),
    };
    let second_of_day = hour * 3600 + minute * 60 + second;

    // Huawei and H3C write milliseconds behind a third colon.
    if let [b':', digits @ ..] = rest
        && let (milliseconds, behind @ [b' ', ..]) = split_number(digits, 3)
        && digits.len() - behind.len() == 3
    {
        return Some((second_of_day, milliseconds * 1_000_000, behind));
    }
    let (nanoseconds, rest) = match rest {
        // A comma may also end the time.
        [point @ (b'.' | b','), digits @ ..]
            if *point == b'.' || digits.first().is_some_and(u8::is_ascii_digit) =>
        {
            fraction(digits)?
        }
        _ => (0, rest),
    };
    Some((second_of_day, nanoseconds, rest))
}

/// Splits off the digits of a fraction of a second, 9 at most: nanoseconds.
fn fraction(bytes: &[u8]) -> Option<(u32, &[u8])> {
    const UNITS_NS: [u32; 10] =
        [0, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    let (number, rest) = split_number(bytes, 9);
    match *UNITS_NS.get(bytes.len() - rest.len())? {
        0 => None,
        unit_ns => Some((number * unit_ns, rest)),
    }
}

/// Splits off `Z`, `+02:00` or `+0200`, in seconds east of UTC, if present.
fn zone(bytes: &[u8]) -> Option<(Option<i32>, &[u8])> {
    let (sign, rest) = match bytes {
        [b'Z', rest @ ..] => return Some((Some(0), rest)),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return Some((None, bytes)),
    };
    let (hours, rest) = fixed(rest, 2)?;
    let (minutes, rest) = fixed(rest.strip_prefix(b":").unwrap_or(rest), 2)?;
    if hours > 23 || minutes > 59 {
        return None;
    }
    Some((Some(sign * (hours * 3600 + minutes * 60) as i32), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let check = |year, month, day, days| {
            assert_eq!(days_since_1970(year, month, day), days, "{year}-{month}-{day}");
        };
        check(1970, 1, 1, 0);
        check(1969, 12, 31, -1);
        check(2000, 2, 29, 11_016);
        check(2000, 3, 1, 11_017);
        check(2026, 11, 22, 20_779);
        check(1, 1, 1, -719_162);
        check(9999, 12, 31, 2_932_896);
    }
}
