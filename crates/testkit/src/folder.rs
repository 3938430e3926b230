//! Temporary directories for tests.

use crate::{find_tool, run};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that every user may enter, and that is removed with this value.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates an empty one in the system's temporary directory.
    #[expect(clippy::new_without_default, reason = "it makes a folder, which no default should")]
    pub fn new() -> TempDir {
        TempDir::below(&std::env::temp_dir())
    }

    /// Creates an empty one in memory, if the system has such a directory, for data that is synced more often than a
    /// disk can handle.
    pub fn in_memory() -> TempDir {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { TempDir::below(memory) } else { TempDir::new() }
    }

    fn below(parent: &Path) -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("weir-test-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return TempDir(path),
                // A process that had this id before was killed and could not remove it.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// The directory itself.
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
        // If it cannot be removed, it stays in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file system of its own with a size chosen by the test. Unmounted with this value.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts one in memory; `size` in the syntax of mount(8). `None` if that is not permitted.
    pub fn mount(size: &str) -> Option<SmallDisk> {
        let dir = TempDir::new();
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "weir-test"]).arg(dir.path());
        succeeds(&mut mount).then(|| SmallDisk(dir))
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

/// A file system on a device whose writes can be made to fail with `EIO`. Unmounted with this value.
pub struct FailingDisk {
    dir: TempDir,
    device: TempDir,
}

impl FailingDisk {
    /// Mounts one; `None` if that is not permitted, or if files cannot be made immutable here.
    pub fn mount() -> Option<FailingDisk> {
        let disk = FailingDisk { dir: TempDir::new(), device: TempDir::new() };
        let (image, make) = (disk.image(), find_tool("mkfs.ext4")?);
        // Without a journal: the first failed write would make a file system with one read-only.
        let is_made = succeeds(Command::new("truncate").args(["-s", "64m"]).arg(&image))
            && succeeds(Command::new(make).args(["-q", "-O", "^has_journal"]).arg(&image))
            && succeeds(Command::new("chattr").arg("+i").arg(&image))
            && succeeds(Command::new("chattr").arg("-i").arg(&image));
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop,errors=continue"]).arg(&image).arg(disk.path());
        (is_made && succeeds(&mut mount)).then_some(disk)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// From now on, writes to the device fail.
    pub fn fail(&self) {
        // The device may not write to a file that has become immutable: the kernel makes EIO of that.
        run(Command::new("chattr").arg("+i").arg(self.image()));
    }

    /// From now on, they succeed.
    pub fn heal(&self) {
        run(Command::new("chattr").arg("-i").arg(self.image()));
    }

    fn image(&self) -> PathBuf {
        self.device.file("image")
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        // It may be neither immutable nor mounted.
        succeeds(Command::new("chattr").arg("-i").arg(self.image()));
        succeeds(Command::new("umount").arg("--lazy").arg(self.path()));
    }
}

/// A file system whose power can be cut. Unmounted with this value.
pub struct PowerDisk {
    dir: TempDir,
    device: TempDir,
}

impl PowerDisk {
    /// Mounts one; `None` if that is not permitted.
    pub fn mount() -> Option<PowerDisk> {
        let make = find_tool("mkfs.ext4")?;
        let disk = PowerDisk { dir: TempDir::new(), device: TempDir::new() };
        let image = disk.image();
        let is_made = succeeds(Command::new("truncate").args(["-s", "64m"]).arg(&image))
            && succeeds(Command::new(make).arg("-q").arg(&image));
        (is_made && disk.mount_image()).then_some(disk)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The disk as it is after the power was cut now: with what the device has been given, which is what was synced, and without
    /// what is only in the system's memory. Nothing may be writing to the disk meanwhile.
    ///
    /// # Panics
    /// The image cannot be copied or mounted.
    pub fn cut(&self) -> PowerDisk {
        let after = PowerDisk { dir: TempDir::new(), device: TempDir::new() };
        run(Command::new("cp").arg("--sparse=always").arg(self.image()).arg(after.image()));
        assert!(after.mount_image(), "the disk cannot be mounted again");
        after
    }

    fn mount_image(&self) -> bool {
        let mut mount = Command::new("mount");
        succeeds(mount.args(["-o", "loop"]).arg(self.image()).arg(self.path()))
    }

    fn image(&self) -> PathBuf {
        self.device.file("image")
    }
}

impl Drop for PowerDisk {
    fn drop(&mut self) {
        // It may not be mounted.
        succeeds(Command::new("umount").arg("--lazy").arg(self.path()));
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
