use super::Error;
use sys::namespace;
use sys::process::{CAP_NET_ADMIN, CAP_SYS_ADMIN, effective_capabilities};

/// What entitles this process to build networks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    /// The process has `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`, as root has.
    Held,
    /// The process has moved into a new user namespace, where it has all capabilities over everything that it creates
    /// there.
    UserNamespace,
}

impl Privilege {
    /// Makes sure that this process may build networks; moves it into new namespaces if necessary. Call this before the
    /// first thread starts.
    ///
    /// # Errors
    /// [`Error::Privilege`], which names the setting that forbids it.
    pub fn acquire() -> Result<Privilege, Error> {
        const NEEDED: u64 = 1 << CAP_SYS_ADMIN | 1 << CAP_NET_ADMIN;
        if effective_capabilities().is_some_and(|held| held & NEEDED == NEEDED) {
            return Ok(Privilege::Held);
        }
        namespace::isolate()?;
        Ok(Privilege::UserNamespace)
    }

    /// The privilege as text, for a report.
    pub fn label(self) -> &'static str {
        match self {
            Privilege::Held => "root",
            Privilege::UserNamespace => "user namespace",
        }
    }
}
