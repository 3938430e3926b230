use std::path::{Path, PathBuf};
use std::{fs, io};
use text::date;

/// The directory of a report. It is created before the runs, so that minutes of measuring are not lost because of a directory
/// that cannot be written. It is removed if it is not used.
pub struct Folder {
    path: PathBuf,
    is_ours: bool,
}

impl Folder {
    /// Creates the requested directory, or one named after the experiment and the date.
    ///
    /// # Errors
    /// The directory cannot be created or written to.
    pub fn make(asked: Option<&Path>, name: &str, began_unix_ns: u64) -> io::Result<Folder> {
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
