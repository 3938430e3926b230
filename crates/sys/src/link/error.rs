use crate::{Errno, namespace};
use std::error;
use std::fmt;

/// Why a device cannot be created, changed or read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The namespace of the device cannot be entered.
    Namespace(namespace::Error),
    /// The kernel refused.
    Refused {
        /// The request, as rtnetlink(7) calls it, and its purpose.
        call: &'static str,
        /// The device.
        device: String,
        /// The error number.
        errno: Errno,
        /// The kernel's explanation, if it gave one.
        explanation: Option<String>,
    },
}

impl Error {
    pub(crate) fn new(call: &'static str, device: &str, errno: Errno) -> Error {
        Error::Refused { call, device: device.to_owned(), errno, explanation: None }
    }

    /// The error number, if the kernel gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Refused { errno, .. }
            | Error::Namespace(namespace::Error::Syscall { errno, .. }) => Some(*errno),
            Error::Namespace(namespace::Error::NotPermitted { .. }) => Some(Errno::PERM),
            Error::Namespace(namespace::Error::Gone) => None,
        }
    }

    /// Whether the kernel knows the request but was built without the feature.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.errno(), Some(Errno::OPNOTSUPP | Errno::NOENT))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Namespace(error) => error.fmt(f),
            Error::Refused { call, device, errno, explanation } => {
                write!(f, "{call} on {device}: {errno}")?;
                explanation.as_ref().map_or(Ok(()), |words| write!(f, " ({words})"))
            }
        }
    }
}

impl error::Error for Error {}
