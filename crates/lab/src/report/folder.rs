use std::path::{Path, PathBuf};
use std::{fs, io};
use text::date;

/// The directory of a report. It is created before the runs, so that minutes of measuring are not lost because of a directory
/// that cannot be written. It is removed if it is not used.
pub struct Folder {
    path: PathBuf,
    is_ours: bool,
}

/// The page that every report has.
pub(super) const REPORT: &str = "report.html";

/// What becomes of the report of an earlier run in the same folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Earlier {
    Stays,
    IsReplaced,
}

impl Folder {
    /// Creates the requested directory, or one named after the experiment and the date.
    ///
    /// # Errors
    /// It cannot be made or written to, or has a report that is to stay (`AlreadyExists`).
    pub fn make(
        asked: Option<&Path>,
        earlier: Earlier,
        name: &str,
        began_unix_ns: u64,
    ) -> io::Result<Folder> {
        let path = asked.map_or_else(
            || {
                let date = date(began_unix_ns);
                let date = date.trim_end_matches(" UTC").replace(':', "").replace(' ', "-");
                PathBuf::from(format!("{name}-{date}"))
            },
            Path::to_owned,
        );
        let is_ours = !path.exists();
        let failed = |call: &str, source: io::Error| {
            let text = format!("cannot {call} the folder {}: {source}", path.display());
            io::Error::new(source.kind(), text)
        };
        if earlier == Earlier::Stays && path.join(REPORT).exists() {
            let text = format!("{} has the report of an earlier run", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        fs::create_dir_all(&path).map_err(|source| failed("make", source))?;

        let test = path.join(".weir-lab-writes-here");
        fs::write(&test, "")
            .and_then(|()| fs::remove_file(&test))
            .map_err(|source| failed("write to", source))?;
        Ok(Folder { path, is_ours })
    }

    /// Keeps the directory from now on, and returns its path.
    pub fn keep(&mut self) -> &Path {
        self.is_ours = false;
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_ours {
            // It is still empty, since nothing has been written.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_report_is_replaced_only_if_that_is_asked_for() {
        let dir = testkit::TempDir::new();
        let make = |earlier| Folder::make(Some(dir.path()), earlier, "lab", 0);
        assert!(make(Earlier::Stays).is_ok(), "a folder without a report");

        fs::write(dir.file(REPORT), "an hour's work").unwrap();
        let refused = make(Earlier::Stays).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert!(make(Earlier::IsReplaced).is_ok());
        assert_eq!(fs::read(dir.file(REPORT)).unwrap(), b"an hour's work");
    }
}
