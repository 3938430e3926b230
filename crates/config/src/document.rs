//! The input, a TOML document or options on the command line, as one plain tree with line numbers.

mod merge;
mod variables;

use crate::not_toml;
use crate::reader::Report;
use crate::source::Sources;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
pub(crate) use variables::{Borrowed, Environment};

/// A value and its line.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) line: Option<usize>,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    /// A value from the command line, where nothing tells a number from text.
    Bare(String),
    Integer(i128),
    /// Any other scalar; `what` names its type.
    Other {
        what: &'static str,
        text: String,
    },
    List(Vec<Item>),
    Table(Table),
}

/// The `what` of a [`Value::Other`] that is `true` or `false`.
pub(crate) const TRUTH_VALUE: &str = "the truth value";

impl Value {
    /// The text, or a message that it is not text.
    pub(crate) fn text(&self) -> Result<&str, String> {
        match self {
            Value::Text(text) | Value::Bare(text) => Ok(text),
            other => Err(format!("{} is not text", other.describe())),
        }
    }

    /// Its type and value, for messages: `text "x"`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Text(text) => format!("the text \"{}\"", text.escape_debug()),
            Value::Bare(text) => format!("\"{}\"", text.escape_debug()),
            Value::Integer(number) => format!("the number {number}"),
            Value::Other { what, text } => format!("{what} {text}"),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a section".to_owned(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) line: Option<usize>,
    /// In the order of the file.
    pub(crate) entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) line: Option<usize>,
    pub(crate) key: String,
    pub(crate) item: Item,
    /// The part of the item that came from the environment.
    pub(crate) borrowed: Option<Borrowed>,
}

impl Table {
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Whether the name has any value but an empty list, which is no section.
    pub(crate) fn has_section(&self, name: &str) -> bool {
        let is_empty =
            |entry: &Entry| matches!(&entry.item.value, Value::List(items) if items.is_empty());
        self.get(name).is_some_and(|entry| !is_empty(entry))
    }

    /// Reports options given twice: a command line can have them, a TOML file cannot.
    pub(crate) fn report_duplicates(&self, report: &Report, section: &str) {
        for (at, entry) in self.entries.iter().enumerate() {
            if self.entries[..at].iter().any(|earlier| earlier.key == entry.key) {
                let key = format!("{section}.{}", entry.key);
                report.error(None, &key, "it is given twice. Fix: keep one");
            }
        }
    }
}

/// Reads TOML documents as one, with variables replaced from the environment. Syntax errors are reported, and what could be read
/// around them is returned.
pub(crate) fn parse(sources: &Sources, environment: Environment<'_>, report: &Report) -> Table {
    let mut document = Table::default();
    for (text, lines_before) in sources.texts() {
        document.add(parse_text(text, lines_before, report), "", report);
    }
    document.resolve("", environment, report);
    document
}

fn parse_text(text: &str, lines_before: usize, report: &Report) -> Table {
    let lines = Lines::of(text, lines_before);
    let (document, mistakes) = DeTable::parse_recoverable(text);

    for mistake in mistakes {
        let line = mistake.span().map(|span| lines.number(span.start));
        let message = mistake.message().trim().replace('\n', ", ");
        let fix = match (
            message.as_str(),
            line.and_then(|line| text.lines().nth(line - 1 - lines_before)),
        ) {
            ("duplicate key", _) => "keep one".to_owned(),
            (_, Some(wrong)) => not_toml::fix(wrong),
            (_, None) => not_toml::fix(""),
        };
        report.error(line, "", format!("this is not TOML: {message}. Fix: {fix}"));
    }

    table(document.get_ref(), Some(lines_before + 1), &lines)
}

/// The path of a key within its section, for messages.
fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The options of one address on the command line.
pub(crate) fn from_options(address_key: &str, address: &str, options: &[(&str, &str)]) -> Table {
    let pairs = [(address_key, address)].into_iter().chain(options.iter().copied());
    let entry = |(key, text): (&str, &str)| Entry {
        line: None,
        key: key.to_owned(),
        item: Item { line: None, value: Value::Bare(text.to_owned()) },
        borrowed: None,
    };
    Table { line: None, entries: pairs.map(entry).collect() }
}

fn table(source: &DeTable<'_>, line: Option<usize>, lines: &Lines) -> Table {
    let mut entries: Vec<(usize, Entry)> = source
        .iter()
        .map(|(key, value)| {
            let at = key.span().start;
            let entry = Entry {
                line: Some(lines.number(at)),
                key: key.get_ref().clone().into_owned(),
                item: item(value, lines),
                borrowed: None,
            };
            (at, entry)
        })
        .collect();

    // The parser sorts keys by name, but mistakes and `weir config show` follow the order of the file.
    entries.sort_by_key(|(at, _)| *at);
    Table { line, entries: entries.into_iter().map(|(_, entry)| entry).collect() }
}

fn item(source: &Spanned<DeValue<'_>>, lines: &Lines) -> Item {
    let line = Some(lines.number(source.span().start));
    let value = match source.get_ref() {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(number) => {
            match i128::from_str_radix(&number.as_str().replace('_', ""), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => Value::Other { what: "the number", text: number.to_string() },
            }
        }
        DeValue::Float(number) => {
            Value::Other { what: "the number", text: number.as_str().to_owned() }
        }
        DeValue::Boolean(value) => Value::Other { what: TRUTH_VALUE, text: value.to_string() },
        DeValue::Datetime(value) => Value::Other { what: "the date", text: value.to_string() },
        DeValue::Array(items) => {
            Value::List(items.iter().map(|value| item(value, lines)).collect())
        }
        DeValue::Table(entries) => Value::Table(table(entries, line, lines)),
    };

    Item { line, value }
}

/// The offsets at which the lines of a text begin.
struct Lines {
    starts: Vec<usize>,
    /// Lines of earlier texts, which are counted first.
    before: usize,
}

impl Lines {
    fn of(text: &str, before: usize) -> Lines {
        let after_feeds =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Lines { starts: std::iter::once(0).chain(after_feeds).collect(), before }
    }

    /// The number of the line that contains the byte at this offset, from 1.
    fn number(&self, offset: usize) -> usize {
        self.before + self.starts.partition_point(|start| *start <= offset)
    }
}
