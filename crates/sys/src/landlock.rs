//! Restricting which files a process can open (landlock(7)).

use crate::Errno;
use crate::errno::check;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;

/// Every right on files of Landlock's first version (`LANDLOCK_ACCESS_FS_*`, linux/landlock.h): each one that is not granted is
/// refused.
const ALL_RIGHTS: u64 = (1 << 13) - 1;
/// `LANDLOCK_ACCESS_FS_READ_FILE`.
const READ_FILE: u64 = 1 << 2;
const RULE_PATH_BENEATH: libc::c_int = 1;
const CREATE_RULESET_VERSION: u32 = 1;

/// `struct landlock_ruleset_attr` of the first version; later kernels accept its length.
#[repr(C)]
struct Ruleset {
    handled_access_fs: u64,
}

/// `struct landlock_path_beneath_attr`, which is packed.
#[repr(C, packed)]
struct Beneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// Whether this kernel has Landlock, and it is on.
pub fn is_there() -> bool {
    let no_ruleset: *const Ruleset = ptr::null();
    // SAFETY: with this flag the kernel reads no memory (landlock_create_ruleset(2)).
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            no_ruleset,
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    version > 0
}

/// Permanently restricts the calling thread, and the threads that it starts, to opening files below this folder, for reading.
/// What is open already stays usable. Forbids new privileges too.
///
/// # Errors
/// `ENOSYS` or `EOPNOTSUPP` [without Landlock](is_there); any of `open(2)` on the folder.
pub fn read_only_below(folder: &Path) -> io::Result<()> {
    let ruleset = Ruleset { handled_access_fs: ALL_RIGHTS };
    // SAFETY: the kernel reads one `Ruleset`, which outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::from_ref(&ruleset),
            size_of::<Ruleset>(),
            0_u32,
        )
    };
    let fd = check(fd as libc::c_int)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else has it.
    let rules = unsafe { OwnedFd::from_raw_fd(fd) };

    let opened = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(folder)?;
    let beneath = Beneath { allowed_access: READ_FILE, parent_fd: opened.as_raw_fd() };
    // SAFETY: the kernel reads one `Beneath`, which outlives the call, as its descriptor does.
    let added = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            rules.as_raw_fd(),
            RULE_PATH_BENEATH,
            ptr::from_ref(&beneath),
            0_u32,
        )
    };
    check(added as libc::c_int)?;

    // Without it, the kernel restricts only processes with CAP_SYS_ADMIN.
    crate::process::forbid_new_privileges()?;
    // SAFETY: the call takes a descriptor, which is open, and a number.
    let restricted =
        unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0_u32) };
    check(restricted as libc::c_int).map(drop).map_err(Errno::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_files_below_the_folder_can_be_opened_and_only_for_reading() {
        if !is_there() {
            assert!(read_only_below(Path::new("/")).is_err());
            return;
        }
        let folder = std::env::temp_dir().join(format!("weir-landlock-{}", std::process::id()));
        fs::create_dir_all(folder.join("raw")).unwrap();
        let (inside, outside) = (folder.join("raw/inside"), folder.with_extension("outside"));
        fs::write(&inside, "inside").unwrap();
        fs::write(&outside, "outside").unwrap();

        let files = (folder.clone(), inside.clone(), outside.clone());
        // The restriction ends with the thread.
        let restricted = std::thread::spawn(move || {
            let (folder, inside, outside) = files;
            read_only_below(&folder).unwrap();
            assert_eq!(fs::read(&inside).unwrap(), b"inside");
            for refused in [
                fs::read(&outside).map(drop),
                fs::write(&inside, "changed"),
                fs::remove_file(&inside),
                fs::write(folder.join("new"), ""),
            ] {
                assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            }
        });
        restricted.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
        fs::remove_file(&outside).unwrap();
    }
}
