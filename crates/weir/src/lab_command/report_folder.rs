//! Where a report goes, and how its command is told.

use crate::exit::Failure;
use anyhow::Context;
use lab::report::ReportError;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of a report, made before the runs: minutes of measuring must not end at a folder that cannot be written. Removed
/// again if it was made for nothing.
pub(super) struct Folder {
    path: PathBuf,
    is_ours: bool,
}

impl Folder {
    /// Makes the folder that was asked for, or one with the experiment's name and the date.
    ///
    /// # Errors
    /// It cannot be made or written to.
    pub(super) fn make(
        asked: Option<&Path>,
        name: &str,
        began_unix_ns: u64,
    ) -> anyhow::Result<Folder> {
        let path = asked.map_or_else(
            || {
                let date = text::date(began_unix_ns);
                let date = date.trim_end_matches(" UTC").replace(':', "").replace(' ', "-");
                PathBuf::from(format!("{name}-{date}"))
            },
            Path::to_owned,
        );
        let is_ours = !path.exists();
        fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        let test = path.join(".weir-lab-writes-here");
        fs::write(&test, "")
            .and_then(|()| fs::remove_file(&test))
            .with_context(|| format!("cannot write to the folder {}", path.display()))?;
        Ok(Folder { path, is_ours })
    }

    /// Keeps it from here on, and says where it is.
    pub(super) fn keep(&mut self) -> &Path {
        self.is_ours = false;
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_ours {
            // Empty, if it is still ours.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// The command as one can paste it into a shell.
pub(super) fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
    std::iter::once("weir".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=%+@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A report that could not be written.
pub(super) fn report_error(error: ReportError) -> anyhow::Error {
    match &error {
        ReportError::Write { path, source } => {
            let text = format!("cannot write {}: {source}", path.display());
            Failure::Io.error(text)
        }
        ReportError::Chart { .. } => anyhow::Error::new(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("0,5.5"), "0,5.5");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
