//! What ClickHouse's answers mean for the rows of an insert.

use super::tables::file_of;
use crate::batch::{Failure, Fate, Sent};
use crate::http::{Answer, BodyEnd, failure, fate_of};
use ledger::RejectClass;
use record::RowKind;

/// The destination of an insert, for messages.
pub(super) struct Place<'a> {
    pub(super) address: &'a str,
    pub(super) database: &'a str,
    pub(super) table: &'a str,
    pub(super) kind: RowKind,
}

pub(super) const UNKNOWN_TABLE: u32 = 60;
pub(super) const UNKNOWN_DATABASE: u32 = 81;

/// The error code in an answer, if there is one.
///
/// An insert asks for its head last (`wait_end_of_query`, no progress in headers), so an error has its code there. A server behind
/// something that drops these settings writes it into the body, after a status that meant success
/// (<https://clickhouse.com/docs/interfaces/http#http_response_codes_caveats>). A code whose last digits are cut off is not known.
pub(super) fn code_of(answer: &Answer) -> Option<u32> {
    code_of_header(answer).or_else(|| {
        let text = String::from_utf8_lossy(&answer.body);
        let (_, rest) = text.split_once(CODE)?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let is_cut = digits.len() == rest.len() && !matches!(answer.end, BodyEnd::Complete);
        digits.parse().ok().filter(|_| !is_cut)
    })
}

/// What an error in a body begins with.
const CODE: &str = "Code: ";

/// Whether a body that is not whole may be that of an error whose code is missing.
fn is_cut_error(answer: &Answer) -> bool {
    let text = String::from_utf8_lossy(&answer.body);
    let start = text.trim_start();
    text.contains(CODE) || (!start.is_empty() && CODE.starts_with(start))
}

/// The error code in the head of an answer, if there is one. Rows may contain what looks like one.
pub(super) fn code_of_header(answer: &Answer) -> Option<u32> {
    let header = answer.headers.get("x-clickhouse-exception-code")?;
    header.to_str().ok()?.trim().parse().ok().filter(|code| *code != 0)
}

/// The fate of an insert. Codes and names are those of `src/Common/ErrorCodes.cpp`.
pub(super) fn fate(answer: &Answer, place: &Place<'_>) -> Fate {
    let Some(code) = code_of(answer) else {
        return match &answer.end {
            // A success needs no body: an insert has no result. It is one unless what came of a body is the beginning of an error.
            // The counts in `X-ClickHouse-Summary` prove nothing: they are zero for many inserts with `async_insert`.
            BodyEnd::Broken(failure) if answer.status.is_success() && is_cut_error(answer) => {
                Fate::Failed(failure.clone())
            }
            _ => fate_of(answer, place.address),
        };
    };
    let says = answer.words();
    match code {
        // NO_SUCH_COLUMN_IN_TABLE, NOT_IMPLEMENTED, TYPE_MISMATCH and CANNOT_CONVERT_TYPE about a column: the table does not
        // match ours yet, but can be changed.
        16 | 48 | 53 | 70 if is_about_table(&says) => Fate::Failed(wrong_table(&says, place)),
        // Errors of value parsers: CANNOT_PARSE_…, CANNOT_READ_ALL_DATA, ATTEMPT_TO_READ_AFTER_EOF, TYPE_MISMATCH,
        // CANNOT_CONVERT_TYPE, INCORRECT_DATA, TOO_LARGE_ARRAY_SIZE, TOO_LARGE_STRING_SIZE, VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE,
        // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN, DECIMAL_OVERFLOW.
        6 | 26 | 27 | 32 | 33 | 38 | 41 | 53 | 70 | 72 | 117 | 128 | 131 | 321 | 349 | 407 => {
            Fate::Rejected { class: RejectClass::Schema, says }
        }
        // VIOLATED_CONSTRAINT
        469 => Fate::Rejected { class: RejectClass::Denied, says },
        _ => Fate::Failed(may_pass(code, &says, place)),
    }
}

fn is_about_table(says: &str) -> bool {
    ["while converting column", "No such column"].iter().any(|words| says.contains(words))
}

fn wrong_table(says: &str, place: &Place<'_>) -> Failure {
    let Place { address, database, table, kind } = place;
    let fix = format!(
        "bring {database}.{table} to this version's columns (deploy/clickhouse/{}): ALTER TABLE {database}.{table} ADD COLUMN … or \
         MODIFY COLUMN …, with the column that it names",
        file_of(*kind)
    );
    failure(Sent::No, format!("{address} has another table {database}.{table}: {says}"), fix)
}

fn may_pass(code: u32, says: &str, place: &Place<'_>) -> Failure {
    let Place { address, database, table, kind } = place;
    let file = file_of(*kind);
    let (sent, fix) = match code {
        UNKNOWN_TABLE => (
            Sent::No,
            format!(
                "make it: clickhouse-client --database {database} --multiquery < deploy/clickhouse/{file}; or set create_tables = true"
            ),
        ),
        UNKNOWN_DATABASE => {
            (Sent::No, format!("make it: CREATE DATABASE {database}; or set create_tables = true"))
        }
        // UNKNOWN_USER, WRONG_PASSWORD, REQUIRED_PASSWORD, AUTHENTICATION_FAILED
        192..=194 | 516 => {
            (Sent::No, "set user and password_file to those of this server".to_owned())
        }
        // READONLY, ACCESS_DENIED
        164 | 497 => {
            (Sent::No, format!("GRANT INSERT, SELECT ON {database}.* TO the user of this sink"))
        }
        // TOO_MANY_SIMULTANEOUS_QUERIES, QUOTA_EXCEEDED
        201 | 202 => {
            (Sent::No, "raise the limit of queries, or lower in_flight of the sinks".to_owned())
        }
        // TABLE_IS_READ_ONLY, NOT_ENOUGH_SPACE
        242 | 243 => (Sent::No, "see the disks and the Keeper of this server".to_owned()),
        // TOO_MANY_PARTS is raised before anything is written (`MergeTreeData::delayInsertOrThrowIfNeeded`).
        252 => (
            Sent::No,
            "send larger batches: raise batch_age and batch_rows of the sinks".to_owned(),
        ),
        // MEMORY_LIMIT_EXCEEDED
        241 => (
            Sent::Maybe,
            "give the server more memory, or lower batch_rows of the sinks".to_owned(),
        ),
        // UNKNOWN_SETTING
        115 => (Sent::No, "this needs a ClickHouse of 22.2 or newer".to_owned()),
        _ => (
            Sent::Maybe,
            format!("see what it says, in its log and here; its documentation has error {code}"),
        ),
    };
    failure(sent, format!("{address} took no rows into {database}.{table}: {says}"), fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::Trouble;
    use reqwest::StatusCode;
    use reqwest::header::HeaderMap;

    /// The fate of an insert that failed with this code and message.
    fn fate_of_code(code: u32, words: &str) -> Fate {
        let mut headers = HeaderMap::new();
        headers.insert("x-clickhouse-exception-code", code.into());
        let body = format!("Code: {code}. DB::Exception: {words}").into_bytes();
        let (status, end) = (StatusCode::INTERNAL_SERVER_ERROR, BodyEnd::Complete);
        let answer = Answer { status, headers, body, end };
        let place = Place {
            address: "http://ch:8123",
            database: "net",
            table: "sockets",
            kind: RowKind::Record,
        };
        fate(&answer, &place)
    }

    #[test]
    fn what_no_other_attempt_would_change_is_rejected_by_its_class() {
        let check = |codes: &[u32], expected| {
            for code in codes {
                let fate = fate_of_code(*code, "no");
                let Fate::Rejected { class, says } = fate else { panic!("{code}: {fate:?}") };
                assert_eq!(class, expected, "{code}");
                assert!(says.contains("no"), "{says}");
            }
        };
        let values = [6, 26, 27, 32, 33, 38, 41, 53, 70, 72, 117, 128, 131, 321, 349, 407];
        check(&values, RejectClass::Schema);
        check(&[469], RejectClass::Denied);
    }

    #[test]
    fn what_may_pass_is_tried_again_and_says_what_fixes_it() {
        let check = |code: u32, words: &str, sent: Sent, fix: &str| {
            let fate = fate_of_code(code, words);
            let Fate::Failed(failure) = fate else { panic!("{code}: {fate:?}") };
            assert_eq!(failure.sent, sent, "{code}");
            let Trouble { what, fix: said } = failure.trouble;
            assert!(what.contains("http://ch:8123") && what.contains("net.sockets"), "{what}");
            assert!(said.contains(fix), "{code}: {said}");
        };
        for (code, words) in [
            (16, "No such column rtt in table"),
            (
                48,
                "Conversion is not supported: while converting column \"rtt_us\" from type Nullable(UInt32)",
            ),
            (53, "CAST AS Array: while converting column \"rtt_us\" from type UInt32"),
        ] {
            check(code, words, Sent::No, "ALTER TABLE net.sockets");
        }
        check(60, "", Sent::No, "deploy/clickhouse/sockets.sql");
        check(81, "", Sent::No, "CREATE DATABASE net");
        [192, 193, 194, 516].iter().for_each(|code| check(*code, "", Sent::No, "password_file"));
        [164, 497].iter().for_each(|code| check(*code, "", Sent::No, "GRANT INSERT"));
        [201, 202].iter().for_each(|code| check(*code, "", Sent::No, "in_flight"));
        [242, 243].iter().for_each(|code| check(*code, "", Sent::No, "disks"));
        check(252, "", Sent::No, "batch_age");
        check(115, "", Sent::No, "22.2");
        check(241, "", Sent::Maybe, "memory");
        // TIMEOUT_EXCEEDED, SOCKET_TIMEOUT, UNKNOWN_STATUS_OF_INSERT, and a code that is not listed here.
        [159, 209, 319, 9_999]
            .iter()
            .for_each(|code| check(*code, "", Sent::Maybe, &code.to_string()));
    }

    #[test]
    fn an_error_is_found_in_the_body_too_and_nothing_else_is_one() {
        let of = |header: Option<&str>, body: &str| {
            let mut headers = HeaderMap::new();
            let value = header.map(|value| value.parse().expect("a number"));
            value.map(|value| headers.insert("x-clickhouse-exception-code", value));
            let (status, end) = (StatusCode::OK, BodyEnd::Complete);
            code_of(&Answer { status, headers, body: body.into(), end })
        };
        assert_eq!(of(None, ""), None);
        assert_eq!(of(Some("0"), ""), None);
        assert_eq!(of(Some("60"), ""), Some(60));
        assert_eq!(of(None, "12\nCode: 241. DB::Exception: Memory limit"), Some(241));
        assert_eq!(of(None, "Code: none"), None);
    }

    /// The fate of an insert whose status is 200 and whose body breaks off here.
    fn fate_of_cut(headers: HeaderMap, body: &str) -> Fate {
        let broken = failure(Sent::Maybe, "it broke".to_owned(), String::new());
        let (status, end) = (StatusCode::OK, BodyEnd::Broken(broken));
        let place = Place { address: "", database: "net", table: "t", kind: RowKind::Record };
        fate(&Answer { status, headers, body: body.into(), end }, &place)
    }

    #[test]
    fn a_success_that_breaks_off_is_one_unless_it_begins_like_an_error() {
        for body in ["", "\n", "x", "1\n2", "Coda: 3"] {
            let fate = fate_of_cut(HeaderMap::new(), body);
            assert_eq!(fate, Fate::Acknowledged, "{body:?}");
        }
        for body in ["C", "\nCode", "Code: ", "Code: 24", "1\nCode: 46", "Code: 46 DB::"] {
            let fate = fate_of_cut(HeaderMap::new(), body);
            let Fate::Failed(failure) = fate else { panic!("{body:?}: {fate:?}") };
            assert_eq!(failure.sent, Sent::Maybe, "{body:?}");
        }
        // 27 is one of a value; as the beginning of 279 it is none.
        assert!(matches!(fate_of_cut(HeaderMap::new(), "Code: 27"), Fate::Failed(_)));
        assert!(matches!(fate_of_cut(HeaderMap::new(), "Code: 27. "), Fate::Rejected { .. }));
        let headers = HeaderMap::from_iter([(
            "x-clickhouse-exception-code".parse().expect("plain"),
            27_u32.into(),
        )]);
        assert!(matches!(fate_of_cut(headers, ""), Fate::Rejected { .. }));
    }
}
