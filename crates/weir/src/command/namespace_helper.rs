//! `weir namespace-helper`: the small process that holds the capabilities, so that the collector needs none.

mod place;

use crate::allowed::{User, users};
use crate::daemon::say;
use crate::exit::Failure;
use crate::screen::Room;
use anyhow::Context;
use place::{Place, Remover};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGINT, SIGTERM};
use sockets::helper::{Allowed, serve};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use sys::process::{
    CAP_NET_ADMIN, CAP_NET_BROADCAST, CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN, CAP_SYS_PTRACE,
    capability_name, capability_set,
};
use sys::seccomp::{Calls, Otherwise, allow_only};

/// Open sockets in network namespaces for a socket collector that has no privilege.
///
/// It finds namespaces, opens netlink sockets in them and passes those to the users who may ask: the superuser, its own user, and
/// the users named. It keeps four capabilities (CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_NET_ADMIN, CAP_NET_BROADCAST), and drops
/// every system call that this does not need: it can neither write files nor start programs. It reports what it lacks, and carries on.
///
/// For listeners with receive = "gro" it loads the program that counts datagrams in the kernel, and passes that.
///
/// To use it: helper = "PATH" in `[sockets]` and in `[daemon]`, or weir sockets --helper PATH.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Path of the unix socket (SOCK_SEQPACKET) to listen at; not needed where a service manager hands one over
    #[arg(long, value_name = "PATH")]
    listen: Option<PathBuf>,
    /// User that may ask, by name (of /etc/passwd) or number; may be given several times
    #[arg(long = "allow-user", value_name = "USER")]
    allow_users: Vec<String>,
    /// Group that the socket's file is given to, by name (of /etc/group) or number
    #[arg(long, value_name = "GROUP", requires = "listen")]
    group: Option<String>,
    /// Permissions of the socket's file, octal: who may connect. Who may ask is decided by --allow-user in any case; but a user who
    /// connects may keep others waiting
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "660", requires = "listen")]
    mode: u32,
    /// Become this user once it listens, by name (of /etc/passwd) or number, and keep the capabilities. For where it has to be
    /// started as root: files and processes of root's are then not its own. Needs CAP_SETUID and CAP_SETGID, and gives them up
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Wait for the end of standard input, then remove the socket's file. For the helper itself, which may not
    #[arg(long, hide = true, requires = "listen")]
    remove_at_end: bool,
}

fn mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777).ok_or_else(|| {
        "it is not an octal number from 0 to 777. Fix: write for example 660".to_owned()
    })
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let (true, Some(path)) = (args.remove_at_end, &args.listen) {
        place::remove_at_end(path)?;
        return Ok(ExitCode::SUCCESS);
    }

    let allowed = users(&args.allow_users)?;
    let user = args.user.as_ref().map(|user| users(std::slice::from_ref(user))).transpose()?;
    let place = Place::open(args)?;
    let remover = place.own_file().map(Remover::start);
    let stop = stop_signals().context("cannot prepare for signals")?;

    if let Some([user]) = user.as_deref() {
        become_user(user)?;
    }
    let kept = give_up_capabilities()?;

    let banner = Room::of(&io::stderr()).folded(&banner(&place, &allowed, kept));
    let uids = allowed.iter().map(|user| user.uid).chain([sys::process::effective_uid()]);
    let allowed = Allowed { uids: uids.collect() };

    // The notification needs its own socket, which a confined process may not open. No request is served before confinement.
    ready();
    confine()?;
    say(&banner);

    let mut refusals = Refusals::default();
    let result = serve(&place.listener, &allowed, stop.as_fd(), |uid| refusals.tell(uid));
    drop(place);

    if let Some(remover) = remover {
        remover.finish();
    }
    result.context("cannot listen any more")?;
    Ok(ExitCode::SUCCESS)
}

/// The end of a socket pair that a signal makes readable.
fn stop_signals() -> io::Result<UnixStream> {
    let (stop, signaled) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, signaled.try_clone()?)?;
    }
    Ok(stop)
}

/// Switches to another user and keeps the capabilities. Must be called before the first thread.
fn become_user(user: &User) -> anyhow::Result<()> {
    let bits = CAPABILITIES.map(|(bit, _)| bit);
    let gid = config::group_of(user.uid).unwrap_or(user.uid);

    // Drop the rest of the bounding set while the capability for that is effective: after the switch none is.
    let kept = capability_set(&bits) | capability_set(&[CAP_SETUID, CAP_SETGID]);
    sys::process::keep_capabilities(kept)
        .and_then(|_| sys::process::become_user(user.uid, gid))
        .map_err(|errno| {
            Failure::Permission.error(format!(
                "cannot become user {}: {errno}. Fix: start it as root with CAP_SETUID and CAP_SETGID, or leave --user out and \
                 start it as that user",
                user.uid
            ))
        })
}

/// The capabilities to keep, and what does not work without each.
const CAPABILITIES: [(u32, &str); 4] = [
    (
        CAP_SYS_ADMIN,
        "no network namespace but its own can be entered, and datagrams that are received together are not counted",
    ),
    (
        CAP_SYS_PTRACE,
        "namespaces of other users' processes are found only where a file stands for them, as ip netns makes it",
    ),
    (
        CAP_NET_ADMIN,
        "namespaces are given no ids, so that connections in them that close between two polls are missing, and receive \
         buffers end at net.core.rmem_max",
    ),
    (CAP_NET_BROADCAST, "connections in other namespaces that close between two polls are missing"),
];

/// Drops all capabilities but [`CAPABILITIES`], and reports which of those are missing. Must be called before the first thread.
fn give_up_capabilities() -> anyhow::Result<u64> {
    let kept = sys::process::keep_capabilities(capability_set(&CAPABILITIES.map(|(bit, _)| bit)))
        .and_then(|kept| sys::process::forbid_new_privileges().map(|()| kept))
        // Other processes of the same user must not gain the capabilities through this process.
        .and_then(|kept| sys::process::forbid_tracing().map(|()| kept))
        .map_err(io::Error::from)
        .context("cannot drop capabilities")?;

    for (bit, lost) in CAPABILITIES {
        if kept & 1 << bit == 0 {
            let name = capability_name(bit).unwrap_or_default();
            say(&format!("weir: without {name} {lost}\n"));
        }
    }

    Ok(kept)
}

fn banner(place: &Place, allowed: &[User], kept: u64) -> String {
    let held: Vec<_> =
        (0..64).filter(|bit| kept & 1 << bit != 0).filter_map(capability_name).collect();
    let held = if held.is_empty() { "no capability".to_owned() } else { held.join(", ") };
    let mut who = vec!["root".to_owned()];
    let own = User { uid: sys::process::effective_uid(), name: None };
    for user in allowed.iter().chain((own.uid != 0).then_some(&own)) {
        who.push(match &user.name {
            Some(name) => format!("{name} ({})", user.uid),
            None => format!("user {}", user.uid),
        });
    }
    format!("namespace helper at {place}, for {}; holds {held}\n", who.join(", "))
}

/// Tells the service manager, if there is one, that the helper is ready.
fn ready() {
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        // Ignore the error: a service manager that does not listen notices by its own timeouts.
        let _ = sd_notify::notify(&[NotifyState::Ready]);
    }
}

/// Permanently leaves the process only the system calls it needs to answer requests. A forbidden call fails instead of ending
/// the process, so that a C library can fall back to another call. For everything else, a failing call does no more harm than a
/// killed process.
fn confine() -> anyhow::Result<()> {
    let list = [
        Calls::RUN,
        Calls::MESSAGES,
        Calls::READ_FILES,
        Calls::OPEN_NETLINK,
        Calls::ENTER_NAMESPACES,
        Calls::COUNT_DATAGRAMS,
    ];
    allow_only(&list, Otherwise::Refuse).map_err(|errno| {
        Failure::Unavailable.error(format!(
            "cannot drop system calls (seccomp): {errno}. Fix: run it on a kernel with CONFIG_SECCOMP_FILTER"
        ))
    })
}

/// Log lines about users that may not ask: at most one a minute.
#[derive(Default)]
struct Refusals {
    told: Option<Instant>,
    since: u64,
}

const TELL_INTERVAL: Duration = Duration::from_secs(60);

impl Refusals {
    fn tell(&mut self, uid: u32) {
        self.since += 1;
        if self.told.is_some_and(|told| told.elapsed() < TELL_INTERVAL) {
            return;
        }
        say(&format!(
            "weir: refused user {uid} ({} times anybody since the last such line). Fix: --allow-user {uid}, if it is the \
             collector's\n",
            std::mem::take(&mut self.since)
        ));
        self.told = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::fs::{self, OpenOptions};
    use std::process::Command;
    use sys::netlink::{Protocol, Socket};

    /// Runs in a child process, which is this program again: a dropped privilege does not come back.
    #[test]
    fn once_confined_it_reads_files_and_opens_netlink_sockets_and_does_nothing_else() {
        const NAME: &str = "namespace_helper::tests::once_confined_it_reads_files_and_opens_netlink_sockets_and_does_nothing_else";
        let Some(file) = env::var_os("WEIR_TEST_FILE") else {
            let file = env::temp_dir().join(format!("weir-confined-{}", std::process::id()));
            fs::write(&file, "before").unwrap();
            let child = Command::new(env::current_exe().unwrap())
                .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
                .env("WEIR_TEST_FILE", &file)
                .output()
                .unwrap();
            assert_eq!(child.status.code(), Some(0), "{child:?}");
            assert_eq!(fs::read(&file).unwrap(), b"before");
            fs::remove_file(&file).unwrap();
            return;
        };
        give_up_capabilities().unwrap();
        confine().unwrap();
        // What a helper does.
        assert!(fs::read_dir("/proc").is_ok() && fs::read_link("/proc/self/ns/net").is_ok());
        assert!(fs::read("/proc/self/mountinfo").is_ok());
        assert!(Socket::open(Protocol::SockDiag).is_ok() && Socket::open(Protocol::Route).is_ok());
        // What it must not be able to do.
        let refused = |result: io::Result<()>| {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        };
        refused(fs::write(&file, "after"));
        refused(OpenOptions::new().append(true).open(&file).map(drop));
        refused(OpenOptions::new().write(true).create_new(true).open("new").map(drop));
        refused(fs::remove_file(&file));
        refused(fs::rename(&file, "moved"));
        refused(fs::create_dir("folder"));
        refused(fs::hard_link(&file, "link"));
        refused(std::os::unix::fs::symlink(&file, "link"));
        refused(fs::set_permissions(&file, fs::metadata(&file).unwrap().permissions()));
        refused(Command::new("true").status().map(drop));
        refused(std::thread::Builder::new().spawn(|| {}).map(drop));
        refused(std::net::TcpListener::bind("127.0.0.1:0").map(drop));
        refused(std::net::UdpSocket::bind("127.0.0.1:0").map(drop));
        refused(UnixStream::connect(&file).map(drop));
        assert!(UnixStream::pair().is_err());
        assert_eq!(fs::read(&file).unwrap(), b"before");
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!((mode("660"), mode("0777")), (Ok(0o660), Ok(0o777)));
        for text in ["", "8", "1000", "rw", "-1"] {
            assert!(mode(text).is_err(), "{text}");
        }
    }
}
