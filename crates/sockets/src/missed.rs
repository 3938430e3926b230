//! Counts namespaces that came and went between two searches.

use crate::access::{Found, Scope};
use std::collections::HashMap;
use sys::namespace::{FileChange, FileChanges};

/// Maximum number of names remembered beyond those that the last search found.
const NAMES_MAX: usize = 65_536;

/// Counts the mounted namespaces that no search has found, by the files that they were mounted on.
#[derive(Default, Debug)]
pub(crate) struct Missed {
    files: Option<FileChanges>,
    /// Existing files, and whether a search has found the namespace.
    seen: HashMap<String, bool>,
}

impl Missed {
    /// Starts watching. If that is not possible, nothing is counted.
    pub(crate) fn new() -> Missed {
        Missed { files: FileChanges::open().ok(), seen: HashMap::new() }
    }

    /// Number of namespaces in the scope that are gone without any search having found them, since the last call. Call it before
    /// a search: the results of the search must be recorded after what came before it.
    pub(crate) fn count(&mut self, scope: &Scope) -> u64 {
        let Some(files) = &mut self.files else { return 0 };
        files.watch();
        let (seen, mut missed) = (&mut self.seen, 0);
        files.drain(|change| missed += u64::from(follow(seen, scope, change)));
        missed
    }

    /// Records the results of a search.
    pub(crate) fn note(&mut self, found: &[Found]) {
        for name in found.iter().filter_map(|found| found.name.as_ref()) {
            match self.seen.get_mut(name) {
                Some(is_seen) => *is_seen = true,
                None if self.files.is_some() => _ = self.seen.insert(name.clone(), true),
                None => {}
            }
        }

        // All names are forgotten at once; namespaces that end before the next search are then not counted.
        if self.seen.len() > NAMES_MAX + found.len() {
            self.seen.clear();
        }
    }
}

/// Whether the change is the end of a namespace that no search has found.
fn follow(seen: &mut HashMap<String, bool>, scope: &Scope, change: FileChange<'_>) -> bool {
    let name = match change {
        FileChange::Created(name) | FileChange::Deleted(name) => String::from_utf8_lossy(name),
        FileChange::Lost => {
            seen.clear();
            return false;
        }
    };

    if let Scope::Named(names) = scope
        && !names.iter().any(|wanted| *wanted == name)
    {
        return false;
    }

    match change {
        // A search may have found it before its file's creation was read.
        FileChange::Created(_) => {
            seen.entry(name.into_owned()).or_insert(false);
            false
        }
        _ => seen.remove(&*name) == Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::namespace::Identity;

    fn found(name: &str) -> Found {
        let id = Identity { device: 4, inode: 1 };
        Found { id, name: Some(name.to_owned()), process: None }
    }

    #[test]
    fn one_that_no_look_has_found_is_missed_and_any_other_is_not() {
        use FileChange::{Created, Deleted, Lost};
        let mut missed = Missed { files: FileChanges::open().ok(), ..Missed::default() };
        let all = Scope::All;
        let follows = |missed: &mut Missed, changes: &[FileChange<'_>]| {
            changes.iter().filter(|change| follow(&mut missed.seen, &all, **change)).count()
        };
        assert_eq!(follows(&mut missed, &[Created(b"a"), Deleted(b"a")]), 1);
        assert_eq!(follows(&mut missed, &[Deleted(b"older")]), 0, "it was there before");
        assert_eq!(follows(&mut missed, &[Created(b"b")]), 0);
        missed.note(&[found("b"), found("c")]);
        assert_eq!(follows(&mut missed, &[Created(b"c")]), 0, "a look was quicker");
        assert_eq!(follows(&mut missed, &[Deleted(b"b"), Deleted(b"c")]), 0);
        assert_eq!(
            follows(&mut missed, &[Created(b"b"), Deleted(b"b")]),
            1,
            "another of that name"
        );
        assert_eq!(follows(&mut missed, &[Created(b"d"), Lost, Deleted(b"d")]), 0);
        let named = Scope::Named(vec!["e".to_owned()]);
        for (name, is_missed) in [(b"e", true), (b"f", false)] {
            assert!(!follow(&mut missed.seen, &named, Created(name)));
            assert_eq!(follow(&mut missed.seen, &named, Deleted(name)), is_missed);
        }
        assert!(missed.seen.is_empty());
    }
}
