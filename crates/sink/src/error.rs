use std::io;

/// Why a sink cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The thread of a sink could not be started.
    #[error("the thread of sink {name}")]
    Thread { name: String, source: io::Error },
    /// A sink's destination could not be opened, and no later attempt would succeed.
    #[error("the destination of sink {name}")]
    Open { name: String, source: io::Error },
}
