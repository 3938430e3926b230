//! What is wrong with a spool, and what helps.

use crate::spool::AppendError;
use ledger::Trouble;

/// What is wrong with the spool, by what was tried: each is over when the same succeeds.
#[derive(Default)]
pub(super) struct Troubles {
    pub(super) open: Option<Trouble>,
    pub(super) append: Option<Trouble>,
    pub(super) read: Option<Trouble>,
    pub(super) sync: Option<Trouble>,
}

impl Troubles {
    /// The one to show: first what may cost rows.
    pub(super) fn worst(&self) -> Option<&Trouble> {
        let Troubles { open, append, read, sync } = self;
        sync.as_ref().or(append.as_ref()).or(read.as_ref()).or(open.as_ref())
    }
}

pub(super) fn append_trouble(error: AppendError) -> Trouble {
    let fix = match error {
        AppendError::Full => "raise spool_size, or repair the destination",
        AppendError::NoSpace => "free space on the file system of the spool",
        AppendError::Io(_) => "see what the kernel says of the disk: dmesg",
        AppendError::Unfit => "raise spool_size",
    };
    Trouble { what: format!("the spool takes no more: {error}"), fix: fix.to_owned() }
}

pub(super) fn io_trouble(doing: &str, errno: sys::Errno) -> Trouble {
    Trouble {
        what: format!("{doing} the spool: {errno}"),
        fix: "see what the kernel says of the disk: dmesg".to_owned(),
    }
}
