//! The files of a configuration, and the file and line of each value.

use crate::errors::LoadError;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The source of a configuration: one file, or all files of a folder.
#[derive(Clone, Debug)]
pub struct Sources {
    places: Places,
    /// One for each file of `places`.
    texts: Vec<String>,
}

/// The files of a configuration. Lines are numbered across all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// The file or folder, for messages about the configuration as a whole.
    name: String,
    /// Each file's name, and the number of lines before it.
    files: Vec<(String, usize)>,
}

impl Sources {
    /// A single text, called `name` in messages.
    pub fn of(name: &str, text: &str) -> Sources {
        let mut sources = Sources { places: Places::named(name), texts: Vec::new() };
        sources.add(name, text.to_owned());
        sources
    }

    /// Reads a file, or every file of a folder whose name ends in `.toml` and does not begin with a dot, in the order of their
    /// names. `-` is standard input, which can be read only once.
    ///
    /// # Errors
    /// A file or the folder cannot be read.
    pub fn read(path: &Path) -> Result<Sources, LoadError> {
        if is_standard_input(path) || !path.is_dir() {
            return Ok(Sources::of(&file_name(path), &read_text(path)?));
        }
        let mut sources = Sources { places: Places::named(&file_name(path)), texts: Vec::new() };
        for file in files_in(path)? {
            sources.add(&file_name(&file), read_text(&file)?);
        }
        Ok(sources)
    }

    fn add(&mut self, name: &str, text: String) {
        // A mistake at the end of a text is reported one line after its last.
        let lines = self.texts.last().map_or(0, |text| text.lines().count() + 1);
        let before = self.places.files.last().map_or(0, |(_, before)| before + lines);
        self.places.files.push((name.to_owned(), before));
        self.texts.push(text);
    }

    /// The file or folder, for messages about the configuration as a whole.
    pub fn name(&self) -> &str {
        &self.places.name
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// The text of each file, and the number of lines before it.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, usize)> {
        let before = self.places.files.iter().map(|(_, before)| *before);
        self.texts.iter().map(String::as_str).zip(before)
    }
}

impl Places {
    /// Input without lines.
    pub(crate) fn named(name: &str) -> Places {
        Places { name: name.to_owned(), files: Vec::new() }
    }

    /// The file of a line, and the line's number in it.
    pub(crate) fn find(&self, line: Option<usize>) -> (&str, Option<usize>) {
        let file = line.and_then(|line| {
            let until = self.files.partition_point(|(_, before)| *before < line);
            self.files[..until].last().map(|(name, before)| (name.as_str(), Some(line - before)))
        });
        file.unwrap_or((&self.name, None))
    }

    /// The same as text: `weir.toml:3`.
    pub(crate) fn words(&self, line: Option<usize>) -> String {
        match self.find(line) {
            (file, Some(line)) => format!("{file}:{line}"),
            (file, None) => file.to_owned(),
        }
    }
}

fn read_text(path: &Path) -> Result<String, LoadError> {
    let text = match is_standard_input(path) {
        true => bounded(io::stdin().lock()),
        false => fs::File::open(path).and_then(bounded),
    };
    text.map_err(|error| LoadError::Read { path: path.to_owned(), error })
}

/// Longest configuration, in bytes: far above any real one; it bounds endless input such as /dev/urandom.
const FILE_BYTES_MAX: u64 = 16 << 20;

fn bounded(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    let bytes = source.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match bytes as u64 > FILE_BYTES_MAX {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    }
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let unread = |error| LoadError::Read { path: folder.to_owned(), error };
    let entries = fs::read_dir(folder).map_err(unread)?.collect::<io::Result<Vec<_>>>();
    let mut files: Vec<PathBuf> = entries.map_err(unread)?.iter().map(fs::DirEntry::path).collect();
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.ends_with(b".toml") && !name.starts_with(b".")
    });
    files.sort();
    Ok(files)
}

/// Whether a path stands for standard input.
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// The name of a file in messages.
pub fn file_name(path: &Path) -> String {
    match is_standard_input(path) {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_through_all_files() {
        let mut sources = Sources { places: Places::named("conf.d"), texts: Vec::new() };
        sources.add("a", "1\n2\n".to_owned());
        sources.add("b", String::new());
        sources.add("c", "1".to_owned());
        let before: Vec<usize> = sources.texts().map(|(_, before)| before).collect();
        let place = |line| sources.places.find(line);
        assert_eq!(place(None), ("conf.d", None));
        assert_eq!(place(Some(1)), ("a", Some(1)));
        // A mistake at the end of a text is one line after the last.
        assert_eq!(place(Some(before[0] + 3)), ("a", Some(3)));
        assert_eq!(place(Some(before[1] + 1)), ("b", Some(1)));
        assert_eq!(place(Some(before[2] + 1)), ("c", Some(1)));
    }
}
