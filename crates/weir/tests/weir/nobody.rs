//! The program as a user without any capability.

use crate::support::WEIR;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Output};
use testkit::{TempDir, find_tool, need_root, need_tool, run};

/// The user and group that own nothing.
pub(crate) const NOBODY: u32 = 65_534;

/// A folder that belongs to nobody, with a copy of the binary: the original may lie where only root may look.
pub(crate) struct Nobody {
    pub(crate) dir: TempDir,
}

impl Nobody {
    /// `None`, with the reason printed, where this process cannot become another user.
    pub(crate) fn new() -> Option<Nobody> {
        if !need_root("becoming another user") || !need_tool("setpriv") {
            return None;
        }
        let dir = TempDir::new();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // Not by this process: another test's child would hold the copy open for writing, and it could not be run.
        run(Command::new("cp").arg(WEIR).arg(dir.file("weir")));
        fs::create_dir(dir.file("work")).unwrap();
        chown(dir.file("work"), Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Nobody { dir })
    }

    /// Turns a command that begins with `weir`'s arguments into one of nobody's, without any capability.
    pub(crate) fn weir(&self, mut outer: Command) -> Command {
        outer.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
        outer.args(["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--"]);
        outer.arg(self.dir.file("weir")).current_dir(self.work()).env_clear();
        outer
    }

    pub(crate) fn here(&self) -> Command {
        self.weir(Command::new(find_tool("setpriv").unwrap()))
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.file("work")
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.here().args(args).output().unwrap()
    }
}
