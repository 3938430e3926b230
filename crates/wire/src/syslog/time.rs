//! Times in messages.

use super::{Arrival, number, split_digits};

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
}

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
const DAY_SECONDS: i64 = 86_400;
/// The average of the Gregorian calendar, which is accurate enough to find the current year.
const YEAR_SECONDS: i64 = 31_556_952;

impl Stamp {
    pub(super) fn has_zone(&self) -> bool {
        self.offset_seconds.is_some()
    }

    pub(super) fn with_utc(self) -> Stamp {
        Stamp { offset_seconds: Some(0), ..self }
    }

    /// Nanoseconds since 1970 of a time with a year, in the zone `otherwise` if it names none. `None` before 1970, and beyond the
    /// range of signed 64-bit numbers, in 2262, because stores use those for times.
    pub(super) fn unix_ns(&self, otherwise: i32) -> Option<u64> {
        let seconds = self.unix_seconds(self.year?, otherwise)?;
        let whole = u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?;
        let time = whole.checked_add(self.nanoseconds.into())?;
        (time <= i64::MAX as u64).then_some(time)
    }

    /// The same; a time without a year gets the year in which it is nearest to the arrival.
    pub(super) fn nearest_unix_ns(&self, arrival: Arrival) -> Option<u64> {
        let otherwise = arrival.zone_offset_seconds;
        if self.year.is_some() {
            return self.unix_ns(otherwise);
        }

        let now = i64::try_from(arrival.unix_ns / 1_000_000_000).ok()?;
        let this_year = u32::try_from(1970 + now / YEAR_SECONDS).ok()?;
        // A 29 February that none of these years has remains unknown.
        let years = this_year.saturating_sub(1)..=this_year + 1;
        let distance = |year: &u32| {
            self.unix_seconds(*year, otherwise).map_or(i64::MAX, |seconds| (seconds - now).abs())
        };
        let year = years.min_by_key(distance)?;
        Stamp { year: Some(year), ..*self }.unix_ns(otherwise)
    }

    /// `None` if the year has no such day.
    fn unix_seconds(&self, year: u32, otherwise: i32) -> Option<i64> {
        if self.day > days_of(self.month, year) {
            return None;
        }
        let offset = self.offset_seconds.unwrap_or(otherwise);
        let local = days_since_1970(year, self.month, self.day) * DAY_SECONDS;
        Some(local + i64::from(self.second_of_day) - i64::from(offset))
    }
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

/// Splits off `2003-10-11T22:14:15.003Z`. The `T` may be a space, and the zone may be missing.
pub(super) fn iso(bytes: &[u8]) -> Option<(Stamp, &[u8])> {
    let (year, rest) = fixed(bytes, 4)?;
    let (month, rest) = fixed(rest.strip_prefix(b"-")?, 2)?;
    let (day, rest) = fixed(rest.strip_prefix(b"-")?, 2)?;
    let rest = rest.strip_prefix(b"T").or_else(|| rest.strip_prefix(b" "))?;
    let (second_of_day, nanoseconds, rest) = clock(rest)?;
    let (offset_seconds, rest) = zone(rest)?;

    let stamp = Stamp { year: Some(year), month, day, second_of_day, nanoseconds, offset_seconds };
    checked(stamp).map(|stamp| (stamp, rest))
}

/// Splits off `Oct 11 22:14:15`. A year may come before the month (NX-OS), after the day (ASA) or after the time (Junos).
pub(super) fn named_month(bytes: &[u8]) -> Option<(Stamp, &[u8])> {
    let (year, rest) = match fixed(bytes, 4) {
        Some((year, rest)) => (Some(year), rest.strip_prefix(b" ")?),
        None => (None, bytes),
    };
    let (name, rest) = rest.split_at_checked(3)?;
    let month = (1..).zip(MONTHS).find(|(_, month)| *month == name)?.0;
    let rest = rest.strip_prefix(b" ")?;
    // `Oct  1`, `Oct 01` and `Oct 1` are the same.
    let (day, rest) = split_digits(rest.strip_prefix(b" ").unwrap_or(rest), 2);
    let rest = rest.strip_prefix(b" ")?;

    let (year, rest) = match fixed(rest, 4) {
        Some((behind, rest)) if year.is_none() => (Some(behind), rest.strip_prefix(b" ")?),
        _ => (year, rest),
    };
    let (second_of_day, nanoseconds, rest) = clock(rest)?;
    let (year, rest) = match rest.strip_prefix(b" ").and_then(|rest| fixed(rest, 4)) {
        Some((behind @ 1970..2500, rest)) if year.is_none() && rest.starts_with(b" ") => {
            (Some(behind), rest)
        }
        _ => (year, rest),
    };

    let day = number(day)?;
    let stamp = Stamp { year, month, day, second_of_day, nanoseconds, offset_seconds: None };
    checked(stamp).map(|stamp| (stamp, rest))
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
    let (head, rest) = split_digits(bytes, digits);
    if head.len() == digits { Some((number(head)?, rest)) } else { None }
}

/// Splits off `22:14:15` or `22:14:15.003`: the second of the day, and nanoseconds.
fn clock(bytes: &[u8]) -> Option<(u32, u32, &[u8])> {
    let (hour, rest) = fixed(bytes, 2)?;
    let (minute, rest) = fixed(rest.strip_prefix(b":")?, 2)?;
    let (second, rest) = fixed(rest.strip_prefix(b":")?, 2)?;
    // A leap second is 60, and counts as the next second.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let second_of_day = hour * 3600 + minute * 60 + second;

    let [b'.' | b',', fraction @ ..] = rest else { return Some((second_of_day, 0, rest)) };
    let (digits, rest) = split_digits(fraction, 9);
    let unit = 10_u32.pow(9 - digits.len() as u32);
    Some((second_of_day, number(digits)? * unit, rest))
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
