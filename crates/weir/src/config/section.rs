//! Reading one section key by key: every mistake is collected, and the next key is read.

use super::document::{Entry, Item, TRUTH_VALUE, Table, Value};
use super::errors::{ConfigError, nearest};
use super::keys::{Fallback, Key, Kind, SECTIONS, SectionKeys};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use text::units;

/// What is found while a configuration is read.
pub(super) struct Report {
    origin: String,
    errors: RefCell<Vec<ConfigError>>,
    lines: RefCell<BTreeMap<String, Option<usize>>>,
}

impl Report {
    pub(super) fn new(origin: &str) -> Report {
        Report { origin: origin.to_owned(), errors: RefCell::default(), lines: RefCell::default() }
    }

    pub(super) fn error(&self, line: Option<usize>, key: &str, message: impl Into<String>) {
        self.errors.borrow_mut().push(ConfigError {
            origin: self.origin.clone(),
            line,
            key: key.to_owned(),
            message: message.into(),
        });
    }

    pub(super) fn add(&self, errors: Vec<ConfigError>) {
        self.errors.borrow_mut().extend(errors);
    }

    /// The line that a key of a section stands on; `place` is the section's, such as `listener[0].target[1]`.
    pub(super) fn line_of(&self, place: &str, key: &str) -> Option<usize> {
        self.lines.borrow().get(&format!("{place}.{key}")).copied().flatten()
    }

    /// All mistakes in the order of the file, and the lines of all keys that were there.
    pub(super) fn into_parts(self) -> (Vec<ConfigError>, BTreeMap<String, Option<usize>>) {
        let mut errors = self.errors.into_inner();
        errors.sort_by_key(|error| error.line.unwrap_or(usize::MAX));
        // The targets of `weir relay` belong to every listener: a mistake in one is said once.
        let mut seen = BTreeSet::new();
        errors.retain(|error| seen.insert((error.line, error.to_string())));
        (errors, self.lines.into_inner())
    }
}

/// One section of the document.
pub(super) struct Section<'a> {
    report: &'a Report,
    table: &'a Table,
    keys: &'static SectionKeys,
    /// Which section it is, such as `listener[0].target[1]`.
    pub(super) place: String,
}

impl<'a> Section<'a> {
    /// Opens a section. Keys that it does not know, and are not among `subsections`, are mistakes.
    pub(super) fn open(
        report: &'a Report,
        table: &'a Table,
        keys: &'static SectionKeys,
        place: String,
        subsections: &[&str],
    ) -> Section<'a> {
        let section = Section { report, table, keys, place };
        for entry in &table.entries {
            if keys.key(&entry.key).is_some() {
                let name = format!("{}.{}", section.place, entry.key);
                report.lines.borrow_mut().insert(name, entry.line);
            } else if !subsections.contains(&entry.key.as_str()) {
                section.unknown(entry, subsections);
            }
        }
        section
    }

    fn unknown(&self, entry: &Entry, subsections: &[&str]) {
        let names = || self.keys.keys.iter().map(|key| key.name).chain(subsections.iter().copied());
        let elsewhere = SECTIONS.iter().find(|section| section.key(&entry.key).is_some());
        let hint = match (nearest(&entry.key, names()), elsewhere) {
            (_, Some(section)) => format!("it belongs in {}", section.header),
            (Some(name), None) => format!("did you mean {name}?"),
            (None, None) => format!("the keys are {}", names().collect::<Vec<_>>().join(", ")),
        };
        let here = self.keys.header;
        self.error_at(entry.line, &entry.key, format!("unknown key in {here}; {hint}"));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// The line of the key, or of the section if the key is not there.
    pub(super) fn line(&self, key: &str) -> Option<usize> {
        self.table.get(key).map_or(self.table.line, |entry| entry.line)
    }

    pub(super) fn error(&self, key: &str, message: impl Into<String>) {
        self.error_at(self.line(key), key, message);
    }

    fn error_at(&self, line: Option<usize>, key: &str, message: impl Into<String>) {
        self.report.error(line, &format!("{}.{key}", self.keys.path), message);
    }

    fn key(&self, name: &str) -> &'static Key {
        self.keys.key(name).expect("the reader asks for keys of the table only")
    }

    /// The value of a key: typed, or the default; `None` if there is none, which is a mistake if it must be there.
    fn item(&self, name: &str) -> Option<Item> {
        if let Some(entry) = self.table.get(name) {
            return Some(entry.item.clone());
        }
        match self.key(name).fallback {
            Fallback::Value(text) => Some(Item { line: None, value: Value::Bare(text.to_owned()) }),
            Fallback::Absent(_) => None,
            Fallback::Required => {
                let form = self.key(name).kind.describe();
                self.error(name, format!("it is missing; write {name} = \"…\" ({form})"));
                None
            }
        }
    }

    /// A text that `parse` turns into a value; what it says about a wrong one becomes the message.
    pub(super) fn text<T, E: ToString>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let item = self.item(name)?;
        let (Value::Text(text) | Value::Bare(text)) = &item.value else {
            let form = self.key(name).kind.describe();
            self.error(
                name,
                format!("{} is not text; write {form}, in quotes", item.value.describe()),
            );
            return None;
        };
        match parse(text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.error(name, format!("\"{}\": {}", text.escape_debug(), error.to_string()));
                None
            }
        }
    }

    /// A size in bytes; `None` for the word that may stand in its place too.
    pub(super) fn size(&self, name: &str) -> Option<u64> {
        let (min, max, word) = match self.key(name).kind {
            Kind::Size(min, max) => (min, max, None),
            Kind::SizeOr(min, max, word) => (min, max, Some(word)),
            _ => unreachable!("{name} is a size in the table"),
        };
        if self.is_number_without_unit(name, "B", "for bytes, or a size such as \"8MiB\"") {
            return None;
        }
        self.text(name, |text| {
            if word == Some(text) {
                return Ok(None);
            }
            let bytes = units::parse_size(text).map_err(|error| error.to_string())?;
            let shown = units::display_size;
            in_range(bytes, min, max, shown).map(Some)
        })
        .flatten()
    }

    /// A duration; `None` for the word that may stand in its place too.
    pub(super) fn duration(&self, name: &str) -> Option<Duration> {
        let (min, max, word) = match self.key(name).kind {
            Kind::Duration(min, max) => (min, max, None),
            Kind::DurationOr(min, max, word) => (min, max, Some(word)),
            _ => unreachable!("{name} is a duration in the table"),
        };
        if self.is_number_without_unit(name, "s", "for seconds, or a duration such as \"250ms\"") {
            return None;
        }
        self.text(name, |text| {
            if word == Some(text) {
                return Ok(None);
            }
            let duration = units::parse_duration(text).map_err(|error| error.to_string())?;
            in_range(duration, min, max, units::display_duration).map(Some)
        })
        .flatten()
    }

    /// `true` or `false`.
    pub(super) fn bool(&self, name: &str) -> Option<bool> {
        let item = self.item(name)?;
        let value = match &item.value {
            Value::Bare(text) | Value::Other { what: TRUTH_VALUE, text } => text.parse().ok(),
            _ => None,
        };
        if value.is_none() {
            let hint = match &item.value {
                Value::Text(text) if text.parse::<bool>().is_ok() => "write it without quotes",
                _ => "write true or false",
            };
            let what = item.value.describe();
            self.error(name, format!("{what} is neither true nor false; {hint}"));
        }
        value
    }

    /// Whether the value is a list, as opposed to one word.
    pub(super) fn is_list(&self, name: &str) -> bool {
        matches!(self.table.get(name).map(|entry| &entry.item.value), Some(Value::List(_)))
    }

    /// Whether the key is not there, or has this word.
    pub(super) fn is_absent_or(&self, name: &str, word: &str) -> bool {
        let value = self.table.get(name).map(|entry| &entry.item.value);
        value.is_none_or(
            |value| matches!(value, Value::Text(text) | Value::Bare(text) if text == word),
        )
    }

    /// Whether the value is a list of nothing.
    pub(super) fn is_empty(&self, name: &str) -> bool {
        matches!(self.table.get(name).map(|entry| &entry.item.value),
            Some(Value::List(items)) if items.is_empty())
    }

    /// Names with values, each checked by `parse`.
    pub(super) fn tags(
        &self,
        name: &str,
        parse: impl Fn(&str, &str) -> Result<(), String>,
    ) -> BTreeMap<String, String> {
        let Some(item) = self.item(name) else { return BTreeMap::new() };
        let Value::Table(table) = &item.value else {
            let what = item.value.describe();
            let hint = format!("write {name} = {{ site = \"fra1\" }}");
            self.error(name, format!("{what} is no table of names and values; {hint}"));
            return BTreeMap::new();
        };
        let mut tags = BTreeMap::new();
        for Entry { line, key, item } in &table.entries {
            let Value::Text(text) = &item.value else {
                let what = item.value.describe();
                self.error_at(
                    *line,
                    name,
                    format!("{key}: {what} is not text; write it in quotes"),
                );
                continue;
            };
            match parse(key, text) {
                Ok(()) => drop(tags.insert(key.clone(), text.clone())),
                Err(error) => self.error_at(*line, name, error),
            }
        }
        tags
    }

    fn is_number_without_unit(&self, name: &str, unit: &str, hint: &str) -> bool {
        let number = self.table.get(name).and_then(|entry| match &entry.item.value {
            Value::Integer(number) => Some(number.to_string()),
            Value::Other { what: "the number", text } => Some(text.clone()),
            _ => None,
        });
        if let Some(number) = &number {
            self.error(
                name,
                format!("the number {number} has no unit; write \"{number}{unit}\" {hint}"),
            );
        }
        number.is_some()
    }

    pub(super) fn integer(&self, name: &str) -> Option<u64> {
        let Kind::Integer(min, max) = self.key(name).kind else {
            unreachable!("{name} is a number in the table")
        };
        let item = self.item(name)?;
        let number = match &item.value {
            Value::Integer(number) => Some(*number),
            Value::Bare(text) => text.parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if (i128::from(min)..=i128::from(max)).contains(&number) => {
                u64::try_from(number).ok()
            }
            Some(number) => {
                self.error(name, format!("{number} is out of range; it is {min} to {max}"));
                None
            }
            None => {
                let mut hint = format!("write {name} = N, {min} to {max}");
                if matches!(&item.value, Value::Text(text) if text.parse::<u64>().is_ok()) {
                    hint = "write it without quotes".to_owned();
                }
                self.error(
                    name,
                    format!("{} is not a whole number; {hint}", item.value.describe()),
                );
                None
            }
        }
    }

    /// One of the words of the table, as the value that stands beside it in `values`.
    pub(super) fn choice<T: Copy>(&self, name: &str, values: &[T]) -> Option<T> {
        let Kind::Choice(words) = self.key(name).kind else {
            unreachable!("{name} is a choice in the table")
        };
        assert_eq!(words.len(), values.len(), "each word of {name} has a value");
        self.text(name, |text| choose(text, words).map(|at| values[at]))
    }

    /// A list of texts, each turned into a value; on the command line separated by commas.
    pub(super) fn list<T, E: ToString>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let Some(Item { line, value }) = self.item(name) else { return Vec::new() };
        let items = match value {
            Value::List(items) => items,
            Value::Bare(text) => text
                .split(',')
                .filter(|part| !part.is_empty())
                .map(|part| Item { line, value: Value::Bare(part.to_owned()) })
                .collect(),
            other => {
                self.error(
                    name,
                    format!("{} is not a list; write {name} = [\"…\"]", other.describe()),
                );
                return Vec::new();
            }
        };
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let (Value::Text(text) | Value::Bare(text)) = &item.value else {
                let what = item.value.describe();
                self.error_at(item.line, name, format!("{what} is not text; write it in quotes"));
                continue;
            };
            match parse(text) {
                Ok(value) => values.push(value),
                Err(error) => self.error_at(item.line, name, error.to_string()),
            }
        }
        values
    }
}

/// The sections under `name` of a table.
pub(super) fn tables<'a>(
    report: &Report,
    table: &'a Table,
    name: &str,
    key: &str,
    header: &str,
) -> Vec<&'a Table> {
    let Some(entry) = table.get(name) else { return Vec::new() };
    let wrong = |line, value: &Value| {
        report.error(
            line,
            key,
            format!("{} where sections are expected; write {header}", value.describe()),
        );
    };
    match &entry.item.value {
        Value::List(items) => items
            .iter()
            .filter_map(|item| match &item.value {
                Value::Table(table) => Some(table),
                other => {
                    wrong(item.line, other);
                    None
                }
            })
            .collect(),
        other => {
            wrong(entry.line, other);
            Vec::new()
        }
    }
}

/// The place of `text` in `words`, or a message that names the nearest.
pub(super) fn choose(text: &str, words: &[&str]) -> Result<usize, String> {
    words.iter().position(|word| *word == text).ok_or_else(|| {
        let all = words.join(", ");
        match nearest(text, words.iter().copied()) {
            Some(word) => format!("it is one of {all}; did you mean {word}?"),
            None => format!("it is one of {all}"),
        }
    })
}

fn in_range<T: PartialOrd + Copy>(
    value: T,
    min: T,
    max: T,
    shown: impl Fn(T) -> String,
) -> Result<T, String> {
    if value < min {
        return Err(format!("it is below the minimum of {}", shown(min)));
    }
    if value > max {
        return Err(format!("it is above the maximum of {}", shown(max)));
    }
    Ok(value)
}
