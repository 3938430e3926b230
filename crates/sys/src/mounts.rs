//! Lines of `/proc/self/mountinfo` (proc_pid_mountinfo(5)):
//! `ID PARENT 0:4 net:[4026532400] /run/netns/blue rw shared:1 - nsfs nsfs rw`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The fields of a line that are needed here.
pub(crate) struct Mount<'a> {
    /// `MAJOR:MINOR`.
    pub(crate) device: &'a [u8],
    /// Which part of the file system is mounted.
    pub(crate) root: &'a [u8],
    /// Where it is mounted, escaped.
    pub(crate) point: &'a [u8],
}

impl<'a> Mount<'a> {
    /// Splits the first fields off a line; `None` for an incomplete one.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Mount<'a>> {
        let mut fields = line.splitn(6, |&byte| byte == b' ').skip(2);
        Some(Mount { device: fields.next()?, root: fields.next()?, point: fields.next()? })
    }

    /// The device in the format of `st_dev`.
    pub(crate) fn device_number(&self) -> Option<u64> {
        let (major, minor) = std::str::from_utf8(self.device).ok()?.split_once(':')?;
        Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// The mount point, if the line shows the root of a cgroup2 file system.
pub(crate) fn cgroup2_mount_point(line: &[u8]) -> Option<PathBuf> {
    let mount = Mount::parse(line)?;
    let at = line.windows(3).position(|window| window == b" - ")?;
    if !line.get(at + 3..)?.starts_with(b"cgroup2 ") {
        return None;
    }
    let mut path = Vec::new();
    unescape(mount.point, &mut path);
    Some(PathBuf::from(OsString::from_vec(path)))
}

/// Appends a path after decoding octal escapes, which stand for space, tab, newline and backslash:
/// `\040`.
pub(crate) fn unescape(mut escaped: &[u8], out: &mut Vec<u8>) {
    while let Some((&byte, rest)) = escaped.split_first() {
        let digits = rest.split_first_chunk::<3>().filter(|_| byte == b'\\');
        let decoded = digits.and_then(|(digits, rest)| Some((octal(*digits)?, rest)));
        let (byte, rest) = decoded.unwrap_or((byte, rest));
        out.push(byte);
        escaped = rest;
    }
}

fn octal(digits: [u8; 3]) -> Option<u8> {
    digits.iter().try_fold(0_u8, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_unescape(escaped: &[u8], plain: &[u8]) {
        let mut out = Vec::new();
        unescape(escaped, &mut out);
        assert_eq!(out, plain);
    }

    #[test]
    fn escapes() {
        check_unescape(b"/run/netns/blue", b"/run/netns/blue");
        check_unescape(br"/run/a\040b\011c\012d\134e", b"/run/a b\tc\nd\\e");
        check_unescape(br"\134040", br"\040");
        check_unescape(br"\04", br"\04");
        check_unescape(br"\999\777\", br"\999\777\");
        check_unescape(b"\xff\xfe", b"\xff\xfe");
        check_unescape(b"", b"");
    }

    #[test]
    fn lines() {
        let line = b"36 27 0:4 net:[4026532400] /run/netns/a\\040b rw shared:1 - nsfs nsfs rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.device_number(), Some(4));
        assert_eq!(
            (mount.root, mount.point),
            (&b"net:[4026532400]"[..], &b"/run/netns/a\\040b"[..])
        );
        for (line, point) in [
            (&b"40 30 0:35 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"[..], Some("/sys/fs/cgroup")),
            (b"40 30 0:35 / /a\\040b rw master:1 - cgroup2 c rw", Some("/a b")),
            (b"40 30 0:35 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu", None),
            (b"40 30 0:35 / /cgroup2 rw - tmpfs cgroup2 rw", None),
        ] {
            assert_eq!(cgroup2_mount_point(line), point.map(PathBuf::from));
        }
        for cut in 0..line.len() {
            let _ = Mount::parse(&line[..cut]).map(|mount| mount.device_number());
            assert_eq!(cgroup2_mount_point(&line[..cut]), None);
        }
    }
}
