use std::io;

/// Why a listener or a target could not be started or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{call} for {name}")]
    Syscall {
        call: &'static str,
        /// Listener or target.
        name: String,
        #[source]
        source: io::Error,
    },
    /// The memory for the ring cannot be had.
    #[error("no memory for a ring of {bytes} bytes for listener {name}")]
    NoMemory { name: String, bytes: usize },
    /// There is no target of this name.
    #[error("listener {listener} has no target {target}")]
    UnknownTarget { listener: String, target: String },
    /// There is a target of this name already.
    #[error("listener {listener} has a target {target} already")]
    DuplicateTarget { listener: String, target: String },
    /// A file, a sink and a socket cannot take each other's place: remove the one and add the other.
    #[error("target {target} of listener {listener} is a file or a sink, or is to become one")]
    NotReplaceable { listener: String, target: String },
    /// The listener's threads have ended: it was stopped.
    #[error("listener {listener} has stopped")]
    Stopped { listener: String },
    /// A data thread has not answered for several seconds. What was asked of it happens when it goes on, except that a target
    /// that was to be added is not there.
    #[error("the data loop of listener {listener} does not answer")]
    Unanswered { listener: String },
}
