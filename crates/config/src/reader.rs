//! Reads one section key by key. Every mistake is collected, and reading goes on with the next key.

use crate::document::{Borrowed, Entry, Table, Value};
use crate::errors::{ConfigError, nearest};
use crate::form::{Form, Slot};
use crate::keys::{Key, SECTIONS, Section};
use crate::source::Places;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// The result of reading a configuration: mistakes and keys.
pub(crate) struct Report {
    places: Places,
    /// Each with its line, counted across all files.
    errors: RefCell<Vec<(Option<usize>, ConfigError)>>,
    found: RefCell<BTreeMap<String, Found>>,
}

/// A key that is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Counted across all files.
    pub(crate) line: Option<usize>,
    pub(crate) borrowed: Option<Borrowed>,
}

impl Report {
    /// For input without lines.
    pub(crate) fn new(origin: &str) -> Report {
        Report::of(Places::named(origin))
    }

    /// For files.
    pub(crate) fn of(places: Places) -> Report {
        Report { places, errors: RefCell::default(), found: RefCell::default() }
    }

    pub(crate) fn error(&self, line: Option<usize>, key: &str, message: impl Into<String>) {
        let (origin, line_there) = self.places.find(line);
        let error = ConfigError {
            origin: origin.to_owned(),
            line: line_there,
            key: key.to_owned(),
            message: message.into(),
        };
        self.errors.borrow_mut().push((line, error));
    }

    /// The file and line, in words.
    pub(crate) fn words(&self, line: Option<usize>) -> String {
        self.places.words(line)
    }

    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.borrow().is_empty()
    }

    pub(crate) fn add(&self, errors: Vec<ConfigError>) {
        self.errors.borrow_mut().extend(errors.into_iter().map(|error| (None, error)));
    }

    /// The line of a key; `place` is its section, such as `listener[0].target[1]`.
    fn line_of(&self, place: &str, key: &Key) -> Option<usize> {
        self.found.borrow().get(&format!("{place}.{}", key.name)).and_then(|found| found.line)
    }

    /// All mistakes in the order of the files, and all keys that are present.
    pub(crate) fn into_parts(self) -> (Vec<ConfigError>, BTreeMap<String, Found>) {
        let mut errors = self.errors.into_inner();
        errors.sort_by_key(|(line, _)| line.unwrap_or(usize::MAX));
        let mut errors: Vec<_> = errors.into_iter().map(|(_, error)| error).collect();
        // The targets of `weir relay` belong to every listener; a mistake in one is reported once.
        let mut seen = BTreeSet::new();
        errors.retain(|error| seen.insert((error.line, error.to_string())));
        (errors, self.found.into_inner())
    }
}

/// A value that was read, and its section, such as `listener[0].target[1]`.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) place: String,
    pub(crate) thing: T,
}

impl<T> Placed<T> {
    /// Reports a mistake that shows only in comparison with other sections.
    pub(crate) fn error(&self, report: &Report, key: &Key, message: impl Into<String>) {
        report.error(report.line_of(&self.place, key), &key.path(), message);
    }

    /// Reports a mistake in a name; `address` is the key that the name is derived from when it is not set.
    pub(crate) fn name_error(&self, report: &Report, (name, address): (&Key, &Key), message: &str) {
        let line = report.line_of(&self.place, name);
        let line = line.or_else(|| report.line_of(&self.place, address));
        report.error(line, &name.path(), message);
    }
}

/// One section of the document.
///
/// Readers are shared and keep their notes in cells: the form of one key, such as `to`, reads the keys of its kind while the
/// keys common to all kinds are still being read.
pub(crate) struct Reader<'a> {
    report: &'a Report,
    table: &'a Table,
    section: &'static Section,
    /// Keys read so far.
    asked: RefCell<BTreeSet<&'static str>>,
    /// Whether a value was wrong, so that nothing can be said about keys that depend on it.
    has_failed: Cell<bool>,
}

/// Stands in for a missing section.
static NOTHING: Table = Table { line: None, entries: Vec::new() };

impl<'a> Reader<'a> {
    /// Opens a section that appears at most once in the document. A missing one has no keys.
    pub(crate) fn of_document(
        report: &'a Report,
        document: &'a Table,
        section: &'static Section,
    ) -> Reader<'a> {
        let table = single(report, document, section.path, (section.path, section.header));
        Reader::open(report, table.unwrap_or(&NOTHING), section, section.path)
    }

    /// Opens a section. Unknown keys are mistakes.
    pub(crate) fn open(
        report: &'a Report,
        table: &'a Table,
        section: &'static Section,
        place: &str,
    ) -> Reader<'a> {
        let reader = Reader {
            report,
            table,
            section,
            asked: RefCell::default(),
            has_failed: Cell::default(),
        };

        for entry in &table.entries {
            if section.has(&entry.key) {
                let name = format!("{place}.{}", entry.key);
                let found = Found { line: entry.line, borrowed: entry.borrowed.clone() };
                report.found.borrow_mut().insert(name, found);
            } else if !section.subsections.contains(&entry.key.as_str()) {
                reader.unknown(entry);
            }
        }

        reader
    }

    fn unknown(&self, entry: &Entry) {
        let mut names: Vec<_> = self.section.keys().map(|key| key.name).collect();
        names.extend(self.section.subsections);
        // A correctly spelled key in the wrong section is likelier than a misspelled one.
        let elsewhere = SECTIONS.iter().find(|section| section.has(&entry.key));
        let hint = match (nearest(&entry.key, names.iter().copied()), elsewhere) {
            (_, Some(section)) => format!("move it to {}", section.header),
            (Some(name), None) => format!("did you mean {}?", self.written(name)),
            (None, None) => {
                let names: Vec<_> = names.iter().map(|name| self.written(name)).collect();
                format!("remove it; the keys are {}", names.join(", "))
            }
        };
        let (path, header) = (self.section.path, self.section.header);
        let message = format!("unknown key in {header}. Fix: {hint}");
        self.report.error(entry.line, &format!("{path}.{}", entry.key), message);
    }

    /// A key's name, or the header of the subsection of that name.
    fn written<'n>(&self, name: &'n str) -> &'n str {
        if !self.section.subsections.contains(&name) {
            return name;
        }
        let inner = format!("{}.{name}", self.section.path);
        let opened = SECTIONS.iter().find(|section| section.path == inner || section.path == name);
        opened.map_or(name, |section| section.header)
    }

    pub(crate) fn has(&self, key: &Key) -> bool {
        self.table.get(key.name).is_some()
    }

    /// Whether the value is an empty list.
    pub(crate) fn is_empty_list(&self, key: &Key) -> bool {
        matches!(self.table.get(key.name).map(|entry| &entry.item.value),
            Some(Value::List(items)) if items.is_empty())
    }

    /// Reports a mistake at the line of the key, or of the section if the key is missing.
    pub(crate) fn error(&self, key: &Key, message: impl Into<String>) {
        let line = self.table.get(key.name).map_or(self.table.line, |entry| entry.line);
        self.error_at(line, key, message);
    }

    pub(crate) fn error_at(&self, line: Option<usize>, key: &Key, message: impl Into<String>) {
        self.report.error(line, &key.path(), message);
    }

    /// The value of a key; `None` if it is missing, or wrong, which is reported.
    pub(crate) fn value<F: Form>(&self, key: &Key, form: &F) -> Option<F::Value> {
        self.asked.borrow_mut().insert(key.name);
        let entry = self.table.get(key.name)?;
        let slot = Slot { reader: self, key, line: entry.line, value: &entry.item.value };
        let value = form.read(&slot);
        self.has_failed.set(self.has_failed.get() || value.is_none());
        value
    }

    /// The value of a required key. `cure` says what to write if it is missing.
    pub(crate) fn required<F: Form>(
        &self,
        key: &Key,
        form: &F,
        cure: Option<&str>,
    ) -> Option<F::Value> {
        if !self.has(key) {
            let usual = || format!("write {} = {} ({})", key.name, form.example(), form.describe());
            let cure = cure.map_or_else(usual, str::to_owned);
            self.error(key, format!("it is missing. Fix: {cure}"));
            self.has_failed.set(true);
        }
        self.value(key, form)
    }

    /// Like `required`, for a key whose value is one of several kinds with keys of their own.
    pub(crate) fn chosen<F: Form>(
        &self,
        key: &Key,
        form: &F,
        cure: Option<&str>,
    ) -> Option<F::Value> {
        let value = self.required(key, form, cure);
        if value.is_none() {
            // The kind is unknown: read the keys of every kind only for their mistakes.
            self.section.tables.iter().skip(1).for_each(|table| (table.check)(self));
        }
        value
    }

    /// Refuses a key that has no effect. Says nothing if some value could not be read, since the key might have an effect with
    /// it.
    pub(crate) fn needs(&self, key: &Key, is_useful: bool, message: &str) {
        if self.has(key) && !is_useful && !self.has_failed.get() {
            self.error(key, message);
        }
    }

    /// Refuses keys of other kinds; `this` is the kind that was read. `reason` explains why some of them make no sense.
    pub(crate) fn refuse_others(
        &self,
        this: &impl Display,
        reason: impl Fn(&str) -> Option<&'static str>,
    ) {
        // A key that the section knows and that no form read belongs to another kind.
        let asked = self.asked.borrow();
        let is_other =
            |entry: &&Entry| self.section.has(&entry.key) && !asked.contains(entry.key.as_str());

        for entry in self.table.entries.iter().filter(is_other) {
            let kinds = self.section.tables.iter();
            let kinds = kinds.filter(|table| table.keys.iter().any(|key| key.name == entry.key));
            let kinds: Vec<_> = kinds.map(|table| table.of).collect();

            let why = reason(&entry.key).map_or_else(
                || format!("it is for {} only and this one is {this}", kinds.join(" and ")),
                str::to_owned,
            );
            let path = format!("{}.{}", self.section.path, entry.key);
            self.report.error(entry.line, &path, format!("{why}. Fix: remove the key"));
        }
    }
}

/// The sections `name` of a table, which may repeat.
pub(crate) fn repeated<'a>(
    report: &Report,
    parent: &'a Table,
    name: &str,
    section: &Section,
) -> Vec<&'a Table> {
    let Some(entry) = parent.get(name) else { return Vec::new() };
    let wrong = |line, value: &Value| {
        let (what, header) = (value.describe(), section.header);
        let message =
            format!("{what} stands where a list of sections is expected. Fix: write {header}");
        report.error(line, section.path, message);
    };

    let Value::List(items) = &entry.item.value else {
        wrong(entry.line, &entry.item.value);
        return Vec::new();
    };

    let mut tables = Vec::with_capacity(items.len());
    for item in items {
        match &item.value {
            Value::Table(table) => tables.push(table),
            other => wrong(item.line, other),
        }
    }
    tables
}

/// The section `name` of a table, which appears at most once.
pub(crate) fn single<'a>(
    report: &Report,
    parent: &'a Table,
    name: &str,
    (path, header): (&str, &str),
) -> Option<&'a Table> {
    let entry = parent.get(name)?;
    if let Value::Table(table) = &entry.item.value {
        return Some(table);
    }
    let what = entry.item.value.describe();
    report.error(
        entry.line,
        path,
        format!("{what} stands where a section is expected. Fix: write {header}"),
    );
    None
}

/// Reports everything in a table other than the sections `known`, whose names begin with `within`.
pub(crate) fn unknown_sections(report: &Report, table: &Table, known: &[&str], within: &str) {
    for entry in table.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
        let name = format!("{within}{}", entry.key);
        let owner = SECTIONS.iter().find(|section| section.has(&entry.key));
        let inner = SECTIONS.iter().find(|section| {
            section.path.rsplit_once('.').is_some_and(|(_, last)| last == entry.key)
        });
        let hint = match (nearest(&entry.key, known.iter().copied()), owner) {
            _ if inner.is_some() => format!("write {}", inner.map_or("", |inner| inner.header)),
            (Some(near), _) => format!("did you mean {within}{near}?"),
            (None, Some(section)) => format!("move it to {}", section.header),
            (None, None) => format!("remove it; the sections are {}", known.join(", ")),
        };
        report.error(entry.line, &name, format!("unknown section or key. Fix: {hint}"));
    }
}
