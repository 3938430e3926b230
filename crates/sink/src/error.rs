use std::io;

/// Why a sink cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The thread of a sink could not be started.
    #[error("the thread of sink {name}")]
    Thread {
        /// The sink's name.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}
