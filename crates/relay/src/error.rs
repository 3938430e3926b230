use std::io;

/// Why a listener or a target could not be started or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{call} for {name}")]
    Syscall {
        call: &'static str,
        /// Name of the listener or target.
        name: String,
        #[source]
        source: io::Error,
    },
    /// There is not enough memory for the ring.
    #[error("no memory for a ring of {bytes} bytes for listener {name}")]
    NoMemory { name: String, bytes: usize },
    /// The listener has no target with this name.
    #[error("listener {listener} has no target {target}")]
    UnknownTarget { listener: String, target: String },
    /// The listener already has a target with this name.
    #[error("listener {listener} has a target {target} already")]
    DuplicateTarget { listener: String, target: String },
    /// Files, sinks and sockets cannot replace one another: remove the one and add the other.
    #[error("target {target} of listener {listener} is a file or a sink, or is to become one")]
    NotReplaceable { listener: String, target: String },
    /// The listener was stopped, and its threads have ended.
    #[error("listener {listener} has stopped")]
    Stopped { listener: String },
    /// A data thread has not answered for several seconds. The change takes effect when the thread resumes, except that a target
    /// to be added is not there.
    #[error("the data loop of listener {listener} does not answer")]
    Unanswered { listener: String },
}
