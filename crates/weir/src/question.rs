//! Queries to a store, as commands and pages take them: moments, and answers as JSON.

pub(crate) mod errand;
pub(crate) mod pages;

use serde_json::{Value as Json, json};
use std::time::Duration;
use store::{Answer, Named, Value};
use text::units::parse_duration;

/// The default time range of a query.
pub(crate) const SINCE_DEFAULT: Duration = Duration::from_secs(3_600);

/// Default number of rows in the answer to a named query.
pub(crate) const LIMIT_DEFAULT: u32 = 100;

/// Numbers beyond this are not exact in JavaScript.
const EXACT_MAX: u64 = 1 << 53;

const SECOND_NS: u64 = 1_000_000_000;
const DAY_SECONDS: u64 = 86_400;

/// Parses a moment: how long ago it was (`1h`), a time within the last 24 hours (`14:05`), a date (`2026-11-25`, with `T14:05`
/// or `T14:05:30`), all in UTC, or nanoseconds since 1970.
///
/// # Errors
/// It is none of these; the message says what to write.
pub(crate) fn moment(text: &str, now_unix_ns: u64) -> Result<u64, String> {
    if text.len() > 15 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| refusal(text));
    }
    if let Ok(ago) = parse_duration(text) {
        let ago_ns = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
        return Ok(now_unix_ns.saturating_sub(ago_ns));
    }

    if text.is_empty() {
        return Err(refusal(text));
    }

    let now_seconds = now_unix_ns / SECOND_NS;
    let (date, time) = text.split_once(['T', ' ']).unwrap_or_else(|| match text.contains(':') {
        true => ("", text),
        false => (text, "00:00"),
    });
    let of_day = seconds_of_day(time.trim_end_matches('Z')).ok_or_else(|| refusal(text))?;
    let seconds = match date {
        "" => {
            let today = now_seconds / DAY_SECONDS * DAY_SECONDS + of_day;
            if today > now_seconds { today.saturating_sub(DAY_SECONDS) } else { today }
        }
        date => days_since_1970(date).ok_or_else(|| refusal(text))? * DAY_SECONDS + of_day,
    };
    Ok(seconds.saturating_mul(SECOND_NS))
}

fn refusal(text: &str) -> String {
    format!(
        "\"{}\" is not a moment. Fix: write how long ago it was (1h), a time (14:05), or a date and time (2026-11-25T14:05), in UTC",
        text.escape_debug()
    )
}

fn seconds_of_day(text: &str) -> Option<u64> {
    let mut parts = text.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    let is_one = hour < 24 && minute < 60 && second < 60 && parts.next().is_none();
    is_one.then_some((hour * 60 + minute) * 60 + second)
}

/// Days since 1970-01-01, by Howard Hinnant's `days_from_civil`, for years from 1970 on.
fn days_since_1970(text: &str) -> Option<u64> {
    let mut parts = text.split('-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month);
    if !is_date || !(1..=31).contains(&day) || parts.next().is_some() {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    days.checked_sub(719_468)
}

/// Sets the units of a named query's columns, as its file says.
pub(crate) fn with_units(mut answer: Answer, named: Option<&Named>) -> Answer {
    for known in named.into_iter().flat_map(Named::columns) {
        for column in answer.columns.iter_mut().filter(|column| column.name == known.name) {
            column.unit.clone_from(&known.unit);
        }
    }
    answer
}

/// An answer, as `GET /query/NAME` and `weir query --format json` give it.
pub(crate) fn as_json(answer: &Answer) -> Json {
    let columns: Vec<Json> = answer
        .columns
        .iter()
        .map(|column| json!({ "name": column.name, "unit": column.unit }))
        .collect();
    let rows: Vec<Json> =
        answer.rows.iter().map(|row| row.iter().map(value).collect::<Vec<_>>().into()).collect();
    json!({
        "columns": columns,
        "row_count": rows.len(),
        "rows": rows,
        "elapsed_ms": u64::try_from(answer.elapsed.as_millis()).unwrap_or(u64::MAX),
        "truncated": answer.is_truncated,
    })
}

/// A value as JSON. A number that JavaScript would round becomes a decimal string; bytes become hexadecimal.
pub(crate) fn value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(number) if number.unsigned_abs() > EXACT_MAX => number.to_string().into(),
        Value::Integer(number) => (*number).into(),
        Value::Real(number) => (*number).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Blob(_) => as_text(value).into(),
    }
}

/// A value as plain text; empty for null.
pub(crate) fn as_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        Value::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-25 17:16:49 UTC.
    const NOW: u64 = 1_795_627_009 * SECOND_NS;

    #[test]
    fn moments() {
        let check = |text: &str, seconds: u64| {
            assert_eq!(moment(text, NOW), Ok(seconds * SECOND_NS), "{text}");
        };
        check("1h", 1_795_627_009 - 3_600);
        check("17:00", 1_795_626_000);
        // Yesterday at that time.
        check("18:00", 1_795_629_600 - DAY_SECONDS);
        check("2026-11-25", 1_795_564_800);
        check("2026-11-25T17:16:49", 1_795_627_009);
        check("2026-11-25 17:16:49Z", 1_795_627_009);
        check("2024-02-29", 1_709_164_800);
        check("1970-01-01", 0);
        assert_eq!(moment("1795627009000000001", NOW), Ok(1_795_627_009_000_000_001));
        for text in
            ["", "x", "25:00", "2026-13-01", "1969-12-31", "17:00:00:00", "99999999999999999999"]
        {
            assert!(moment(text, NOW).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_that_javascript_would_round_are_strings() {
        assert_eq!(value(&Value::Integer(1 << 53)), json!(9_007_199_254_740_992_i64));
        assert_eq!(value(&Value::Integer((1 << 53) + 1)), json!("9007199254740993"));
        assert_eq!(value(&Value::Blob(vec![1, 0xff])), json!("01ff"));
        assert_eq!(value(&Value::Null), Json::Null);
    }
}
