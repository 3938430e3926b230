use std::fs::{self, DirEntry};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Limits of one walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalkLimits {
    pub(super) directories: usize,
    pub(super) time: Duration,
}

/// One visit of every directory in a hierarchy.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    point: &'a Path,
    deadline: Instant,
    left: usize,
    cut: bool,
    /// Directories still to read, as paths below the mount point that start with a slash.
    waiting: Vec<String>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(point: &'a Path, limits: WalkLimits) -> Walk<'a> {
        let deadline = Instant::now() + limits.time;
        Walk { point, deadline, left: limits.directories, cut: false, waiting: Vec::new() }
    }

    /// Calls `visit` with the id and path of every directory. Skips those that vanish meanwhile.
    pub(super) fn run(mut self, mut visit: impl FnMut(u64, &str)) -> Walk<'a> {
        if let Ok(id) = sys::cgroup::id_of(self.point) {
            visit(id, "/");
            self.waiting.push(String::new());
        }

        while let Some(directory) = self.waiting.pop() {
            if self.left == 0 || Instant::now() >= self.deadline {
                self.cut = true;
                break;
            }
            self.read(&directory, &mut visit);
        }

        self
    }

    /// Whether a limit ended the walk.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    fn read(&mut self, directory: &str, visit: &mut impl FnMut(u64, &str)) {
        let path = self.point.join(directory.trim_start_matches('/'));
        let Ok(entries) = fs::read_dir(path) else { return };

        for entry in entries.flatten().filter(is_directory) {
            if self.left == 0 {
                self.cut = true;
                return;
            }
            self.left -= 1;

            let below = format!("{directory}/{}", entry.file_name().to_string_lossy());
            visit(entry.ino(), &below);
            if !is_leaf(&entry) {
                self.waiting.push(below);
            }
        }
    }
}

fn is_directory(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

/// Whether the directory has no subdirectories: kernfs counts them in the link count (`kernfs_refresh_inode`, fs/kernfs/inode.c).
/// This is cheaper than reading the fifty or so files of a cgroup.
fn is_leaf(entry: &DirEntry) -> bool {
    entry.metadata().is_ok_and(|meta| meta.nlink() == 2)
}
