//! Servers shared by all tests of a run, across test executables.
//!
//! Each process that uses such a server holds a shared lock on its file `lease`. A keeper, the shell that has started the server,
//! waits for the exclusive lock: it gets the lock when the last of them has ended, however it ended, and then kills the server.
//! `scripts/test.sh` holds the leases for its whole duration, so that executables that run one after the other share the servers
//! too.

use super::Server;
use super::place::{Life, Place};
use crate::wait_for;
use std::env;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The keeper's script: `sh -c KEEPER sh FOLDER COMMAND...`. It removes the address while it holds the lock, so that nobody uses
/// a server that is about to end.
const KEEPER: &str = r#"
folder=$1; shift
"$@" &
server=$!
flock --exclusive "$folder/lease" sh -c 'rm -f "$1/address"; kill -s KILL "$2"; rm -rf "$1/data"' sh "$folder" "$server"
wait "$server"
"#;

/// A server that this process uses until it ends.
struct Held {
    addr: SocketAddr,
    _lease: File,
    /// If this process has started it.
    _keeper: Option<Child>,
}

/// The address of the shared server of this kind. Starts the server if necessary.
#[track_caller]
pub(super) fn address(server: Server) -> SocketAddr {
    // One for each kind, so that nobody waits for a server that another test needs.
    static HELD: [OnceLock<Held>; Server::ALL.len()] =
        [const { OnceLock::new() }; Server::ALL.len()];
    HELD[server as usize].get_or_init(|| take(server)).addr
}

#[track_caller]
fn take(server: Server) -> Held {
    let folder = all_servers().join(server.name());
    fs::create_dir_all(&folder).unwrap();
    // Only one process at a time checks and starts.
    let starting = File::create(folder.join("starting")).unwrap();
    starting.lock().unwrap();
    let lease = File::create(folder.join("lease")).unwrap();
    lease.lock_shared().unwrap();

    let known = fs::read_to_string(folder.join("address")).unwrap_or_default();
    let listens = |addr: &SocketAddr| TcpStream::connect(addr).is_ok();
    if let Some(addr) = known.parse().ok().filter(listens) {
        return Held { addr, _lease: lease, _keeper: None };
    }
    let (addr, keeper) = start(server, &folder);
    Held { addr, _lease: lease, _keeper: Some(keeper) }
}

#[track_caller]
fn start(server: Server, folder: &Path) -> (SocketAddr, Child) {
    let _ = fs::remove_dir_all(folder.join("data"));
    let _ = fs::remove_file(folder.join("log"));
    let place = Place::new(folder, Life::Shared);
    let command = server.command(&place);

    let mut keeper = Command::new("sh");
    keeper.args(["-c", KEEPER, "sh"]).arg(folder);
    keeper.arg(command.get_program()).args(command.get_args());
    // Interrupting the tests from a terminal ends them, and so releases the lease.
    keeper.process_group(0).stdin(Stdio::null()).stdout(place.log()).stderr(place.log());
    let keeper = keeper.spawn().unwrap();

    let what = || format!("{} to answer: {}", server.name(), place.last_words());
    wait_for(what, || server.answers(&place).then_some(()));
    fs::write(folder.join("address"), place.addr.to_string()).unwrap();
    (place.addr, keeper)
}

/// `$WEIR_TEST_SERVERS`, or else a directory in the target directory in which this program was built, where cargo keeps files
/// written by tests.
fn all_servers() -> PathBuf {
    if let Some(folder) = env::var_os("WEIR_TEST_SERVERS") {
        return folder.into();
    }
    let program = env::current_exe().unwrap();
    // TARGET/debug/deps/PROGRAM
    program.ancestors().nth(3).expect("cargo built it").join("tmp/servers")
}
