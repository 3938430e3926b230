//! Where the helper listens: a service manager's socket, or its own file.

use super::Args;
use crate::exit::Failure;
use crate::refused::{Wanted, refused};
use anyhow::Context;
use config::number_of;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use sys::pass::{Channel, Listener};
use sys::socket::{LocalAddress, local_address, share_socket_file};

/// How long to wait for the answer of a helper that may be alive.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The listening socket and its file.
pub(super) struct Place {
    pub(super) listener: Listener,
    path: Option<PathBuf>,
    is_own: bool,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}", path.display()),
            None => f.write_str("a socket without a path"),
        }
    }
}

impl Place {
    /// Takes the service manager's socket, or makes one.
    ///
    /// # Errors
    /// There is no socket, or the address is not available; the message says what to do.
    pub(super) fn open(args: &Args) -> anyhow::Result<Place> {
        let mut inherited = sys::activation::take_sockets();
        match (inherited.pop(), inherited.is_empty(), &args.listen) {
            (Some(fd), true, _) => {
                let path = match local_address(fd.as_fd()) {
                    Some(LocalAddress::Unix(path)) => Some(path),
                    _ => None,
                };
                let listener = Listener::from_fd(fd).map_err(|_| {
                    Failure::Config.error(
                        "the service manager handed over a socket of another kind. \
                         Fix: write ListenSequentialPacket= in the .socket unit",
                    )
                })?;
                Ok(Place { listener, path, is_own: false })
            }
            (Some(_), false, _) => Err(Failure::Config.error(
                "the service manager handed over several sockets. Fix: write one ListenSequentialPacket= in the .socket unit",
            )),
            (None, _, Some(path)) => {
                let listener = listen(path)?;
                let result = share(path, args);
                if result.is_err() {
                    let _ = fs::remove_file(path);
                }
                result.map(|()| Place { listener, path: Some(path.clone()), is_own: true })
            }
            (None, _, None) => Err(Failure::Usage
                .error("nowhere to listen. Fix: --listen PATH, or a service manager's socket")),
        }
    }

    /// The file to remove at the end, if we created it.
    pub(super) fn own_file(&self) -> Option<&Path> {
        self.path.as_deref().filter(|_| self.is_own)
    }
}

/// Listens at a path. Replaces the file of a helper that has ended.
fn listen(path: &Path) -> anyhow::Result<Listener> {
    let mut result = Listener::bind(path);
    if let Err(error) = &result
        && error.kind() == io::ErrorKind::AddrInUse
        && is_abandoned(path)
    {
        fs::remove_file(path).with_context(|| {
            format!("cannot remove {}, which a helper has left behind", path.display())
        })?;
        result = Listener::bind(path);
    }

    result.map_err(|error| {
        refused(format_args!("cannot listen at {}", path.display()), Wanted::Unix(path), &error)
    })
}

/// Whether it is the file of a socket that nobody listens at any more.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let connected = Channel::connect_within(path, ALIVE_TIMEOUT);
    is_socket && connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Sets the file's group and mode for those who may connect. Until then nobody else can: connecting needs write permission,
/// which the usual umask leaves to the owner.
fn share(path: &Path, args: &Args) -> anyhow::Result<()> {
    let gid = args.group.as_deref().map(gid_of).transpose()?;
    share_socket_file(path, args.mode, (None, gid)).with_context(|| {
        let group =
            args.group.as_ref().map_or(String::new(), |group| format!(" and group {group}"));
        format!("cannot give {} mode {:o}{group}", path.display(), args.mode)
    })
}

fn gid_of(group: &str) -> anyhow::Result<u32> {
    group.parse().ok().or_else(|| number_of("/etc/group", group)).ok_or_else(|| {
        Failure::Config.error(format!(
            "there is no group {group:?} in /etc/group. Fix: make it, or name it by its number"
        ))
    })
}

/// A process without any capability that removes the socket's file when this one has ended for any reason: this one may not
/// write anything.
pub(super) struct Remover(Option<Child>);

impl Remover {
    pub(super) fn start(path: &Path) -> Remover {
        let child = std::env::current_exe().and_then(|program| {
            Command::new(program)
                .args(["namespace-helper", "--remove-at-end", "--listen"])
                .arg(path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
        });
        // Without it the file stays, and the next helper replaces it.
        Remover(child.ok())
    }

    /// Makes the other process remove the file, and waits until it has.
    pub(super) fn finish(self) {
        let Some(mut child) = self.0 else { return };
        drop(child.stdin.take());
        let _ = child.stdout.take().map(|mut stdout| stdout.read(&mut [0]));
    }
}

/// The main function of the other process: waits for the end of standard input, then removes the file unless it has been
/// replaced.
///
/// # Errors
/// The file cannot be removed.
pub(super) fn remove_at_end(path: &Path) -> anyhow::Result<()> {
    let file = identity(path).context("there is no such file")?;

    // Ctrl-C at a terminal reaches both processes. This one must end second.
    let ignored = Arc::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ignored))?;
    }

    sys::process::keep_capabilities(0).map_err(io::Error::from)?;
    sys::process::forbid_new_privileges().map_err(io::Error::from)?;

    io::copy(&mut io::stdin().lock(), &mut io::sink())?;

    if identity(path) == Some(file) {
        fs::remove_file(path)?;
    }
    Ok(())
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}
