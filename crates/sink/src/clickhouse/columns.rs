//! Checks that the columns of a table can hold every value of a block.
//!
//! The engine converts values to the column's type. If a number does not fit a narrower column, it silently keeps the lower bits
//! (`CAST` with `accurate` off, <https://clickhouse.com/docs/sql-reference/functions/type-conversion-functions>). So the columns
//! are checked before the first insert.

use super::answers::Place;
use super::tables::file_of;
use crate::batch::{Failure, Sent};
use crate::http::failure;
use record::{FieldSet, Native, RowKind};
use std::collections::HashMap;

/// Longest type name to read: every suitable type is shorter.
const TYPE_CHARS_MAX: usize = 200;

/// Most columns to name in one message.
const NAMED_MAX: usize = 5;

/// A column that cannot hold every value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    column: &'static str,
    ours: String,
    theirs: String,
}

/// Queries name and type of the columns that a block may have, one per line (`TSVRaw`), separated by a tab.
pub(super) fn question(kind: RowKind, fields: &FieldSet, database: &str, table: &str) -> String {
    let names: Vec<String> = Native::types(kind, fields).map(|(name, _)| literal(name)).collect();
    format!(
        "SELECT name, substring(type, 1, {TYPE_CHARS_MAX}) FROM system.columns WHERE database = {} AND table = {} AND name IN ({}) \
         FORMAT TSVRaw",
        literal(database),
        literal(table),
        names.join(", ")
    )
}

/// The columns that cannot hold every value, from the answer to the query. A missing column is not reported here, because the
/// insert names it. `None` if no column is visible.
pub(super) fn misfits(kind: RowKind, fields: &FieldSet, answer: &str) -> Option<Vec<Misfit>> {
    let theirs: HashMap<&str, &str> =
        answer.lines().filter_map(|line| line.split_once('\t')).collect();
    if theirs.is_empty() {
        return None;
    }

    let misfit = |(column, ours): (&'static str, String)| {
        let theirs = *theirs.get(column)?;
        (!keeps(&bare(theirs), &bare(&ours))).then(|| Misfit {
            column,
            ours,
            theirs: theirs.to_owned(),
        })
    };
    Some(Native::types(kind, fields).filter_map(misfit).collect())
}

/// The failure when nothing is inserted because of these columns.
pub(super) fn unfit(misfits: &[Misfit], place: &Place<'_>) -> Failure {
    let Place { address, database, table, kind } = place;
    let list = |one: &dyn Fn(&Misfit) -> String| {
        let mut named: Vec<String> = misfits.iter().take(NAMED_MAX).map(one).collect();
        if misfits.len() > NAMED_MAX {
            named.push(format!("{} more", misfits.len() - NAMED_MAX));
        }
        named.join(", ")
    };
    let differ =
        list(&|Misfit { column, ours, theirs }| format!("{column} is {theirs}, not {ours}"));
    let modify = list(&|Misfit { column, ours, .. }| format!("MODIFY COLUMN {column} {ours}"));
    failure(
        Sent::No,
        format!(
            "{address} has another table {database}.{table}, whose columns would not keep every value: {differ}"
        ),
        format!(
            "ALTER TABLE {database}.{table} {modify}; a column that sorts the table needs a new one (deploy/clickhouse/{})",
            file_of(*kind)
        ),
    )
}

/// Whether a column of type `theirs` holds every value of type `ours` unchanged.
fn keeps(theirs: &str, ours: &str) -> bool {
    let holds = |(theirs, ours)| theirs >= ours;
    theirs == ours
        || theirs == "String"
        || exact_bits(theirs).zip(exact_bits(ours)).is_some_and(holds)
}

/// Number of bits up to which a type holds every integer exactly. `None` for a type that is not numeric.
fn exact_bits(kind: &str) -> Option<u32> {
    Some(match kind {
        "Bool" => 1,
        "Int8" => 7,
        "UInt8" => 8,
        "Int16" => 15,
        "UInt16" => 16,
        "Float32" => 24,
        "Int32" => 31,
        "UInt32" => 32,
        "Float64" => 53,
        "Int64" => 63,
        "UInt64" => 64,
        "Int128" | "UInt128" | "Int256" | "UInt256" => 127,
        _ => return None,
    })
}

/// A type without the wrappers that do not change its values: `Nullable(…)` and `LowCardinality(…)`.
fn bare(kind: &str) -> String {
    let mut bare = String::with_capacity(kind.len());
    // For each open parenthesis, whether it is kept.
    let mut open = Vec::new();
    for character in kind.chars() {
        let is_kept = match character {
            '(' => {
                let wrapper = ["Nullable", "LowCardinality"]
                    .into_iter()
                    .find_map(|name| bare.strip_suffix(name));
                let end = wrapper.map(str::len);
                bare.truncate(end.unwrap_or(bare.len()));
                open.push(end.is_none());
                end.is_none()
            }
            ')' => open.pop().unwrap_or(true),
            _ => true,
        };
        if is_kept {
            bare.push(character);
        }
    }
    bare
}

/// A string as an SQL literal.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_keeps_what_it_can_hold() {
        let check = |ours: &str, kept: &[&str], cut: &[&str]| {
            let is_kept = |theirs: &&str| keeps(&bare(theirs), &bare(ours));
            kept.iter().for_each(|theirs| assert!(is_kept(theirs), "{ours} in {theirs}"));
            cut.iter().for_each(|theirs| assert!(!is_kept(theirs), "{ours} in {theirs}"));
        };
        check(
            "Nullable(UInt32)",
            &[
                "UInt32",
                "Nullable(UInt64)",
                "LowCardinality(Nullable(UInt32))",
                "Int64",
                "Float64",
                "String",
                "UInt256",
            ],
            &[
                "UInt16",
                "Nullable(UInt8)",
                "Int32",
                "Float32",
                "DateTime",
                "IPv4",
                "Bool",
                "Decimal(9, 0)",
                "",
            ],
        );
        check(
            "UInt64",
            &["UInt64", "UInt128"],
            &["Int64", "Float64", "UUID", "DateTime64(9, 'UTC')", "UInt32"],
        );
        check("UInt8", &["Int16", "Float32"], &["Int8", "Bool", "Enum8('a' = 1)"]);
        check("Nullable(Bool)", &["Bool", "UInt8", "Int8"], &["IPv6"]);
        check(
            "Nullable(String)",
            &["LowCardinality(String)"],
            &["FixedString(16)", "UUID", "UInt64"],
        );
        check("IPv6", &["Nullable(IPv6)", "String"], &["IPv4", "FixedString(16)", "UInt128"]);
        check(
            "Map(String, String)",
            &["Map(LowCardinality(String), Nullable(String))", "String"],
            &["Map(String, UInt8)"],
        );
    }

    #[test]
    fn an_answer_is_read_column_by_column() {
        let of = |answer| misfits(RowKind::Totals, &FieldSet::ALL, answer);
        assert_eq!(of(""), None);
        assert_eq!(of("poll\tUInt64\nhost\tString\nunknown\tUInt8\n"), Some(Vec::new()));
        let (ours, theirs) = ("Nullable(UInt64)".to_owned(), "UInt8".to_owned());
        assert_eq!(
            of("host\tString\npoll\tUInt8\n"),
            Some(vec![Misfit { column: "poll", ours, theirs }])
        );
    }

    #[test]
    fn no_name_ends_the_question() {
        let asked = question(RowKind::Totals, &FieldSet::ALL, "a'b", "c\\");
        assert!(asked.contains(r"database = 'a\'b' AND table = 'c\\' AND name IN ("), "{asked}");
    }
}
