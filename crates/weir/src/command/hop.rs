//! `weir hop`: prepares a repaired link between two Weirs.

use crate::exit::Failure;
use anyhow::Context;
use hop::{KEY_BYTES, Key, is_name};
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;

/// Prepare repaired links between two Weirs
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Key(KeyArgs),
}

/// Print a new key, as a line of a key file
///
/// One line: the name and 32 random bytes in base64. The file that `key` of a target names has that line alone; the file that `keys` of
/// a listener names has one for each sender. Anyone who can read it can send, so the file of a redirection is taken from everybody but
/// its owner.
///
/// Example: weir hop key web-1 > hop.key
#[derive(clap::Args)]
struct KeyArgs {
    /// The sender's name at the other end: letters, digits, '.', '_' and '-'
    name: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Action::Key(KeyArgs { name }) = &args.action;
    if !is_name(name) {
        return Err(Failure::Usage.error(format!(
            "\"{}\" cannot be the name of a key. Fix: write 1 to 64 letters, digits, '.', '_' and '-', such as web-1",
            name.escape_debug()
        )));
    }

    let mut bytes = [0; KEY_BYTES];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("no random numbers from /dev/urandom")?;
    let stdout = std::io::stdout();
    keep_to_owner(stdout.as_fd()).context("cannot take the key's file from other users")?;
    writeln!(&stdout, "{}", Key::new(name, bytes).line())?;
    Ok(ExitCode::SUCCESS)
}

/// Takes a file that the shell has made for the key from everybody but its owner, whatever the umask. One that has keys already keeps
/// what its group may.
fn keep_to_owner(file: BorrowedFd<'_>) -> io::Result<()> {
    let file = File::from(file.try_clone_to_owned()?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(());
    }
    let mode = metadata.permissions().mode() & 0o777;
    let kept = if metadata.len() == 0 { 0o600 } else { 0o770 };
    match mode & kept == mode {
        true => Ok(()),
        false => file.set_permissions(Permissions::from_mode(mode & kept)),
    }
}
