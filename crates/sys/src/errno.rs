use std::fmt;
use std::io;

/// A kernel error number: comparable, and made without allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    pub const AGAIN: Errno = Errno(libc::EAGAIN);
    pub const INTR: Errno = Errno(libc::EINTR);
    pub const CONNREFUSED: Errno = Errno(libc::ECONNREFUSED);
    pub const HOSTUNREACH: Errno = Errno(libc::EHOSTUNREACH);
    pub const NETUNREACH: Errno = Errno(libc::ENETUNREACH);
    pub const NETDOWN: Errno = Errno(libc::ENETDOWN);
    pub const NOBUFS: Errno = Errno(libc::ENOBUFS);
    pub const PERM: Errno = Errno(libc::EPERM);
    pub const ACCES: Errno = Errno(libc::EACCES);
    pub const MSGSIZE: Errno = Errno(libc::EMSGSIZE);
    pub const INVAL: Errno = Errno(libc::EINVAL);
    pub const IO: Errno = Errno(libc::EIO);
    pub const NOTCONN: Errno = Errno(libc::ENOTCONN);
    pub const DESTADDRREQ: Errno = Errno(libc::EDESTADDRREQ);
    pub const NOENT: Errno = Errno(libc::ENOENT);
    pub const CONNRESET: Errno = Errno(libc::ECONNRESET);
    pub const NOMEM: Errno = Errno(libc::ENOMEM);
    pub const PIPE: Errno = Errno(libc::EPIPE);
    pub const NODEV: Errno = Errno(libc::ENODEV);
    pub const NOSPC: Errno = Errno(libc::ENOSPC);
    pub const PROTO: Errno = Errno(libc::EPROTO);
    pub const NOPROTOOPT: Errno = Errno(libc::ENOPROTOOPT);
    pub const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
    pub const HOSTDOWN: Errno = Errno(libc::EHOSTDOWN);
    pub const EXIST: Errno = Errno(libc::EEXIST);
    pub const USERS: Errno = Errno(libc::EUSERS);
    pub const NONET: Errno = Errno(libc::ENONET);
    pub const NOSYS: Errno = Errno(libc::ENOSYS);

    /// The calling thread's `errno`.
    pub(crate) fn last() -> Errno {
        Errno(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.0)
    }
}

impl From<&io::Error> for Errno {
    /// Errors that carry no number become `EIO`.
    fn from(error: &io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl std::error::Error for Errno {}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

/// Turns a C return value of -1 into the thread's `errno`.
pub(crate) fn check(rc: libc::c_int) -> Result<libc::c_int, Errno> {
    if rc == -1 { Err(Errno::last()) } else { Ok(rc) }
}
