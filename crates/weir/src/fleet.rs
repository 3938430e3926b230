//! Questions to a fleet's ClickHouse: its address, and its answers in the form of the store's.

pub(crate) mod pages;

use crate::exit::Failure;
use config::{Config, Sink};
use serde_json::Value as Json;
use sink::{AskError, AskErrorKind, AskLimits, Asker, Lines};
use std::path::Path;
use std::time::{Duration, Instant};
use store::{Answer, ClickHouse, Column, Limits, Value};

/// A fleet's server and its tables.
pub(crate) struct Fleet {
    asker: Asker,
    pub(crate) tables: ClickHouse,
}

impl Fleet {
    /// A server at an address with options, as the key `to` of a sink has it, or that of a sink of the configuration in `file`.
    /// Connects to nothing yet.
    pub(crate) fn open(
        at: &str,
        file: &Path,
        host: Option<String>,
        time_max: Duration,
    ) -> anyhow::Result<Fleet> {
        let sink = match at.contains(':') {
            true => Config::sink_from_address("--at", at)
                .map_err(|errors| Failure::Usage.error(config::list(&errors)))?,
            false => sink_of(file, at)?,
        };
        let Sink::ClickHouse(sink) = sink else {
            let text = "--at is not a ClickHouse. Fix: write --at clickhouse://HOST:8123/DATABASE";
            return Err(Failure::Usage.error(text));
        };
        let options = sink.options();
        let tables = ClickHouse {
            database: options.database.clone(),
            table_prefix: options.table_prefix.clone(),
            host,
        };
        let asker = Asker::new(options, time_max).map_err(|trouble| {
            Failure::Usage.error(format!("{}. Fix: {}", trouble.what, trouble.fix))
        })?;
        Ok(Fleet { asker, tables })
    }

    /// Asks a statement in ClickHouse's dialect.
    pub(crate) fn ask(&self, statement: &str, limits: Limits) -> Result<Answer, AskError> {
        let began = Instant::now();
        let Limits { time, rows_max, bytes_max } = limits;
        let lines = self.asker.ask(statement, AskLimits { time, rows_max, bytes_max })?;
        read(&lines, rows_max, began).ok_or_else(|| AskError {
            kind: AskErrorKind::Statement,
            trouble: ledger::Trouble {
                what: "the answer is not what was asked for".to_owned(),
                fix: "write the statement without FORMAT, and name the port of ClickHouse's HTTP interface".to_owned(),
            },
        })
    }
}

/// The sink of this name in a configuration.
fn sink_of(file: &Path, name: &str) -> anyhow::Result<Sink> {
    let config = crate::command::run::load(file)?;
    let found = config.sinks.into_iter().find(|sink| sink.name == name);
    found.map(|sink| sink.to).ok_or_else(|| {
        let file = file.display();
        Failure::Usage.error(format!(
            "{file} has no sink called {name}. Fix: write --at clickhouse://HOST:8123/DATABASE, or the name of a sink there"
        ))
    })
}

/// The error with its exit code.
pub(crate) fn failed(error: &AskError) -> anyhow::Error {
    let failure = match error.kind {
        AskErrorKind::Unreachable | AskErrorKind::Late => Failure::Unavailable,
        AskErrorKind::Denied => Failure::Permission,
        AskErrorKind::Statement => Failure::Usage,
    };
    failure.error(error)
}

/// Reads an answer: a line of names, one of types, and one for each row. `None` if it is none.
fn read(lines: &Lines, rows_max: usize, began: Instant) -> Option<Answer> {
    let text = std::str::from_utf8(&lines.bytes).ok()?;
    let mut lines_left: Vec<&str> = text.lines().collect();
    if lines.is_cut {
        // It may not be whole.
        lines_left.pop();
    }
    let mut rest = lines_left.into_iter();
    let names: Vec<String> = rest.next().map_or(Some(Vec::new()), parsed)?;
    let types: Vec<String> = rest.next().map_or(Some(Vec::new()), parsed)?;

    let mut rows = Vec::new();
    let mut is_truncated = lines.is_cut;
    for line in rest {
        if rows.len() == rows_max {
            is_truncated = true;
            break;
        }
        let cells: Vec<Json> = parsed(line)?;
        rows.push(cells.into_iter().zip(&types).map(|(cell, of)| value(cell, of)).collect());
    }
    let columns = names.iter().map(|name| Column::named(name)).collect();
    Some(Answer { columns, rows, elapsed: began.elapsed(), is_truncated })
}

fn parsed<T: serde::de::DeserializeOwned>(line: &str) -> Option<T> {
    serde_json::from_str(line).ok()
}

/// A cell of a column of this type. What has no form in the store is its JSON as text.
fn value(cell: Json, of: &str) -> Value {
    match cell {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Integer(truth.into()),
        Json::String(text) => Value::Text(text),
        Json::Number(number) => match number.as_f64() {
            Some(real) if of.contains("Float") => Value::Real(real),
            // A whole number beyond 2^63 keeps its digits.
            _ => number.as_i64().map_or_else(|| Value::Text(number.to_string()), Value::Integer),
        },
        other => Value::Text(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str, rows_max: usize) -> Option<Answer> {
        let lines = Lines { bytes: text.into(), is_cut: false };
        read(&lines, rows_max, Instant::now())
    }

    #[test]
    fn cells_have_the_types_of_the_store() {
        let text = "[\"a\",\"b\",\"c\",\"d\",\"e\",\"rtt_us\"]\n\
                    [\"UInt64\",\"Nullable(Float64)\",\"UInt64\",\"Bool\",\"Map(String, String)\",\"Nullable(UInt32)\"]\n\
                    [7,12,18446744073709551615,true,{\"x\":\"y\"},null]\n";
        let answer = answer(text, 10).unwrap();
        let expected = vec![
            Value::Integer(7),
            Value::Real(12.0),
            Value::Text("18446744073709551615".to_owned()),
            Value::Integer(1),
            Value::Text("{\"x\":\"y\"}".to_owned()),
            Value::Null,
        ];
        assert_eq!(answer.rows, [expected]);
        assert_eq!(answer.columns[5].unit, "µs");
    }

    #[test]
    fn more_rows_than_wanted_are_cut_and_told() {
        let text = "[\"a\"]\n[\"UInt8\"]\n[1]\n[2]\n[3]\n";
        let check = |rows_max, rows, is_truncated| {
            let answer = answer(text, rows_max).unwrap();
            assert_eq!((answer.rows.len(), answer.is_truncated), (rows, is_truncated));
        };
        check(2, 2, true);
        check(3, 3, false);
    }

    #[test]
    fn what_is_no_answer_is_not_taken_for_one() {
        assert!(answer("a\tb\n1\t2\n", 10).is_none());
        assert!(answer("[\"a\"]\n[\"UInt8\"]\n[1]\nCode: 241", 10).is_none());
        let cut = Lines { bytes: b"[\"a\"]\n[\"UInt8\"]\n[1]\n[2".to_vec(), is_cut: true };
        let answer = read(&cut, 10, Instant::now()).unwrap();
        assert_eq!((answer.rows.len(), answer.is_truncated), (1, true));
    }
}
