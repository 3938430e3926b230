//! Prints an answer, for people and for programs.

use crate::question::{as_json, as_text, value};
use crate::screen::Room;
use serde_json::{Map, Value as Json};
use store::{Answer, Value};
use text::{Align, Ink, Table, cut_middle, escaped, plural};

/// The end of the names of times.
const UNIX_NS: &str = "_unix_ns";

/// Widest cell of a table.
const CELL_MAX: usize = 64;

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Table,
    Json,
    Jsonl,
    Csv,
    Tsv,
}

impl Format {
    /// Parses the format's name.
    pub(super) fn parse(text: &str) -> Result<Format, String> {
        match text {
            "table" => Ok(Format::Table),
            "json" => Ok(Format::Json),
            "jsonl" => Ok(Format::Jsonl),
            "csv" => Ok(Format::Csv),
            "tsv" => Ok(Format::Tsv),
            _ => Err("it is none of table, json, jsonl, csv and tsv".to_owned()),
        }
    }
}

/// The whole output.
pub(super) fn answer(answer: &Answer, format: Format, room: Room) -> String {
    match format {
        Format::Table => table(answer, room),
        Format::Json => format!("{}\n", as_json(answer)),
        Format::Jsonl => answer.rows.iter().map(|row| object(answer, row)).collect(),
        Format::Csv => delimited(answer, ',', csv),
        Format::Tsv => delimited(answer, '\t', tsv),
    }
}

/// The number of rows and the elapsed time.
pub(super) fn footer(answer: &Answer) -> String {
    let count = answer.rows.len() as u64;
    let rows = plural(count, "row", "rows");
    let time = format!("{:.1} ms", answer.elapsed.as_secs_f64() * 1_000.0);
    match answer.is_truncated {
        true => format!("{rows}, and there are more (--max-rows); {time}"),
        false => format!("{rows}; {time}"),
    }
}

fn object(answer: &Answer, row: &[Value]) -> String {
    let names = answer.columns.iter().map(|column| column.name.clone());
    let object: Map<String, Json> = names.zip(row.iter().map(value)).collect();
    format!("{}\n", Json::Object(object))
}

fn delimited(answer: &Answer, separator: char, quote: fn(&str) -> String) -> String {
    let separator = separator.to_string();
    let line = |cells: Vec<String>| cells.join(&separator) + "\n";
    let head = line(answer.columns.iter().map(|column| quote(&column.name)).collect());
    let rows = answer.rows.iter();
    let rows = rows.map(|row| line(row.iter().map(|value| quote(&as_text(value))).collect()));
    std::iter::once(head).chain(rows).collect()
}

/// Quotes a cell as in RFC 4180.
fn csv(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Escapes what would end a cell or a line with backslashes.
fn tsv(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

/// Right-aligns numbers and left-aligns everything else; a missing value is a dash. What is wider than the room is below the rest.
fn table(answer: &Answer, room: Room) -> String {
    let heads = answer.columns.iter().map(|column| match column.unit.as_str() {
        // The value is shown as a time.
        _ if column.name.ends_with(UNIX_NS) => column.name.trim_end_matches(UNIX_NS).to_owned(),
        "" => column.name.clone(),
        unit if unit.len() > 12 || says_unit(&column.name, unit) => column.name.clone(),
        unit => format!("{} ({unit})", column.name),
    });
    let heads: Vec<String> = heads.collect();
    let rows: Vec<Vec<String>> = answer
        .rows
        .iter()
        .map(|row| row.iter().zip(&answer.columns).map(|(v, c)| cell(v, &c.name)).collect())
        .collect();

    let is_number = |at: usize| {
        let mut values = answer.rows.iter().filter_map(|row| row.get(at)).peekable();
        values.peek().is_some()
            && values.all(|v| matches!(v, Value::Integer(_) | Value::Real(_) | Value::Null))
    };
    let align = |at| if is_number(at) { Align::Right } else { Align::Left };
    let titles = heads.iter().enumerate().map(|(at, head)| (head.as_str(), align(at)));
    let mut table = Table::new(titles);
    rows.into_iter().for_each(|row| table.push(row));
    if heads.is_empty() { String::new() } else { table.text(room.columns, Ink::Plain) }
}

/// Whether a column's name contains its unit.
fn says_unit(name: &str, unit: &str) -> bool {
    let ends = |end: &&str| name.ends_with(*end);
    name.contains(unit)
        || name.starts_with("bytes_")
        || ["_us", "_ns", "_ms", "_per_sec"].iter().any(ends)
}

fn cell(value: &Value, name: &str) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Integer(unix_ns) if name.ends_with(UNIX_NS) && *unix_ns >= 0 => {
            text::date(*unix_ns as u64)
        }
        Value::Real(number) if number.fract() == 0.0 => format!("{number:.0}"),
        Value::Real(number) if number.abs() < 0.001 => format!("{number:.1e}"),
        Value::Real(number) => format!("{number:.3}").trim_end_matches('0').to_owned(),
        value => cut_middle(&escaped(&as_text(value)), CELL_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Column;

    #[test]
    fn a_table_fits_the_room_and_shows_times_as_times() {
        let column = |name: &str| Column { name: name.to_owned(), unit: String::new() };
        let answer = Answer {
            columns: ["first_unix_ns", "lost", "rtt_p50_us"].map(column).to_vec(),
            rows: vec![vec![Value::Integer(0), Value::Integer(7), Value::Real(28.5)]],
            elapsed: std::time::Duration::ZERO,
            is_truncated: false,
        };
        let expected = "                  first  lost  rtt_p50_us\n1970-01-01 00:00:00 UTC     7        28.5\n";
        assert_eq!(table(&answer, Room::default()), expected);
        let narrow = table(&answer, Room { columns: Some(30), rows: None });
        assert!(narrow.lines().all(|line| line.len() <= 36), "{narrow}");
        assert_eq!(narrow.matches("first").count(), 2, "{narrow}");
    }
}
