use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Where the cgroup v2 hierarchy can be read, and which part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMount {
    /// The directory: `/sys/fs/cgroup`, or `/sys/fs/cgroup/unified` where version 1 is used beside it.
    pub point: PathBuf,
    /// Path of the mounted directory in the hierarchy, `""` for its root. Put before every path that is found below `point`.
    ///
    /// In a cgroup namespace the kernel names the root of the mount relative to the namespace's: `/../..` is two levels above it.
    /// Those levels have no name here, so the root of such a mount counts as the hierarchy's.
    pub root: String,
}

impl CgroupMount {
    /// The mount that shows most, as `/proc/self/mountinfo` tells; `None` when no cgroup v2 hierarchy is mounted.
    ///
    /// # Errors
    /// Any error of reading that file.
    pub fn find() -> io::Result<Option<CgroupMount>> {
        fs::read("/proc/self/mountinfo").map(|mountinfo| CgroupMount::of_mountinfo(&mountinfo))
    }

    /// The mount that shows most, of the lines of a mountinfo file (proc_pid_mountinfo(5)).
    pub fn of_mountinfo(mountinfo: &[u8]) -> Option<CgroupMount> {
        let mounts = mountinfo.split(|byte| *byte == b'\n').filter_map(mount_of_line);
        // `min_by_key` keeps the first of equals: the mount that is there from boot.
        mounts.min_by_key(|(rank, _)| *rank).map(|(_, mount)| mount)
    }

    /// The path in the hierarchy of a directory below the mount point.
    pub(super) fn path_in_hierarchy<'a>(&self, below: &'a str) -> Cow<'a, str> {
        if self.root.is_empty() {
            Cow::Borrowed(below)
        } else {
            Cow::Owned(format!("{}{below}", self.root))
        }
    }

    /// The directory of a path in the hierarchy; `None` when it lies outside the mount.
    pub(super) fn directory_of(&self, path: &str) -> Option<PathBuf> {
        let below = path.strip_prefix(self.root.as_str())?;
        Some(self.point.join(below.trim_start_matches('/')))
    }
}

/// How much less than everything a mount shows: levels above the namespace's root are best, a part of the hierarchy last.
fn rank(root: &str) -> (usize, usize) {
    let above = root.split('/').filter(|component| *component == "..").count();
    let below = root.split('/').filter(|component| !matches!(*component, "" | "..")).count();
    (below, usize::MAX - above)
}

fn mount_of_line(line: &[u8]) -> Option<((usize, usize), CgroupMount)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let root = fields.nth(3)?;
    let point = fields.next()?;
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    if kind != b"cgroup2" {
        return None;
    }
    let root = String::from_utf8_lossy(&unescape(root)).into_owned();
    let rank = rank(&root);
    let components = root.split('/').filter(|component| !matches!(*component, "" | ".."));
    let root = components.flat_map(|component| ["/", component]).collect();
    Some((rank, CgroupMount { point: PathBuf::from(OsString::from_vec(unescape(point))), root }))
}

/// Undoes the kernel's `\040` for space, tab, newline and backslash (`mangle_path`, fs/seq_file.c).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                Some(((a & 3) << 6 | (b & 7) << 3 | (c & 7), after))
            }
            _ => None,
        };
        let (byte, after) = octal.unwrap_or((*first, tail));
        out.push(byte);
        rest = after;
    }
    out
}
