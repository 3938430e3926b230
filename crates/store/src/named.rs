//! Named queries: the files in `queries/`, their headers, and the expansion of their macros.
//!
//! A file begins with lines `-- title: …`, `-- parameters: …` and `-- column NAME: UNIT`; the statement follows. In the
//! statement, `{since}` and `{until}` are times in nanoseconds, and `{limit}`, `{cookie}` and `{namespace}` are numbers.
//! `{rollup}` is the table of minutes or, for long ranges, of hours, `{span}` a width in nanoseconds that fits its rows, and
//! `{bucket}` one that fits the ledger's.

use crate::error::Error;
use crate::query::Column;

/// A named query.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub name: &'static str,
    text: &'static str,
}

/// The parameters of a query. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub since_unix_ns: u64,
    pub until_unix_ns: u64,
    pub limit: u32,
    /// A connection's number.
    pub cookie: Option<u64>,
    /// A network namespace's inode.
    pub namespace: Option<u64>,
}

macro_rules! named {
    ($($name:literal,)+) => {
        /// All named queries, in the order in which they are listed.
        pub const NAMED: &[Named] = &[
            $(Named { name: $name, text: include_str!(concat!("../../../queries/", $name, ".sql")) },)+
        ];
    };
}

named! {
    "losses",
    "ledger-rates",
    "rtt-heat",
    "worst-peers",
    "worst-services",
    "worst-units",
    "connection",
    "closes-by-end",
    "recent-closes",
    "top-flows",
    "flow-drops",
}

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;
const HOUR_NS: u64 = 60 * MINUTE_NS;

/// Longer ranges are answered from the table of hours.
const MINUTES_MAX_NS: u64 = 6 * HOUR_NS;

/// Most points of a chart.
const POINTS: u64 = 240;

/// Widths that are easy to read.
const WIDTHS_NS: [u64; 9] = [
    10 * SECOND_NS,
    30 * SECOND_NS,
    MINUTE_NS,
    5 * MINUTE_NS,
    10 * MINUTE_NS,
    30 * MINUTE_NS,
    HOUR_NS,
    6 * HOUR_NS,
    24 * HOUR_NS,
];

impl Named {
    /// Finds a query by name.
    pub fn find(name: &str) -> Option<&'static Named> {
        NAMED.iter().find(|named| named.name == name)
    }

    /// Its title, in one line.
    pub fn title(&self) -> &'static str {
        self.head("title").next().unwrap_or_default()
    }

    /// The parameters that it takes.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.head("parameters").flat_map(str::split_whitespace)
    }

    /// The columns of its answer that have a unit.
    pub fn columns(&self) -> impl Iterator<Item = Column> {
        let column = |line: &'static str| {
            let (name, unit) = line.strip_prefix("-- column ")?.split_once(':')?;
            Some(Column { name: name.trim().to_owned(), unit: unit.trim().to_owned() })
        };
        self.text.lines().filter_map(column)
    }

    fn head(&self, key: &'static str) -> impl Iterator<Item = &'static str> {
        let value = move |line: &'static str| {
            let line = line.strip_prefix("-- ")?.strip_prefix(key)?;
            line.strip_prefix(':').map(str::trim)
        };
        self.text.lines().filter_map(value)
    }

    /// The statement with these parameters filled in.
    ///
    /// # Errors
    /// A parameter that it needs is missing.
    pub fn statement(&self, parameters: &Parameters) -> Result<String, Error> {
        let body: Vec<&str> = self.text.lines().filter(|line| !line.starts_with("-- ")).collect();
        if self.parameters().any(|name| name == "cookie") && parameters.cookie.is_none() {
            return Err(Error::Statement(format!(
                "{} needs a connection. Fix: add --cookie NUMBER, as `weir sockets --json` or recent-closes has it",
                self.name
            )));
        }
        Ok(expand(&body.join("\n"), parameters))
    }
}

/// Replaces the macros in a statement.
pub fn expand(statement: &str, parameters: &Parameters) -> String {
    let Parameters { since_unix_ns, until_unix_ns, limit, cookie, namespace } = *parameters;
    let range_ns = until_unix_ns.saturating_sub(since_unix_ns);
    let is_long = range_ns > MINUTES_MAX_NS;
    let (rollup, rollup_ns) =
        if is_long { ("sockets_hour", HOUR_NS) } else { ("sockets_minute", MINUTE_NS) };

    let mut text = statement.to_owned();
    for (name, value) in [
        ("{since}", since_unix_ns),
        ("{until}", until_unix_ns),
        ("{limit}", limit.into()),
        ("{cookie}", cookie.unwrap_or_default()),
        ("{namespace}", namespace.unwrap_or_default()),
        ("{bucket}", width_ns(range_ns, 0)),
        ("{span}", width_ns(range_ns, rollup_ns)),
        // Includes the row of the minute or hour that was in progress at `since`.
        ("{first}", since_unix_ns / rollup_ns * rollup_ns),
    ] {
        text = text.replace(name, &value.to_string());
    }
    text.replace("{rollup}", rollup)
}

/// The smallest width that divides a range into at most [`POINTS`] and is at least `min_ns`.
fn width_ns(range_ns: u64, min_ns: u64) -> u64 {
    let wanted = (range_ns / POINTS).max(min_ns);
    let found = WIDTHS_NS.into_iter().find(|width| *width >= wanted);
    found.unwrap_or(wanted.div_ceil(24 * HOUR_NS) * 24 * HOUR_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths() {
        let check = |range_ns, min_ns, expected_ns| {
            assert_eq!(width_ns(range_ns, min_ns), expected_ns);
        };
        check(MINUTE_NS, 0, 10 * SECOND_NS);
        check(HOUR_NS, 0, 30 * SECOND_NS);
        check(HOUR_NS, MINUTE_NS, MINUTE_NS);
        check(24 * HOUR_NS, HOUR_NS, HOUR_NS);
        check(365 * 24 * HOUR_NS, HOUR_NS, 48 * HOUR_NS);
    }

    #[test]
    fn every_file_says_what_it_answers_and_has_no_macro_that_is_not_known() {
        let parameters = Parameters {
            since_unix_ns: 1,
            until_unix_ns: 2,
            limit: 3,
            cookie: Some(4),
            namespace: None,
        };
        for named in NAMED {
            assert!(!named.title().is_empty(), "{}", named.name);
            let statement = named.statement(&parameters).unwrap();
            assert!(!statement.contains(['{', '}', ';']), "{statement}");
            for name in named.parameters() {
                assert!(["since", "until", "limit", "cookie", "namespace"].contains(&name));
            }
        }
    }

    #[test]
    fn a_connection_needs_its_number() {
        let parameters = Parameters {
            since_unix_ns: 0,
            until_unix_ns: 0,
            limit: 1,
            cookie: None,
            namespace: None,
        };
        let refused = Named::find("connection").unwrap().statement(&parameters).unwrap_err();
        assert!(refused.to_string().contains("add --cookie"), "{refused}");
    }
}
