use crate::errno::check;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// An Ethernet device whose other end is this process: `read` returns what the device sends, and the device receives what is
/// written. Dropping it removes the device.
///
/// Frames are whole and no longer than the MTU plus 14 bytes: the kernel has already segmented them and filled in checksums.
pub struct Tap(File);

impl Tap {
    /// Creates one in the calling thread's namespace. It is down. Reads and writes do not block.
    ///
    /// # Errors
    /// `ENOENT` where there is no `/dev/net/tun`, `EPERM` or `EACCES`, `EBUSY` when the name is taken, `EINVAL` when it is too
    /// long.
    pub fn create(device: &str) -> io::Result<Tap> {
        if device.len() >= libc::IFNAMSIZ || device.contains('\0') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;

        // struct ifreq (linux/if.h): the name, then a union of 24 bytes, here of 2 with flags.
        let mut request = [0_u8; libc::IFNAMSIZ + 24];
        request[..device.len()].copy_from_slice(device.as_bytes());
        let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as u16;
        request[libc::IFNAMSIZ..][..2].copy_from_slice(&flags.to_ne_bytes());
        // SAFETY: the call reads and writes an ifreq of 40 bytes, which `request` has and outlives it with.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) })?;
        Ok(Tap(file))
    }

    /// Reads a frame that the device has sent. A frame larger than the buffer is truncated.
    ///
    /// # Errors
    /// `EAGAIN` when there is no frame.
    pub fn read(&self, frame: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(frame)
    }

    /// Makes the device receive a frame.
    ///
    /// # Errors
    /// `EIO` while the device is down, `EINVAL` for a frame shorter than a header.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write(frame).map(|_| ())
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
