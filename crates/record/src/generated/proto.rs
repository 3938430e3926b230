//! `weir.proto`, and `weir_store.proto` for stores.

use super::{GENERATED, numbers, unit_and_kernel};
use crate::{
    CounterRecord, DatagramRecord, Field, FlowRecord, FlowTotals, Group, Kind, PollTotals,
    SocketRecord, TOTALS_NUMBER, WORD_TABLES,
};
use std::fmt::Write;

/// The fields of a datagram: number, name, type.
pub(crate) const DATAGRAM: &[(u32, &str, &str)] = &[
    (1, "stream_id", "fixed64"),
    (2, "sequence", "uint64"),
    (3, "first_record", "uint64"),
    (4, "poll", "uint64"),
    (5, "record", "repeated SocketRecord"),
    (6, "totals", "optional PollTotals"),
];

const DATAGRAM_MEANINGS: &[&str] = &[
    "Random number of the stream; another one after a restart.",
    "Number of this datagram in the stream, from 0.",
    "Records of the stream before this datagram.",
    "The poll that its first record, or its totals, belong to.",
    "Every record is whole: none depends on another datagram.",
    "In the last datagram of a poll.",
];

/// How words are declared. On the wire both are the same.
#[derive(Clone, Copy)]
enum Words {
    /// As enums.
    Named,
    /// As numbers: a store that knows enums refuses a number without a name, and with it all rows around it.
    Numbers,
}

/// The schema for programs.
pub(crate) fn text() -> String {
    let mut out = format!("// {GENERATED}\n");
    out.push_str(
        "//\n// Each kind of word is an enum in a message of its own, so that its words are the same here as in every other encoding.\n\
         // A field that is not there is not known, which is never the same as 0. docs/records.md explains every field.\n\n\
         syntax = \"proto3\";\n\npackage weir.v1;\n\n",
    );
    rows(Words::Named, &mut out);
    out.push_str("\n// One UDP datagram of records. It can be read alone, and says which records of its stream it has.\nmessage Datagram {\n");
    for ((number, name, kind), meaning) in DATAGRAM.iter().zip(DATAGRAM_MEANINGS) {
        let _ = writeln!(out, "  // {meaning}\n  {kind} {name} = {number};");
    }
    out.push_str("}\n\n// What a file of protobuf text is.\nmessage SocketRecords {\n  repeated SocketRecord record = 1;\n  repeated DatagramRecord datagram = 2;\n  repeated FlowRecord flow = 4;\n  repeated CounterRecord counters = 5;\n  repeated FlowTotals flow_totals = 6;\n}\n");
    for words in WORD_TABLES {
        let _ = writeln!(
            out,
            "\n// {}\nmessage {} {{\n  enum Value {{",
            words.meaning.trim(),
            words.name
        );
        for (value, word) in words.entries {
            let _ = writeln!(out, "    {word} = {value};");
        }
        out.push_str("  }\n}\n");
    }
    out
}

/// The schema for stores: the same rows, with no number refused.
pub(crate) fn store_text() -> String {
    let mut out = format!("// {GENERATED}\n");
    out.push_str(
        "//\n// What weir.proto has as SocketRecord, PollTotals, DatagramRecord and the messages after them, byte for byte the same on the wire, for stores that read protobuf\n\
         // by a schema: words are numbers, so that one which is newer than the schema is kept and not refused; and there is no\n\
         // package, so that ClickHouse finds `weir_store.proto:SocketRecord`.\n\n\
         syntax = \"proto3\";\n\n",
    );
    rows(Words::Numbers, &mut out);
    out
}

/// Writes the kinds of rows.
fn rows(words: Words, out: &mut String) {
    out.push_str("// One TCP socket at one moment. A file of records is messages of this type, each with its length as a varint before it.\n");
    message("SocketRecord", SocketRecord::FIELDS, SocketRecord::GROUPS, words, out);
    out.push_str(
        "\n  // In files, the totals of a poll; then there is nothing else but `record_kind: totals`.\n",
    );
    let _ = writeln!(out, "  optional PollTotals totals = {TOTALS_NUMBER};\n}}\n");
    out.push_str("// What one poll visited, and what became of it: a kind of row of its own.\n");
    message("PollTotals", PollTotals::FIELDS, PollTotals::GROUPS, words, out);
    out.push_str("}\n\n// One datagram that a listener received: a kind of row of its own, too.\n");
    message("DatagramRecord", DatagramRecord::FIELDS, DatagramRecord::GROUPS, words, out);
    out.push_str(
        "}\n\n// What came of one flow between two moments: a kind of row of its own, too.\n",
    );
    message("FlowRecord", FlowRecord::FIELDS, FlowRecord::GROUPS, words, out);
    out.push_str(
        "}\n\n// The counters of one interface at one moment, or the figures of one agent.\n",
    );
    message("CounterRecord", CounterRecord::FIELDS, CounterRecord::GROUPS, words, out);
    out.push_str("}\n\n// How many flow and counter rows a run has made, and of what.\n");
    message("FlowTotals", FlowTotals::FIELDS, FlowTotals::GROUPS, words, out);
    out.push_str("}\n");
}

fn message(name: &str, fields: &[Field], groups: &[Group], words: Words, out: &mut String) {
    let _ = writeln!(out, "message {name} {{");
    for (number, name) in numbers::retired(name) {
        let _ = writeln!(out, "  reserved {number};\n  reserved \"{name}\";");
    }
    for (at, group) in groups.iter().enumerate() {
        let _ = writeln!(
            out,
            "{}  // {}: {}",
            if at == 0 { "" } else { "\n" },
            group.name,
            group.meaning
        );
        for field in fields.iter().filter(|field| field.group == group.name) {
            let unit = unit_and_kernel(field);
            let unit = if unit.is_empty() { unit } else { format!(" [{unit}]") };
            out.push('\n');
            comment(&format!("{}{unit}", field.meaning), out);
            let kind = type_of(field.kind, words);
            let _ = writeln!(out, "  {kind} {} = {};", field.name, field.number);
        }
    }
}

/// Writes a comment with lines that fit a screen.
fn comment(text: &str, out: &mut String) {
    const COLUMNS: usize = 116;
    let mut column = COLUMNS;
    for word in text.split(' ') {
        if column + word.len() >= COLUMNS {
            out.push_str(if column == COLUMNS { "  //" } else { "\n  //" });
            column = 0;
        }
        let _ = write!(out, " {word}");
        column += 1 + word.len();
    }
    out.push('\n');
}

fn type_of(kind: Kind, words: Words) -> String {
    let name = match kind {
        Kind::U8 | Kind::U16 | Kind::U32 => "uint32",
        Kind::U64 => "uint64",
        Kind::Fixed64 => "fixed64",
        Kind::Bool => "bool",
        Kind::Text => "string",
        Kind::Bytes | Kind::Data | Kind::Address => "bytes",
        Kind::Word(word) => match words {
            Words::Named => return format!("optional {}.Value", word.name),
            Words::Numbers => "uint32",
        },
        Kind::Tags => return "map<string, string>".to_owned(),
    };
    format!("optional {name}")
}
