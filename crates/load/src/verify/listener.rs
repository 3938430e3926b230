use super::Options;
use super::Progress;
use super::run::{Finished, Receiving};
use crate::Address;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use sys::socket::{self, ListenOptions, LocalAddress};

/// Longest wait for a datagram before checking the reasons to stop again.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(20);

/// A listener's socket.
pub(crate) struct Bound {
    pub(crate) socket: OwnedFd,
    /// The bound address, with the port that the kernel chose.
    pub(crate) address: Address,
    pub(super) receive_buffer_bytes: usize,
    /// The kernel's drop counter when the socket was new.
    pub(super) dropped_at_bind: u32,
    /// The file of a unix socket.
    file: Option<SocketFile>,
}

/// Device and inode of a socket's file: distinguishes it from one that another program has put in its place. The bound
/// socket keeps the inode in use, so its number is not reused in the meantime.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SocketFile(u64, u64);

impl SocketFile {
    fn at(path: &Path) -> Option<SocketFile> {
        let metadata = fs::symlink_metadata(path).ok()?;
        Some(SocketFile(metadata.dev(), metadata.ino()))
    }
}

impl Bound {
    pub(crate) fn open(address: &Address, options: &Options) -> io::Result<Bound> {
        let socket = match address {
            Address::Udp(addr) => {
                let multicast_interface = options.multicast_interface.clone();
                socket::listen_udp(
                    *addr,
                    &ListenOptions { multicast_interface, ..ListenOptions::default() },
                )?
            }
            Address::Unix(path) => socket::listen_unix(path)?,
        };

        socket::set_receive_timeout(socket.as_fd(), RECEIVE_TIMEOUT)?;
        let receive_buffer_bytes =
            socket::set_receive_buffer(socket.as_fd(), options.receive_buffer_bytes)?;
        let dropped_at_bind = socket::mem_info(socket.as_fd())?.dropped_datagrams;

        let address = match socket::local_address(socket.as_fd()) {
            Some(LocalAddress::Inet(addr)) => Address::Udp(addr),
            _ => address.clone(),
        };

        let file = match &address {
            Address::Udp(_) => None,
            Address::Unix(path) => SocketFile::at(path),
        };

        Ok(Bound { socket, address, receive_buffer_bytes, dropped_at_bind, file })
    }

    pub(super) fn run(self, options: &Options, stop: &AtomicBool, progress: &Progress) -> Finished {
        let mut receiving = Receiving::start(&self, options, progress);
        let ended_by = receiving.until_end(stop);
        self.admit_nothing();
        receiving.drain();
        receiving.finish(ended_by)
    }

    /// Refuses new datagrams, so that the queue can be read to its end.
    pub(crate) fn admit_nothing(&self) {
        // If it fails, the time limit still ends the drain.
        let _ = socket::refuse_new_datagrams(self.socket.as_fd());
        if let Address::Unix(path) = &self.address
            && self.file.is_some()
            && SocketFile::at(path) == self.file
        {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_socket_file_that_it_made_is_removed() {
        let path = std::env::temp_dir().join(format!("weir-load-{}.sock", std::process::id()));
        let open = || Bound::open(&Address::Unix(path.clone()), &Options::on(Vec::new())).unwrap();
        open().admit_nothing();
        assert!(!path.exists());
        let bound = open();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another program's").unwrap();
        bound.admit_nothing();
        assert_eq!(fs::read(&path).unwrap(), b"another program's");
        fs::remove_file(&path).unwrap();
    }
}
