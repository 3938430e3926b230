//! The tables of docs/sflow.md.

use std::fmt::Write;

use testkit::generated_part;
use wire::sflow::{CounterRecord, DropReason, FlowRecord, Kind};

const MARKS: [&str; 2] = ["<!-- generated: begin -->\n", "<!-- generated: end -->"];

#[test]
fn generated_tables_of_structures_are_those_of_the_code() {
    let mut text = "\n## Structures of flow samples and dropped packets\n".to_owned();
    structures(FlowRecord::KINDS, &mut text);
    text += "\n## Structures of counter samples\n";
    structures(CounterRecord::KINDS, &mut text);
    text += "\n## Drop reasons\n\n| number | name |\n|---|---|\n";
    for (reason, name) in DropReason::all() {
        writeln!(text, "| {} | `{name}` |", reason.0).unwrap();
    }
    generated_part("docs/sflow.md", MARKS, &text);
}

fn structures(kinds: &[Kind], text: &mut String) {
    *text += "\n| number | name | fields |\n|---|---|---|\n";
    for kind in kinds {
        let field = |(name, kind): &(&str, &str)| format!("`{name}` {kind}");
        let fields: Vec<_> = kind.fields.iter().map(field).collect();
        writeln!(text, "| {} | `{}` | {} |", kind.format, kind.name, fields.join(", ")).unwrap();
    }
}
