//! Opens files that targets and sinks write, once, before anything depends on them.

use super::named;
use crate::exit::Failure;
use crate::refused::{mkdir, own_folder};
use config::{SinkConfig, TargetConfig};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Owner writes, group reads.
const FILE_MODE: u32 = 0o640;

/// Makes sure that a file target can be written. Payloads may hold anything, so others may not read them.
pub(super) fn prepare_file(config: &TargetConfig, path: &Path) -> anyhow::Result<()> {
    let target = named(&config.to, "target", &config.name);
    writable(&target, path, &fs::metadata(path))
}

/// Makes sure that a sink's file can be written. Records name processes and peers, so others may not read them. A symbolic link
/// at the path, which another user may have left there, is refused.
pub(crate) fn sink_file(config: &SinkConfig, path: &Path) -> anyhow::Result<()> {
    let sink = named(&config.to, "sink", &config.name);
    let found = fs::symlink_metadata(path);
    if found.as_ref().is_ok_and(|found| found.file_type().is_symlink()) {
        return Err(Failure::Config.error(format!(
            "cannot write {sink}: it is a link, which is not followed. Fix: write the path that it leads to"
        )));
    }
    writable(&sink, path, &found)
}

/// Makes sure that the folder exists in which a sink creates files.
pub(crate) fn sink_folder(config: &SinkConfig, folder: &Path) -> anyhow::Result<()> {
    let sink = named(&config.to, "sink", &config.name);
    make_folder(&folder.join("file")).map_err(|error| cannot_write(&sink, folder, &error))?;
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Failure::Io.error(format!(
            "cannot write {sink}: {} is not a folder. Fix: choose another path",
            folder.display()
        ))),
        Err(error) => Err(cannot_write(&sink, &folder.join("file"), &error)),
    }
}

/// Makes the folder of a file if only the last part of its path is missing, so that a mistyped path does not create a tree.
///
/// # Errors
/// Any error of `mkdir(2)`.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    match folder.map_or(Ok(()), fs::create_dir) {
        // Another process created it first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Checks that a file can be opened for appending by opening it once. Makes its folder if needed.
fn writable(what: &str, path: &Path, found: &io::Result<fs::Metadata>) -> anyhow::Result<()> {
    make_folder(path).map_err(|error| cannot_write(what, path, &error))?;

    let kind = found.as_ref().map(fs::Metadata::file_type);
    if kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket() || kind.is_block_device()) {
        return Err(Failure::Config.error(format!(
            "cannot write {what}: it is not a plain file. Fix: choose another path"
        )));
    }

    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(FILE_MODE)
        .open(path)
        .map(drop)
        .map_err(|error| cannot_write(what, path, &error))
}

fn cannot_write(what: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    let (failure, fix) = match error.kind() {
        io::ErrorKind::NotFound => (Failure::Io, mkdir(path)),
        io::ErrorKind::PermissionDenied => (Failure::Permission, own_folder()),
        _ => (Failure::Io, "choose another path".to_owned()),
    };
    failure.error(format!("cannot write {what}: {error}. Fix: {fix}"))
}
