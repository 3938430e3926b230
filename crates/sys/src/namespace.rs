//! Network namespaces: which ones exist, how to open a socket in one, and the id by which the kernel names them.
//!
//! A namespace is identified by its file in nsfs. Discovery keeps no such file and no socket open for longer than a call: a
//! descriptor keeps a namespace alive after its last process has ended, and its devices with it. That is how
//! [`OpenNamespace::create`] makes namespaces that nobody has to clean up: they vanish with the process.

mod changes;
mod discovery;
mod enter;
mod error;
mod files;
mod isolate;
mod nsid;

pub use changes::{IdChange, IdChanges, MountChanges};
pub use discovery::{Discovery, Scan};
pub use enter::Home;
pub use error::Error;
pub use files::{FileChange, FileChanges};
pub use isolate::{IsolateError, Obstacle, isolate, isolate_child};
pub use nsid::{Nsids, Target};

use crate::Errno;
use crate::errno::check;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Identity of a namespace: the device and inode of its file. Two live namespaces never share it; after one is gone, the inode
/// may be reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    /// Device number of nsfs, the same for all namespaces of one running kernel (`st_dev`).
    pub device: u64,
    /// Inode number, as `ls -l /proc/self/ns/net` shows it.
    pub inode: u64,
}

/// A namespace from the last scan, and where to find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Namespace<'a> {
    /// Which one it is.
    pub id: Identity,
    /// A file that it is mounted at, preferably in `/run/netns`.
    pub path: Option<&'a Path>,
    /// The first process found in it; `None` when it is known only by its file.
    pub process: Option<u32>,
}

impl<'a> Namespace<'a> {
    /// The last component of the path: the name that `ip netns` or a container engine uses. It may hold any byte except `/`.
    pub fn name(&self) -> Option<&'a [u8]> {
        self.path.and_then(Path::file_name).map(OsStrExt::as_bytes)
    }

    /// Opens the namespace by its path or, if that leads elsewhere, by its process, and checks that it is the same one: mounts
    /// come and go, and process ids are reused.
    ///
    /// # Errors
    /// [`Error::Gone`] when neither leads to it any more; [`Error::NotPermitted`].
    pub fn open(&self) -> Result<OpenNamespace, Error> {
        let by_path = self.path.map_or(Err(Error::Gone), |path| self.open_at(path));
        let (Err(first), Some(process)) = (&by_path, self.process) else { return by_path };
        match (discovery::with_process_path(process, |path| self.open_at(path)), first) {
            (Err(Error::Gone), Error::NotPermitted { .. }) => by_path,
            (by_process, _) => by_process,
        }
    }

    fn open_at(&self, path: &Path) -> Result<OpenNamespace, Error> {
        let namespace = OpenNamespace::open(path)?;
        if namespace.id == self.id { Ok(namespace) } else { Err(Error::Gone) }
    }
}

/// The identity of the calling thread's namespace.
///
/// # Errors
/// Any of `stat(2)`, for instance when `/proc` is not mounted.
pub fn own() -> io::Result<Identity> {
    identity_of_path(Path::new(OWN_PATH))
}

const OWN_PATH: &str = "/proc/thread-self/ns/net";

/// A namespace held open. It lives at least as long as this does, so drop it soon.
#[derive(Debug)]
pub struct OpenNamespace {
    fd: OwnedFd,
    id: Identity,
}

impl OpenNamespace {
    /// Opens the namespace that a file stands for.
    ///
    /// # Errors
    /// [`Error::Gone`] when the file does not exist or is not a namespace; [`Error::NotPermitted`].
    pub fn open(path: &Path) -> Result<OpenNamespace, Error> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = std::fs::OpenOptions::new()
            .read(true)
            // By now the path may lead to anything. Without this flag, opening a FIFO would wait for a writer.
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(|error| Error::from_open(Errno::from(&error)))?;
        let id =
            identity_of(file.as_fd()).map_err(|errno| Error::Syscall { call: "fstat", errno })?;
        Ok(OpenNamespace { fd: file.into(), id })
    }

    /// Takes a namespace that another process opened. Only entering it shows whether it really is one.
    ///
    /// # Errors
    /// [`Error::Syscall`] for any error of `fstat(2)`.
    pub fn from_fd(fd: OwnedFd) -> Result<OpenNamespace, Error> {
        let id =
            identity_of(fd.as_fd()).map_err(|errno| Error::Syscall { call: "fstat", errno })?;
        Ok(OpenNamespace { fd, id })
    }

    /// Which one it is.
    pub fn id(&self) -> Identity {
        self.id
    }
}

impl AsFd for OpenNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn identity_of_path(path: &Path) -> io::Result<Identity> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path)?;
    Ok(Identity { device: meta.dev(), inode: meta.ino() })
}

fn identity_of(fd: BorrowedFd<'_>) -> Result<Identity, Errno> {
    // SAFETY: all-zero bytes are a valid `stat`: it holds integers only.
    let mut stat: libc::stat = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes one `stat` to the address given.
    check(unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) })?;
    Ok(Identity { device: stat.st_dev, inode: stat.st_ino })
}
