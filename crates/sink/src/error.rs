use record::Encoding;
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
    /// Two sinks would share a row of the ledger.
    #[error("two sinks are named {name}")]
    SameName {
        /// That name.
        name: String,
    },
    /// Only protobuf has a form for datagrams.
    #[error("sink {name} sends datagrams, which are protobuf and not {encoding}")]
    Encoding {
        /// The sink's name.
        name: String,
        /// What was asked for.
        encoding: Encoding,
    },
}
