//! `weir hop`: what two Weirs need for a repaired link between them.

use crate::exit::Failure;
use anyhow::Context;
use hop::{KEY_BYTES, Key, is_name};
use std::fs::File;
use std::io::{Read, Write};
use std::process::ExitCode;

/// Links between two Weirs that repair what is lost on the way
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Key(KeyArgs),
}

/// Print a new key, as files of keys have it
///
/// One line: the name and 32 random bytes in base64. The file that `key` of a target names has that line alone; the file that `keys` of
/// a listener names has one for each sender. Whoever can read it can send.
///
/// Example: weir hop key web-1 > hop.key
#[derive(clap::Args)]
struct KeyArgs {
    /// What the sender is called at the other end: letters, digits, '.', '_' and '-'
    name: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Action::Key(KeyArgs { name }) = &args.action;
    if !is_name(name) {
        return Err(Failure::Usage.error(format!(
            "\"{}\" is no name for a key: it has 1 to 64 letters, digits, '.', '_' or '-'",
            name.escape_debug()
        )));
    }

    let mut bytes = [0; KEY_BYTES];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("no random numbers from /dev/urandom")?;
    writeln!(std::io::stdout(), "{}", Key::new(name, bytes).line())?;
    Ok(ExitCode::SUCCESS)
}
