//! The JSON schema of one line of JSON lines, which is also one element of the JSON array.

use super::{GENERATED, unit_and_kernel};
use crate::{
    CounterRecord, DatagramRecord, Field, FlowRecord, FlowTotals, Kind, PollTotals, SocketRecord,
};
use std::fmt::Write;

pub(crate) fn text() -> String {
    let mut out =
        String::from("{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n");
    let _ = writeln!(out, "  \"$comment\": {},", quoted(GENERATED));
    out.push_str("  \"title\": \"SocketRecord\",\n");
    out.push_str("  \"description\": \"One TCP socket at one moment. A field that is not there is not known.\",\n");
    out.push_str("  \"type\": \"object\",\n  \"properties\": {\n");
    properties(SocketRecord::FIELDS, "    ", &mut out);
    out.push_str(",\n    \"totals\": {\"$ref\": \"#/$defs/PollTotals\"}\n  },\n  \"$defs\": {\n    \"PollTotals\": {\n");
    out.push_str("      \"description\": \"What one poll visited, and what became of it.\",\n");
    out.push_str("      \"type\": \"object\",\n      \"properties\": {\n");
    properties(PollTotals::FIELDS, "        ", &mut out);
    out.push_str("\n      }\n    }\n  }\n}\n");
    out
}

/// The schema of a datagram line.
pub(crate) fn datagram() -> String {
    schema("DatagramRecord", "One datagram that a listener received.", DatagramRecord::FIELDS)
}

/// The schema of a flow line.
pub(crate) fn flow() -> String {
    schema("FlowRecord", "What came of one flow between two moments.", FlowRecord::FIELDS)
}

/// The schema of a counters line.
pub(crate) fn counters() -> String {
    let about = "The counters of one interface, or the figures of one agent.";
    schema("CounterRecord", about, CounterRecord::FIELDS)
}

/// The schema of a line with totals of flow and counter rows.
pub(crate) fn flow_totals() -> String {
    let about = "How many flow and counter rows a run has made, and of what.";
    schema("FlowTotals", about, FlowTotals::FIELDS)
}

/// The schema of a line of one table.
fn schema(title: &str, about: &str, fields: &[Field]) -> String {
    let mut out =
        String::from("{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n");
    let _ = writeln!(out, "  \"$comment\": {},", quoted(GENERATED));
    let _ = writeln!(out, "  \"title\": \"{title}\",");
    let _ =
        writeln!(out, "  \"description\": \"{about} A field that is not there is not known.\",");
    out.push_str("  \"type\": \"object\",\n  \"properties\": {\n");
    properties(fields, "    ", &mut out);
    out.push_str("\n  }\n}\n");
    out
}

fn properties(fields: &[Field], indent: &str, out: &mut String) {
    let lines: Vec<String> = fields.iter().map(|field| property(field, indent)).collect();
    out.push_str(&lines.join(",\n"));
}

fn property(field: &Field, indent: &str) -> String {
    let unit = unit_and_kernel(field);
    let unit = if unit.is_empty() { unit } else { format!(" [{unit}]") };
    let meaning = quoted(&format!("{}{unit}", field.meaning));
    let line = |name: &str, kind: Kind| {
        format!("{indent}\"{name}\": {{{}, \"description\": {meaning}}}", type_of(kind))
    };
    match field.kind {
        // One of the two is present.
        Kind::Data => {
            let bytes = line(&format!("{}_base64", field.name), Kind::Bytes);
            format!("{},\n{bytes}", line(field.name, Kind::Text))
        }
        kind => line(field.name, kind),
    }
}

fn type_of(kind: Kind) -> String {
    let integer = |max: u64| format!("\"type\": \"integer\", \"minimum\": 0, \"maximum\": {max}");
    match kind {
        Kind::U8 => integer(u8::MAX.into()),
        Kind::U16 => integer(u16::MAX.into()),
        Kind::U32 => integer(u32::MAX.into()),
        Kind::U64 | Kind::Fixed64 => integer(u64::MAX),
        Kind::Bool => "\"type\": \"boolean\"".to_owned(),
        Kind::Text | Kind::Data => "\"type\": \"string\"".to_owned(),
        Kind::Bytes => "\"type\": \"string\", \"contentEncoding\": \"base64\"".to_owned(),
        Kind::Address => {
            "\"type\": \"string\", \"anyOf\": [{\"format\": \"ipv4\"}, {\"format\": \"ipv6\"}]"
                .to_owned()
        }
        Kind::Tags => {
            "\"type\": \"object\", \"additionalProperties\": {\"type\": \"string\"}".to_owned()
        }
        Kind::Word(words) => {
            let known: Vec<String> = words.entries.iter().map(|(_, word)| quoted(word)).collect();
            format!(
                "\"anyOf\": [{{\"enum\": [{}]}}, {{{}}}]",
                known.join(", "),
                integer(u8::MAX.into())
            )
        }
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
