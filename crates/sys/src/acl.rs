//! POSIX access lists (acl(5)): a file of ours that named users may read as well.

use crate::errno::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The extended attribute that holds a file's access list.
const NAME: &std::ffi::CStr = c"system.posix_acl_access";
/// Of the attribute's format (include/uapi/linux/posix_acl_xattr.h).
const VERSION: u32 = 2;
/// Who an entry is for (include/uapi/linux/posix_acl.h).
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

const READ: u16 = 4;
const READ_WRITE: u16 = 6;

/// Lets its owner read and write a file, these users read it, and nobody else. Needs no privilege, but ownership.
///
/// # Errors
/// `EOPNOTSUPP` where the file system has no access lists, and those of fsetxattr(2).
pub fn share_to_read(file: &File, uids: &[u32]) -> io::Result<()> {
    let list = list_of(uids);
    // SAFETY: the name is a static C string; `list` is valid for its length for the whole call, and the kernel only reads it.
    let rc = unsafe {
        libc::fsetxattr(file.as_raw_fd(), NAME.as_ptr(), list.as_ptr().cast(), list.len(), 0)
    };
    check(rc)?;
    Ok(())
}

/// The list as the kernel reads it: little-endian, users in ascending order.
fn list_of(uids: &[u32]) -> Vec<u8> {
    let mut uids = uids.to_vec();
    uids.sort_unstable();
    uids.dedup();

    let users = uids.into_iter().map(|uid| (USER, READ, uid));
    let others = [(GROUP_OBJ, 0, NO_ID), (MASK, READ, NO_ID), (OTHER, 0, NO_ID)];
    let entries = [(USER_OBJ, READ_WRITE, NO_ID)].into_iter().chain(users).chain(others);

    let mut list = VERSION.to_le_bytes().to_vec();
    for (who, may, id) in entries {
        list.extend(who.to_le_bytes());
        list.extend(may.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_in_order_and_once() {
        assert_eq!(list_of(&[7, 5, 7]), list_of(&[5, 7]));
        assert_eq!(list_of(&[5, 7]).len(), 4 + 6 * 8);
    }
}
