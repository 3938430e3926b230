//! Parquet files: the folder that they go to, and their batches. Crate `columns` writes the bytes.

mod encoder;
mod folder;
mod keep;
mod name;

#[cfg(feature = "s3")]
pub(crate) use encoder::form;
pub use folder::{FolderOptions, folder};
#[cfg(feature = "s3")]
pub(crate) use name::Names;
