//! Times without a zone, in zones with daylight saving, and without a year.

use super::NOON;
use wire::syslog::{Arrival, Zone, ZoneChange, parse};

/// Vienna from 2026 to 2027: forward on the last Sunday of March, back on that of October, at 1:00 UTC.
fn vienna() -> Zone {
    let change = |unix_seconds, offset_seconds| ZoneChange { unix_seconds, offset_seconds };
    Zone::changing(
        3_600,
        vec![
            change(1_774_746_000, 7_200),
            change(1_792_890_000, 3_600),
            change(1_806_195_600, 7_200),
            change(1_824_944_400, 3_600),
        ],
    )
}

/// Seconds since 1970 of a time that a message says, received at `arrival`.
fn read(time: &str, arrival: u64, zone: &Zone) -> Option<u64> {
    let words = [("EST".to_owned(), Zone::fixed(-5 * 3_600))];
    let line = format!("<13>{time} gw1 app: x");
    let unix_ns = arrival * 1_000_000_000;
    let syslog = parse(line.as_bytes(), Arrival { unix_ns, zone, zone_words: &words });
    assert_eq!(syslog.hostname, Some("gw1"), "{line}");
    syslog.time_unix_ns.map(|time| time / 1_000_000_000)
}

#[test]
fn a_local_time_is_of_the_offset_that_was_in_force() {
    let (summer, winter) = (1_791_749_655, 1_796_076_855);
    let check = |time: &str, arrival, expected| {
        assert_eq!(read(time, arrival, &vienna()), Some(expected), "{time}");
    };
    check("Oct 11 22:14:15", summer, summer);
    check("2026-10-11 22:14:15", summer, summer);
    check("Nov 30 23:14:15", winter, winter);
    // A word that is not known counts as the zone; known ones and offsets are exact.
    check("Oct 11 22:14:15 CEST", summer, summer);
    check("Oct 11 22:14:15 UTC", summer, summer + 7_200);
    check("Oct 11 22:14:15 EST", summer, summer + 7 * 3_600);
    check("Oct 11 22:14:15 +0300", summer, summer - 3_600);
    // The hour that clocks show twice is the one nearer to the arrival.
    check("Oct 25 02:30:00", 1_792_888_200, 1_792_888_200);
    check("Oct 25 02:30:00", 1_792_891_800, 1_792_891_800);
}

#[test]
fn a_year_is_the_one_that_puts_the_time_nearest_in_its_zone() {
    let new_year = 1_798_761_600; // 1 January 2027, UTC
    let zone = vienna();
    // In Vienna it is an hour later: New Year there is at 23:00 UTC.
    let check =
        |time, arrival, expected| assert_eq!(read(time, arrival, &zone), Some(expected), "{time}");
    check("Jan  1 00:00:01", new_year - 3_600, new_year - 3_599);
    check("Dec 31 23:59:59", new_year, new_year - 3_601);
    check("Dec 31 23:59:59", new_year - 3_700, new_year - 3_601);
    check("Jan  1 01:00:01", new_year, new_year + 1);
    let tokyo = Zone::fixed(9 * 3_600);
    assert_eq!(read("Jan  1 08:59:59", new_year - 1, &tokyo), Some(new_year - 1));
    let honolulu = Zone::fixed(-10 * 3_600);
    assert_eq!(read("Dec 31 14:00:00", new_year, &honolulu), Some(new_year));
}

#[test]
fn a_time_without_a_year_is_of_the_nearest() {
    let of = |stamp: &str, arrival_seconds: u64, zone_offset_seconds| {
        let unix_ns = arrival_seconds * 1_000_000_000;
        let line = format!("<13>{stamp} host app: x");
        let zone = Zone::fixed(zone_offset_seconds);
        let said = parse(line.as_bytes(), Arrival { zone: &zone, ..Arrival::utc(unix_ns) });
        assert_eq!((said.hostname, said.app_name), (Some("host"), Some("app")), "{line}");
        said.time_unix_ns.map(|time| time / 1_000_000_000)
    };
    let new_year = 1_798_761_600; // 1 January 2027
    assert_eq!(of("Dec 31 23:59:59", new_year, 0), Some(new_year - 1));
    assert_eq!(of("Jan  1 00:00:01", new_year - 2, 0), Some(new_year + 1));
    assert_eq!(of("Jan 1 00:00:01", new_year, 0), Some(new_year + 1));
    assert_eq!(of("Jan 01 01:00:01", new_year, 3_600), Some(new_year + 1));
    assert_eq!(of("Dec 31 18:00:00", new_year, -21_600), Some(new_year));
    // Only a leap year has this day: 2028 does, but not 2026, 2025 or 2027.
    assert_eq!(of("Feb 29 00:00:00", new_year, 0), Some(1_835_395_200));
    assert_eq!(of("Feb 29 00:00:00", NOON, 0), None);
    // Times before 1970 are refused.
    assert_eq!(of("1969-12-31T23:59:59Z", new_year, 0), None);
    assert_eq!(of("1970-01-01T00:00:00Z", new_year, 0), Some(0));
    assert_eq!(of("Dec 31 23:00:00", 0, 0), None);
    // A leap second, and the limit of signed 64 bits.
    assert_eq!(of("2016-12-31T23:59:60Z", new_year, 0), Some(1_483_228_800));
    assert_eq!(of("9999-12-31T23:59:59Z", new_year, 0), None);
    assert_eq!(of("2262-04-11T23:47:16Z", new_year, 0), Some(9_223_372_036));
    assert_eq!(of("2262-04-11T23:47:17Z", new_year, 0), None);
    assert_eq!(of("Oct 11 22:14:15", u64::MAX / 1_000_000_000, 0), None);
}
