use crate::access::Audience;
use std::io;
use std::path::PathBuf;

/// Why the store cannot do what it was asked to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder or one of its files cannot be used.
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// There is no store in the folder.
    #[error("{} has no store: it has no file history.sqlite", .0.display())]
    NoStore(PathBuf),
    /// A newer Weir wrote the store; it is left unchanged.
    #[error("{} has version {found} of the store, and this Weir knows versions up to {known}", path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    /// The file belongs to another program.
    #[error("{} is a database, and not a store of Weir's", .0.display())]
    Foreign(PathBuf),
    /// Another process is writing to the store.
    #[error("{} is written by another process", .0.display())]
    Locked(PathBuf),
    /// SQLite failed, for example because the disk is full.
    #[error("{context}: {source}")]
    Sqlite { context: &'static str, source: rusqlite::Error },
    /// Sealing fails, and the rows that wait for it have taken their share of the store's size.
    #[error(
        "{waiting_bytes} bytes of raw rows wait to be sealed, which fails; no more are taken beyond {max_bytes}"
    )]
    Waiting { waiting_bytes: u64, max_bytes: u64 },
    /// The statement is not allowed here.
    #[error("{0}")]
    Refused(String),
    /// The statement reads what only those may read whom the daemon knows.
    #[error("{}", match .0 {
        Audience::Known => "what was received, and events, are not for anyone",
        _ => "sockets of other network namespaces are not for anyone",
    })]
    NotForAnyone(Audience),
    /// The statement exceeded its time limit.
    #[error("stopped after {seconds} s, the limit; ask for less, or raise --timeout")]
    Timeout { seconds: f64 },
    /// The statement needed more memory than this process has, or may have.
    #[error("not enough memory for this statement; ask for less")]
    OutOfMemory,
    /// The statement is wrong.
    #[error("{0}")]
    Statement(String),
    /// A Parquet file cannot be written or read.
    #[error("{}: {source}", path.display())]
    Parquet { path: PathBuf, source: parquet::errors::ParquetError },
}

impl Error {
    /// Whether the disk is full, or the store has reached its limit on it.
    pub fn is_full(&self) -> bool {
        match self {
            Error::Sqlite { source, .. } => {
                source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
            }
            Error::File { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}

/// Adds the operation to an error of SQLite.
pub(crate) fn sqlite(context: &'static str) -> impl FnOnce(rusqlite::Error) -> Error {
    move |source| Error::Sqlite { context, source }
}

/// Adds the path to an I/O error.
pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    move |source| Error::File { path, source }
}
