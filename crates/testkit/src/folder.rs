//! Folders of a test's own.

use crate::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that every user may enter, and that goes with its owner.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes an empty one in the system's folder for temporary files.
    #[expect(clippy::new_without_default, reason = "it makes a folder, which no default should")]
    pub fn new() -> TempDir {
        TempDir::below(&std::env::temp_dir())
    }

    /// Makes an empty one in memory where the system has such a folder, for what is synced more often than a disk can.
    pub fn in_memory() -> TempDir {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { TempDir::below(memory) } else { TempDir::new() }
    }

    fn below(parent: &Path) -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-test-{}-{number}", std::process::id());
        let path = parent.join(name);
        fs::create_dir(&path).unwrap();
        TempDir(path)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The same as text, for command lines.
    pub fn text(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().to_owned()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file system of its own, as large as a test says. It goes with its owner.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts one, in memory; `size` as mount(8) takes it. `None` where that is not allowed.
    pub fn mount(size: &str) -> Option<SmallDisk> {
        let dir = TempDir::new();
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "weir-test"]).arg(dir.path());
        mount.output().is_ok_and(|output| output.status.success()).then(|| SmallDisk(dir))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(self.0.path()));
    }
}
