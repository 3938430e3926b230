//! Named queries: the files in `queries/`, their headers, and the expansion of their macros.
//!
//! A file begins with lines `-- title: …`, `-- parameters: …` and `-- column NAME: UNIT`; the statement follows. One with
//! `-- of: one machine` cannot be asked of a fleet. One with `-- shows: sums` has an answer that names no socket and no peer, so anyone may
//! ask it, whosever sockets it adds up. A statement is written once, for this machine's store and for ClickHouse.
//!
//! `{since}` and `{until}` are times in nanoseconds, and `{limit}`, `{cookie}` and `{namespace}` are numbers. `{span}` is a width
//! in nanoseconds that fits the rows of sums, and `{bucket}` one that fits the ledger's. The others differ between the engines:
//! `{sockets}`, `{closes}`, `{polls}` and `{flows}` are tables; `{sums DIMENSION}` has the rows of sums in the range, by minute or, for long
//! ranges, by hour; `{p50 rtt}`, `{p90 rtt}`, `{p99 rtt}`, `{samples rtt}` and `{merged rtt}` ask their sketches, and
//! `{between MERGED LOW HIGH}` a merged one. `{host}` is the host and a comma where the rows of many hosts are in one table.

use crate::access::Clearance;
use crate::dialect::{ClickHouse, Dialect, Range};
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
    "worst-retransmits",
    "completeness",
    "poll-rates",
    "connection",
    "closes-by-end",
    "recent-closes",
    "closes-by-process",
    "top-flows",
    "flow-drops",
    "events",
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

    /// Whether only one machine's store can answer it.
    pub fn is_of_one_machine(&self) -> bool {
        self.head("of").any(|of| of == "one machine")
    }

    /// What its statement may read, whoever asks.
    pub fn clearance(&self) -> Clearance {
        match self.head("shows").any(|shows| shows == "sums") {
            true => Clearance::Sums,
            false => Clearance::Public,
        }
    }

    fn head(&self, key: &'static str) -> impl Iterator<Item = &'static str> {
        let value = move |line: &'static str| {
            let line = line.strip_prefix("-- ")?.strip_prefix(key)?;
            line.strip_prefix(':').map(str::trim)
        };
        self.text.lines().filter_map(value)
    }

    /// The statement for a store, with these parameters filled in.
    ///
    /// # Errors
    /// A parameter that it needs is missing.
    pub fn statement(&self, parameters: &Parameters) -> Result<String, Error> {
        self.check(parameters)?;
        Ok(expand(&self.body(), parameters))
    }

    /// The statement for a fleet's tables, with these parameters filled in.
    ///
    /// # Errors
    /// A parameter that it needs is missing, or only one machine's store can answer it.
    pub fn statement_for(
        &self,
        tables: &ClickHouse,
        parameters: &Parameters,
    ) -> Result<String, Error> {
        if self.is_of_one_machine() {
            return Err(Error::Statement(format!(
                "{} is about what each machine keeps for itself. Fix: ask the machine: weir query {}, without --at",
                self.name, self.name
            )));
        }
        self.check(parameters)?;
        Ok(expand_for(tables, &self.body(), parameters))
    }

    fn body(&self) -> String {
        let lines: Vec<&str> = self.text.lines().filter(|line| !line.starts_with("-- ")).collect();
        lines.join("\n")
    }

    fn check(&self, parameters: &Parameters) -> Result<(), Error> {
        if self.parameters().any(|name| name == "cookie") && parameters.cookie.is_none() {
            return Err(Error::Statement(format!(
                "{} needs a connection. Fix: add --cookie NUMBER, as `weir sockets --json` or recent-closes has it",
                self.name
            )));
        }
        Ok(())
    }
}

/// Replaces the macros in a statement for a store.
pub fn expand(statement: &str, parameters: &Parameters) -> String {
    replace(Dialect::Sqlite, statement, parameters)
}

/// Replaces the macros in a statement for a fleet's tables.
pub fn expand_for(tables: &ClickHouse, statement: &str, parameters: &Parameters) -> String {
    replace(Dialect::ClickHouse(tables), statement, parameters)
}

/// Replaces the macros in a statement. Other text in braces stays as it is.
fn replace(dialect: Dialect<'_>, statement: &str, parameters: &Parameters) -> String {
    let (mut text, mut rest) = (String::with_capacity(statement.len()), statement);
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let inside = after.split_once('}');
        match inside.and_then(|(name, _)| value_of(dialect, name, parameters)) {
            Some(value) => {
                text.push_str(&value);
                rest = inside.map_or("", |(_, after)| after);
            }
            None => {
                text.push('{');
                rest = after;
            }
        }
    }
    text + rest
}

/// The text for a macro; `None` if there is no such macro.
fn value_of(dialect: Dialect<'_>, name: &str, parameters: &Parameters) -> Option<String> {
    let Parameters { since_unix_ns, until_unix_ns, limit, cookie, namespace } = *parameters;
    let range_ns = until_unix_ns.saturating_sub(since_unix_ns);
    let is_long = range_ns > MINUTES_MAX_NS;
    let (rollup, rollup_ns) =
        if is_long { ("sockets_hour", HOUR_NS) } else { ("sockets_minute", MINUTE_NS) };

    let number = match name {
        "since" => since_unix_ns,
        "until" => until_unix_ns,
        "limit" => limit.into(),
        "cookie" => cookie.unwrap_or_default(),
        "namespace" => namespace.unwrap_or_default(),
        "bucket" => width_ns(range_ns, 0),
        "span" => width_ns(range_ns, rollup_ns),
        _ => {
            let words: Vec<&str> = name.split(' ').collect();
            let range = Range { since_unix_ns, until_unix_ns, rollup_ns, rollup };
            return dialect.text(&words, &range);
        }
    };
    Some(number.to_string())
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
        let tables =
            ClickHouse { database: "weir".into(), table_prefix: String::new(), host: None };
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
            if !named.is_of_one_machine() {
                let statement = named.statement_for(&tables, &parameters).unwrap();
                assert!(!statement.contains(['{', '}', ';']), "{statement}");
            }
            for name in named.parameters() {
                assert!(["since", "until", "limit", "cookie", "namespace"].contains(&name));
            }
        }
    }

    #[test]
    fn what_each_machine_keeps_for_itself_is_not_asked_of_a_fleet() {
        let tables =
            ClickHouse { database: "weir".into(), table_prefix: String::new(), host: None };
        let parameters = Parameters {
            since_unix_ns: 0,
            until_unix_ns: 1,
            limit: 1,
            cookie: None,
            namespace: None,
        };
        let losses = Named::find("losses").unwrap();
        let refused = losses.statement_for(&tables, &parameters).unwrap_err().to_string();
        assert!(refused.contains("weir query losses, without --at"), "{refused}");
        for named in NAMED {
            let is_kept_by_each =
                ["FROM ledger", "FROM events"].iter().any(|from| named.body().contains(from));
            assert_eq!(named.is_of_one_machine(), is_kept_by_each, "{}", named.name);
        }
    }

    #[test]
    fn what_is_no_macro_stays_as_it_is() {
        let parameters = Parameters {
            since_unix_ns: 1,
            until_unix_ns: 2,
            limit: 3,
            cookie: None,
            namespace: None,
        };
        let check = |text: &str, expected: &str| assert_eq!(expand(text, &parameters), expected);
        check("SELECT {since}, '{x}', {limit}", "SELECT 1, '{x}', 3");
        check("'{' || {until} || '}'", "'{' || 2 || '}'");
        check("{{since}}", "{1}");
        check("{p99 a", "{p99 a");
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
