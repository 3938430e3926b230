use crate::{Reason, RejectClass};
use std::fmt;

/// How something left a hop without being delivered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Way {
    /// It was dropped.
    Dropped(Reason),
    /// The store refused it permanently.
    Rejected(RejectClass),
    /// It was sent, and the answer never came: the store may or may not have it.
    Uncertain,
    /// It is in the spool of a sink that has ended, for its next life.
    Kept,
}

impl Way {
    /// Whether a setting asks for it, so that it is not a loss.
    pub fn is_intended(self) -> bool {
        match self {
            Way::Dropped(reason) => reason.is_intended(),
            Way::Rejected(_) | Way::Uncertain => false,
            Way::Kept => true,
        }
    }

    /// What happened, as the end of the sentence "lost because …".
    pub fn cause(self) -> &'static str {
        match self {
            Way::Dropped(reason) => reason.cause(),
            Way::Rejected(class) => class.cause(),
            Way::Uncertain => {
                "they were sent and no answer came before Weir stopped trying, so the store may have them or not"
            }
            Way::Kept => "the sink ended before its destination had taken them",
        }
    }

    /// The setting or command that helps.
    pub fn advice(self) -> &'static str {
        match self {
            Way::Dropped(reason) => reason.advice(),
            Way::Rejected(class) => class.advice(),
            Way::Uncertain => {
                "look for their run_id and sequence in the store; raise expire_after, or give the sink a spool"
            }
            Way::Kept => {
                "nothing: they are in the sink's spool, and delivered after its next start"
            }
        }
    }
}

/// The reason's label, `rejected (CLASS)`, `uncertain` or `kept`.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Dropped(reason) => f.write_str(reason.label()),
            Way::Rejected(class) => write!(f, "rejected ({})", class.label()),
            Way::Uncertain => f.write_str("uncertain"),
            Way::Kept => f.write_str("kept"),
        }
    }
}
