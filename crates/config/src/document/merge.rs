//! Several files as one document.

use super::{Entry, Item, Table, Value};
use crate::reader::Report;

impl Table {
    /// Adds another file. Repeatable sections are appended, and a section that appears once may get keys from each file. A key
    /// set in two files is reported.
    pub(crate) fn add(&mut self, other: Table, path: &str, report: &Report) {
        for entry in other.entries {
            let path = super::below(path, &entry.key);
            match self.entries.iter_mut().find(|ours| ours.key == entry.key) {
                None => self.entries.push(entry),
                Some(ours) => ours.join(entry, &path, report),
            }
        }
    }
}

impl Entry {
    fn join(&mut self, other: Entry, path: &str, report: &Report) {
        match (&mut self.item.value, other.item.value) {
            (Value::Table(ours), Value::Table(theirs)) => ours.add(theirs, path, report),
            (Value::List(ours), Value::List(theirs))
                if are_sections(ours) && are_sections(&theirs) =>
            {
                ours.extend(theirs);
            }
            (Value::List(_), Value::Table(_)) | (Value::Table(_), Value::List(_)) => {
                let earlier = report.words(self.line);
                let message = format!(
                    "it is written in another way at {earlier}; a section such as [[listener.target]] stands in the file of its [[listener]]"
                );
                report.error(other.line, path, message);
            }
            _ => {
                let message =
                    format!("it is set at {} already. Fix: keep one", report.words(self.line));
                report.error(other.line, path, message);
            }
        }
    }
}

fn are_sections(items: &[Item]) -> bool {
    items.iter().all(|item| matches!(item.value, Value::Table(_)))
}
