//! Retention: removes leftovers, and files that are too old or too many. Files of others are not touched.
//!
//! A file is as old as its last change, which is after the last of its rows arrived here. What a row or a name says about time
//! removes no file.

use super::folder::FolderOptions;
use super::name::Names;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};
use sys::clock::Ages;
use text::Civil;

/// Time between two searches for files that are too old.
const AGE_INTERVAL: Duration = Duration::from_secs(60);

/// No file is too old before this age.
const AGE_MIN: Duration = Duration::from_secs(60);

/// Most files removed in one call, so that the sink's thread returns soon.
const REMOVED_AT_ONCE: usize = 64;

/// Keeps a folder within its size and age.
pub(super) struct Keeper {
    folder: PathBuf,
    names: Names,
    keep_age: Option<Duration>,
    keep_bytes: Option<u64>,
    is_looked_at: bool,
    aged_at: Option<Instant>,
    began_at: Instant,
    ages: Ages,
    /// Total size of our own files.
    pub(super) bytes: u64,
    pub(super) removed: u64,
    pub(super) leftovers_removed: u64,
}

impl Keeper {
    pub(super) fn new(options: &FolderOptions, names: Names) -> Keeper {
        Keeper {
            folder: options.folder.clone(),
            names,
            keep_age: options.keep_age,
            keep_bytes: options.keep_bytes,
            is_looked_at: false,
            aged_at: None,
            began_at: Instant::now(),
            ages: Ages::default(),
            bytes: 0,
            removed: 0,
            leftovers_removed: 0,
        }
    }

    /// On the first call, adds up the existing files and removes files that an earlier run left unfinished.
    pub(super) fn look_at_start(&mut self) {
        if std::mem::replace(&mut self.is_looked_at, true) {
            return;
        }
        for partition in self.partitions() {
            for name in sorted(&partition) {
                let path = partition.join(&name);
                if self.names.is_own(&name) {
                    self.bytes += fs::symlink_metadata(&path).map_or(0, |file| file.len());
                } else if self.names.is_own_unfinished(&name) && fs::remove_file(&path).is_ok() {
                    self.leftovers_removed += 1;
                }
            }
        }
    }

    /// A file of this length was added.
    pub(super) fn written(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Removes the oldest files while they are too old or too many.
    pub(super) fn remove_old(&mut self, now_unix_ns: u64) {
        self.ages.note(now_unix_ns, self.began_at.elapsed().as_nanos() as u64);
        self.remove_aged(now_unix_ns);

        for _ in 0..REMOVED_AT_ONCE {
            if self.keep_bytes.is_none_or(|keep| self.bytes <= keep) {
                return;
            }
            let Some(oldest) = self.oldest() else { return };
            if !self.remove(&oldest) {
                return;
            }
        }
    }

    /// Removes files that are too old, if it is time to look.
    fn remove_aged(&mut self, now_unix_ns: u64) {
        let Some(keep_age) = self.keep_age.map(|age| age.max(AGE_MIN)) else { return };
        if self.aged_at.is_some_and(|at| at.elapsed() < AGE_INTERVAL) {
            return;
        }
        self.aged_at = Some(Instant::now());

        // A file is not older than its name says, except after the clock was set back.
        let first_kept = stamp_of(now_unix_ns.saturating_sub(keep_age.as_nanos() as u64));
        let mut removed = 0;
        for file in self.named_before(&first_kept) {
            if self.age_of(&file).is_none_or(|age| age <= keep_age) {
                continue;
            }
            if removed == REMOVED_AT_ONCE {
                // There is more to remove.
                self.aged_at = None;
                return;
            }
            if !self.remove(&file) {
                return;
            }
            removed += 1;
        }
    }

    /// Time since the last change of a file.
    fn age_of(&self, file: &OwnFile) -> Option<Duration> {
        let metadata = fs::symlink_metadata(file.partition.join(&file.name)).ok()?;
        let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(self.ages.age(u64::try_from(changed.as_nanos()).unwrap_or(u64::MAX)))
    }

    fn remove(&mut self, file: &OwnFile) -> bool {
        let path = file.partition.join(&file.name);
        let len = fs::symlink_metadata(&path).map_or(0, |file| file.len());
        if fs::remove_file(&path).is_err() {
            return false;
        }
        self.bytes = self.bytes.saturating_sub(len);
        self.removed += 1;

        // The folders of the hour and the day, if empty; the kernel refuses to remove others.
        let mut folder = Some(file.partition.as_path());
        for _ in 0..2 {
            folder = folder.filter(|folder| fs::remove_dir(folder).is_ok()).and_then(Path::parent);
        }
        true
    }

    /// The oldest file of ours in all tables. Folders and files sort by time.
    fn oldest(&self) -> Option<OwnFile> {
        let tables = sorted_with(&self.folder, "table=");
        let oldest_of = |table: PathBuf| {
            let dates = sorted_with(&table, "date=").into_iter();
            let mut hours = dates.flat_map(|date| sorted_with(&date, "hour="));
            hours.find_map(|partition| {
                let name = sorted(&partition).into_iter().find(|name| self.names.is_own(name))?;
                Some(OwnFile { partition, name })
            })
        };
        tables.into_iter().filter_map(oldest_of).min_by(|a, b| a.name.cmp(&b.name))
    }

    /// Our files whose names sort before this.
    fn named_before(&self, first_kept: &str) -> Vec<OwnFile> {
        let mut found = Vec::new();
        for table in sorted_with(&self.folder, "table=") {
            let dates = sorted_with(&table, "date=").into_iter();
            let hours = dates.flat_map(|date| sorted_with(&date, "hour="));
            let files = hours.flat_map(|partition| {
                let names = sorted(&partition).into_iter().filter(|name| self.names.is_own(name));
                names.map(|name| OwnFile { partition: partition.clone(), name }).collect::<Vec<_>>()
            });
            found.extend(files.take_while(|file| file.name.as_str() < first_kept));
        }
        found
    }

    fn partitions(&self) -> Vec<PathBuf> {
        let tables = sorted_with(&self.folder, "table=").into_iter();
        let dates = tables.flat_map(|table| sorted_with(&table, "date="));
        dates.flat_map(|date| sorted_with(&date, "hour=")).collect()
    }
}

struct OwnFile {
    partition: PathBuf,
    name: String,
}

/// The first part of the name of a file whose oldest row arrived at this time.
fn stamp_of(unix_ns: u64) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = Civil::of(unix_ns);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}")
}

/// The names in a folder, sorted; empty if it cannot be read.
fn sorted(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// The folders in a folder whose names begin with `prefix`.
fn sorted_with(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let names = sorted(folder).into_iter().filter(|name| name.starts_with(prefix));
    names.map(|name| folder.join(name)).collect()
}
