//! What the user asked to see: columns of the table by name, or fields of the record.

use super::columns::{self, Column, Key, View};
use crate::exit::Failure;
use record::{Encoder, Encoding, Field, FieldSet, Kind, SocketRecord};
use std::fmt::Write as _;
use text::{Align, Tint};

/// One column of a table.
pub(super) enum Shown {
    /// A predefined column.
    Column(&'static Column),
    /// A field of the record, unchanged.
    Field { field: &'static Field, encoder: Encoder, scratch: Vec<u8> },
}

impl Shown {
    pub(super) fn title(&self) -> String {
        match self {
            Shown::Column(column) => column.title.to_owned(),
            Shown::Field { field, .. } => field.name.to_uppercase(),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Shown::Column(column) => column.name,
            Shown::Field { field, .. } => field.name,
        }
    }

    pub(super) fn align(&self) -> Align {
        match self {
            Shown::Column(column) => column.align,
            Shown::Field { field, .. } if is_number(field) => Align::Right,
            Shown::Field { .. } => Align::Left,
        }
    }

    pub(super) fn weight(&self) -> u8 {
        match self {
            Shown::Column(column) => column.weight,
            Shown::Field { .. } => 9,
        }
    }

    pub(super) fn usual_width(&self) -> usize {
        match self {
            Shown::Column(column) => column.usual_width,
            Shown::Field { field, .. } => field.name.len().max(12),
        }
    }

    /// Whether it shows an address with a port, which is cut in the middle when space is short.
    pub(super) fn is_address(&self) -> bool {
        matches!(self.name(), "local" | "peer")
    }

    /// Appends the cell.
    pub(super) fn put(&mut self, view: &View<'_>, out: &mut String) -> Tint {
        match self {
            Shown::Column(column) => (column.put)(view, out),
            Shown::Field { encoder, scratch, .. } => match field_text(encoder, scratch, view) {
                "" => {
                    out.push('-');
                    Tint::Dim
                }
                text => {
                    out.push_str(&text::escaped(text));
                    Tint::Plain
                }
            },
        }
    }

    /// The sort key of the row.
    pub(super) fn key(&mut self, view: &View<'_>) -> Key {
        match self {
            Shown::Column(column) => (column.key)(view),
            Shown::Field { field, encoder, scratch } => {
                let text = field_text(encoder, scratch, view);
                match text.parse() {
                    _ if text.is_empty() => Key::Absent,
                    Ok(number) if is_number(field) => Key::Number(number),
                    _ => Key::Text(text.into()),
                }
            }
        }
    }
}

fn is_number(field: &Field) -> bool {
    matches!(field.kind, Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 | Kind::Fixed64)
}

fn field_text<'s>(encoder: &mut Encoder, scratch: &'s mut Vec<u8>, view: &View<'_>) -> &'s str {
    scratch.clear();
    encoder.encode(view.record, scratch);
    str::from_utf8(scratch).unwrap_or_default().trim_end_matches('\n')
}

/// The column or field of this name, as a column.
pub(super) fn column(name: &str) -> anyhow::Result<Shown> {
    if let Some(column) = columns::find(name) {
        return Ok(Shown::Column(column));
    }
    match SocketRecord::FIELDS.iter().find(|field| field.name == name) {
        Some(field) => Ok(of_field(field)),
        None => Err(unknown(name)),
    }
}

/// The columns for names of columns, fields and field groups.
pub(super) fn columns(names: &str) -> anyhow::Result<Vec<Shown>> {
    let mut shown = Vec::new();

    for name in split(names) {
        match column(name) {
            Ok(column) => shown.push(column),
            Err(error) => match FieldSet::named(name) {
                Ok(set) => shown.extend(set.fields().map(of_field)),
                Err(_) => return Err(error),
            },
        }
    }

    match shown.is_empty() {
        true => Err(Failure::Usage.error("--columns names none; `--columns help` lists them")),
        false => Ok(shown),
    }
}

/// The fields for names of columns, fields and groups, in the order given; a leading `-` removes.
pub(super) fn fields(names: &str) -> anyhow::Result<Vec<&'static Field>> {
    let mut plain = Vec::new();

    for name in split(names) {
        match columns::find(name.strip_prefix('-').unwrap_or(name)) {
            Some(column) => {
                let sign = if name.starts_with('-') { "-" } else { "" };
                plain.extend(column.fields.iter().map(|field| format!("{sign}{field}")));
            }
            None => plain.push(name.to_owned()),
        }
    }

    if plain.is_empty() {
        return Err(Failure::Usage.error("--columns names no field; `--columns help` lists them"));
    }

    FieldSet::in_order(plain.iter().map(String::as_str)).map_err(|error| unknown(&error.name))
}

fn split(names: &str) -> impl Iterator<Item = &str> {
    names.split(',').map(str::trim).filter(|name| !name.is_empty())
}

fn of_field(field: &'static Field) -> Shown {
    let set = FieldSet::named(field.name).unwrap_or(FieldSet::NONE);
    Shown::Field { field, encoder: Encoder::new(Encoding::Tsv, &set), scratch: Vec::new() }
}

fn unknown(name: &str) -> anyhow::Error {
    let known = columns::COLUMNS.iter().map(|column| column.name);
    let groups = SocketRecord::GROUPS.iter().map(|group| group.name);
    let known = known.chain(SocketRecord::FIELDS.iter().map(|field| field.name)).chain(groups);
    let likeness = |known: &&str| strsim::jaro_winkler(name, known);
    let nearest = known.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or_default();
    Failure::Usage.error(format!(
        "no column or field is named `{name}`. Fix: did you mean `{nearest}`? `--columns help` lists all"
    ))
}

/// The text of `--columns help`.
pub(super) fn help() -> String {
    let mut text = String::from("Columns of the table:\n\n");
    let mut line = |name: &str, meaning: &str| {
        writeln!(text, "  {name:<32} {meaning}").expect("writing to a string cannot fail");
    };

    for column in columns::COLUMNS {
        line(column.name, column.meaning);
    }

    text.push_str("\nFields of records, which the table takes as columns too:\n");
    for group in SocketRecord::GROUPS {
        write!(text, "\n {}: {}\n\n", group.name, group.meaning)
            .expect("writing to a string cannot fail");
        for field in SocketRecord::FIELDS.iter().filter(|field| field.group == group.name) {
            writeln!(text, "  {:<32} {}", field.name, field.meaning)
                .expect("writing to a string cannot fail");
        }
    }

    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        columns(text).unwrap().iter().map(Shown::name).collect()
    }

    #[test]
    fn columns_fields_and_groups() {
        assert_eq!(names("local, rtt_us,state"), ["local", "rtt_us", "state"]);
        assert_eq!(names("endpoints").len(), 7);
        let set = fields("local,retrans,rtt_us").unwrap();
        let chosen: Vec<_> = set.iter().map(|field| field.name).collect();
        assert_eq!(
            chosen,
            ["src_address", "src_port", "retrans_segments", "total_retrans_segments", "rtt_us"]
        );
        assert!(fields("-tcp_info").unwrap().iter().all(|field| field.name != "rtt_us"));
        assert!(columns(",").is_err() && fields("").is_err());
    }

    #[test]
    fn an_unknown_name_tells_the_nearest() {
        for (name, nearest) in [
            ("retran", "`retrans`"),
            ("lokal", "`local`"),
            ("rtt_usec", "`rtt_us`"),
            ("tcpinfo", "`tcp_info`"),
        ] {
            let error = columns(name).err().unwrap().to_string();
            assert!(error.contains(nearest), "{error}");
        }
    }

    #[test]
    fn every_column_is_a_word_of_the_filter_or_named_as_none() {
        use sockets::filter::{COLUMNS_ONLY, Filter, NoNames};
        for column in columns::COLUMNS {
            let name = column.name;
            let read = Filter::parse_with(&format!("{name} = 1"), &NoNames);
            let is_unknown = read.is_err_and(|error| error.message.contains("is not a word"));
            let is_named = COLUMNS_ONLY.iter().any(|(known, _)| *known == name);
            assert_eq!(is_unknown, is_named, "{name}");
        }
        for (name, _) in COLUMNS_ONLY {
            assert!(columns::find(name).is_some(), "{name} is no column");
        }
    }

    #[test]
    fn every_column_names_fields_that_exist() {
        for column in columns::COLUMNS {
            for field in column.fields {
                assert!(FieldSet::named(field).is_ok(), "{}: {field}", column.name);
            }
        }
        let sets = [
            columns::CONNECTIONS,
            columns::LISTENERS,
            columns::DATAGRAMS,
            columns::DATAGRAMS_WATCHED,
            columns::INFO,
            columns::MEMORY,
            columns::WATCHED,
            columns::CLOSED,
            columns::RECEIVED,
        ];
        for name in sets.concat() {
            assert!(columns::find(name).is_some(), "{name}");
        }
    }
}
