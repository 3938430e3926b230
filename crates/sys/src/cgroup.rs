//! Control groups by the id that the kernel reports for a socket (`INET_DIAG_CGROUP_ID`).

use crate::Errno;
use crate::errno::check;
use std::fs::{self, File};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr;

/// The id of the control group behind a directory of a cgroup2 file system: its inode number, of which the kernel uses all 64
/// bits (`cgroup_id`, include/linux/cgroup.h). On 32-bit systems the inode holds only half of them.
///
/// # Errors
/// Any of `stat(2)`.
pub fn id_of(path: &Path) -> io::Result<u64> {
    fs::metadata(path).map(|meta| meta.ino())
}

/// Where the cgroup2 file system is mounted, according to `/proc/self/mountinfo`: `/sys/fs/cgroup` on most systems,
/// `/sys/fs/cgroup/unified` on those with both versions. `None` when it is not mounted.
///
/// # Errors
/// When mountinfo cannot be read.
pub fn find_mount() -> io::Result<Option<PathBuf>> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    Ok(mounts.split(|&byte| byte == b'\n').find_map(crate::mounts::cgroup2_mount_point))
}

/// A mounted cgroup2 file system, held open.
#[derive(Debug)]
pub struct Mount {
    folder: OwnedFd,
    path: PathBuf,
}

impl Mount {
    /// Opens the directory where cgroup2 is mounted.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`; `EINVAL` when something else is mounted there.
    pub fn open(path: &Path) -> io::Result<Mount> {
        let folder = OwnedFd::from(File::open(path)?);

        // SAFETY: all-zero bytes are a valid `statfs`: it holds integers only.
        let mut found: libc::statfs = unsafe { mem::zeroed() };
        // SAFETY: the kernel writes one `statfs` to the address given.
        check(unsafe { libc::fstatfs(folder.as_raw_fd(), &raw mut found) })?;

        // The type is a long with glibc and an unsigned long with musl.
        if found.f_type as i64 == CGROUP2_SUPER_MAGIC {
            Ok(Mount { folder, path: path.to_owned() })
        } else {
            Err(Errno::INVAL.into())
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of a control group, as an absolute path below the mount. Takes a few microseconds, however many groups
    /// exist.
    ///
    /// # Errors
    /// `ESTALE` when no group has this id; `EPERM` without `CAP_DAC_READ_SEARCH` in the initial user namespace, where the caller
    /// can only walk the directories and compare [`id_of`]; `ENOENT` when the group is outside the part that this mount shows.
    pub fn path_of(&self, id: u64) -> io::Result<PathBuf> {
        let group = self.open_by_id(id)?;
        // The link gives the path as this process would reach it, or ends in " (deleted)".
        let link = fs::read_link(format!("/proc/self/fd/{}", group.as_raw_fd()))?;
        // Both checks are needed: the path of a group outside the mount's root is relative to an unknown directory and may look
        // like a path inside.
        if link.starts_with(&self.path) && id_of(&link).is_ok_and(|found| found == id) {
            Ok(link)
        } else {
            Err(Errno::NOENT.into())
        }
    }

    /// Opens a group's directory by id: kernfs takes a file handle of type `FILEID_KERNFS`, whose eight bytes are the id
    /// (fs/kernfs/mount.c, `__kernfs_fh_to_dentry`; Linux 5.5).
    fn open_by_id(&self, id: u64) -> Result<OwnedFd, Errno> {
        let mut handle = KernfsHandle { bytes: 8, kind: FILEID_KERNFS, id };

        // SAFETY: `handle` is laid out as `struct file_handle` with eight bytes, which is what its first field says.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                self.folder.as_raw_fd(),
                ptr::from_mut(&mut handle),
                libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC,
            )
        };

        let fd = check(fd as libc::c_int)?;
        // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl AsFd for Mount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// include/uapi/linux/magic.h.
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;
/// include/linux/exportfs.h.
const FILEID_KERNFS: libc::c_int = 0xfe;

/// `struct file_handle` (open_by_handle_at(2)) with the eight bytes that kernfs uses.
#[repr(C, packed(4))]
struct KernfsHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    id: u64,
}

const _: () = assert!(mem::size_of::<KernfsHandle>() == 16);
