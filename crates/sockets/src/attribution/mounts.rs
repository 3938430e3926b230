use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where the cgroup v2 hierarchy is mounted, and which part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMount {
    /// The mount point: `/sys/fs/cgroup`, or `/sys/fs/cgroup/unified` if version 1 is in use as well.
    pub point: PathBuf,
    /// Path of the mounted directory in the hierarchy; `""` for its root. Prepended to every path found below `point`.
    ///
    /// In a cgroup namespace the kernel reports the root of the mount relative to the namespace's: `/../..` is two levels above
    /// it. Those levels have no name here, so the root of such a mount counts as the hierarchy's.
    pub root: String,
}

impl CgroupMount {
    /// The mount that shows most, according to `/proc/self/mountinfo`. `None` when no cgroup v2 hierarchy is mounted.
    ///
    /// # Errors
    /// Any error from reading that file.
    pub fn find() -> io::Result<Option<CgroupMount>> {
        fs::read("/proc/self/mountinfo").map(|mountinfo| CgroupMount::of_mountinfo(&mountinfo))
    }

    /// The mount that shows most, from the lines of a mountinfo file (proc_pid_mountinfo(5)).
    pub fn of_mountinfo(mountinfo: &[u8]) -> Option<CgroupMount> {
        let mounts = mountinfo.split(|byte| *byte == b'\n').filter_map(mount_of_line);
        // `min_by_key` keeps the first of equals: the mount made at boot.
        mounts.min_by_key(|(rank, _)| *rank).map(|(_, mount)| mount)
    }

    /// The path in the hierarchy for a path below the mount point. Both start with a slash.
    pub(super) fn path_in_hierarchy<'a>(&self, below: &'a str) -> Cow<'a, str> {
        match (self.root.as_str(), below) {
            ("", below) => Cow::Borrowed(below),
            (root, "/") => Cow::Owned(root.to_owned()),
            (root, below) => Cow::Owned(format!("{root}{below}")),
        }
    }

    /// The path in the hierarchy for a directory below the mount point, given as a full path.
    pub(super) fn path_of(&self, directory: &Path) -> String {
        let below = directory.strip_prefix(&self.point).unwrap_or(directory).to_string_lossy();
        self.path_in_hierarchy(&format!("/{below}")).into_owned()
    }
}

/// Ranks what a mount shows, best first: mounts that reach furthest above the namespace's root are best, mounts of a part of the
/// hierarchy last.
fn rank(root: &str) -> (usize, usize) {
    let above = root.split('/').filter(|component| *component == "..").count();
    let below = root.split('/').filter(|component| !matches!(*component, "" | "..")).count();
    (below, usize::MAX - above)
}

fn mount_of_line(line: &[u8]) -> Option<((usize, usize), CgroupMount)> {
    let mut fields = line.split(|byte| *byte == b' ');
    // Id, parent and device come before root and mount point.
    let root = fields.nth(3)?;
    let point = fields.next()?;
    // A hyphen ends the optional fields; the file system type follows it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mountinfo: &str, expected: Option<(&str, &str)>) {
        let found = CgroupMount::of_mountinfo(mountinfo.as_bytes());
        let expected = expected.map(|(point, root)| CgroupMount {
            point: PathBuf::from(point),
            root: root.to_owned(),
        });
        assert_eq!(found, expected, "{mountinfo}");
    }

    #[test]
    fn where_the_hierarchy_is_mounted() {
        check(
            "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate",
            Some(("/sys/fs/cgroup", "")),
        );
        // Version 1 next to it.
        check(
            "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            Some(("/sys/fs/cgroup/unified", "")),
        );
        check("41 31 0:38 / /a\\040b\\134 rw - cgroup2 cgroup2 rw", Some(("/a b\\", "")));
        // Optional fields: none, several.
        check(
            "41 31 0:38 / /x rw master:1 shared:2 propagate_from:3 - cgroup2 c rw",
            Some(("/x", "")),
        );
        check("41 31 0:38 / /cgroup2 rw - tmpfs cgroup2 rw", None);
        check("", None);
        check("41 31 0:38 /\n - cgroup2\n\n- \n41 31 0:38 / /x rw -", None);
    }

    #[test]
    fn parts_of_the_hierarchy_and_namespaces() {
        check(
            "1 2 0:3 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw",
            Some(("/sys/fs/cgroup", "/docker/abc")),
        );
        check("1 2 0:3 /../../.. /host/cgroup ro - cgroup2 cgroup rw", Some(("/host/cgroup", "")));
        check("1 2 0:3 /../other /x ro - cgroup2 cgroup rw", Some(("/x", "/other")));
        // The mount that shows most is taken: the host's, then the namespace's, then a part of it.
        let part = "1 2 0:3 /docker/abc /part ro - cgroup2 cgroup rw";
        let own = "1 2 0:3 / /own ro - cgroup2 cgroup rw";
        let host = "1 2 0:3 /../.. /host ro - cgroup2 cgroup rw";
        check(&[part, own, host].join("\n"), Some(("/host", "")));
        check(&[part, own].join("\n"), Some(("/own", "")));
        check(&[own, own].join("\n"), Some(("/own", "")));
    }

    #[test]
    fn the_path_of_a_directory() {
        let mount = |root: &str| CgroupMount { point: PathBuf::from("/m"), root: root.to_owned() };
        for (root, directory, path) in
            [("", "/m", "/"), ("", "/m/a/b", "/a/b"), ("/r", "/m", "/r"), ("/r", "/m/a", "/r/a")]
        {
            assert_eq!(mount(root).path_of(Path::new(directory)), path);
        }
    }
}
