use std::io;

/// Why a sink cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The thread of a sink could not be started.
    #[error("the thread of sink {name}")]
    Thread {
        /// The sink's name.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}
