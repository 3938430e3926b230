//! Opens what the configuration names: the sockets of listeners and the destinations of targets.

use super::inherited::Inherited;
use super::link;
use super::names::Names;
use super::receive;
use super::ways::Ways;
use crate::exit::Failure;
use crate::refused::{Wanted, mkdir, own_folder, refused};
use config::{
    HostPort, Listen, ListenerConfig, SinkConfig, Target, TargetConfig, UdpTarget, would_loop,
};
use relay::{
    Gso, LinkListenOptions, Path as Way, Receive, SocketOwner, SourceAddress, TargetKind, UnixPeer,
};
use std::fs::{self, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use sys::process::{CAP_NET_ADMIN, effective_capabilities};
use sys::route::{Egress, Ends};
use sys::socket::{self, Joining, ListenOptions, LocalAddress};

/// A listener's bound socket.
pub(crate) struct OpenSocket {
    pub(crate) socket: OwnedFd,
    pub(crate) owner: SocketOwner,
    pub(crate) receive: Receive,
    /// The helper that counts what the kernel drops of aggregated datagrams, where this process may not.
    pub(crate) helper: Option<PathBuf>,
    pub(crate) file: Option<SocketFile>,
    /// Options of a listener that receives from other Weirs.
    pub(crate) link: Option<LinkListenOptions>,
    /// The other end of the socket pair, which lines of standard input are written to.
    pub(crate) input: Option<UnixDatagram>,
}

impl OpenSocket {
    /// The UDP address it is bound to.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        udp_address(self.socket.as_fd())
    }
}

fn udp_address(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    match socket::local_address(socket) {
        Some(LocalAddress::Inet(addr)) => Some(addr),
        _ => None,
    }
}

/// The file of a unix socket that we bound. Removed at the end, if it is still ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// The file at this path now.
    pub(crate) fn of(path: &Path) -> Option<SocketFile> {
        let metadata = fs::symlink_metadata(path).ok()?;
        Some(SocketFile { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() })
    }

    /// Removes the file, unless another program has replaced it with its own.
    pub(crate) fn remove(&self) {
        if SocketFile::of(&self.path).as_ref() == Some(self)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// What we know about the address that a listener should bind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// No socket should be bound there.
    Free,
    /// One of our own draining listeners is bound there and shares the address (see [`socket::share_address`]).
    LeftByFormer,
}

/// Opens a listener's socket, or finds it among the inherited ones.
///
/// # Errors
/// The address is not available; the message says what to do.
pub(crate) fn listener(
    config: &ListenerConfig,
    place: Place,
    inherited: &mut Inherited,
    names: &Names,
    helper: Option<&Path>,
) -> anyhow::Result<OpenSocket> {
    let at = place_of(&config.listen, names)?;
    refuse_cpus(config)?;
    let link = link::listen_options(config)?;
    if let Some(socket) = inherited.find(&at) {
        if config.sockets() > 1 {
            // Put it back for a corrected file: nobody else could get the port.
            inherited.put_back(socket);
            return Err(stays_alone(config));
        }
        if config.listen.port().is_some() {
            enlarge_receive_buffer(socket.as_fd(), config.receive_buffer_bytes());
        }
        busy_poll(config, socket.as_fd())?;
        let receive = receive::of(config, socket.as_fd(), helper);
        let owner = SocketOwner::ServiceManager;
        return Ok(OpenSocket {
            socket,
            owner,
            receive,
            helper: helper.map(Path::to_owned),
            file: None,
            link,
            input: None,
        });
    }

    let wrong = |error| {
        let wanted = match &at {
            LocalAddress::Inet(addr) => Wanted::Udp(*addr),
            LocalAddress::Unix(path) => Wanted::Unix(path),
        };
        let listener = named(&config.listen, "listener", &config.name);
        refused(format_args!("cannot listen on {listener}"), wanted, &error)
    };
    let mut input = None;
    let (socket, file) = match (&config.listen, &at) {
        (Listen::Stdin, _) => {
            let (ours, socket) = UnixDatagram::pair().map_err(wrong)?;
            input = Some(ours);
            (socket.into(), None)
        }
        (Listen::Udp(udp), LocalAddress::Inet(addr)) => {
            let shares_address = place == Place::LeftByFormer;
            let options = ListenOptions { shares_address, ..udp.listen_options() };
            let socket = socket::listen_udp(*addr, &options).map_err(wrong)?;
            set_receive_buffer(socket.as_fd(), udp.receive_buffer_bytes);
            busy_poll(config, socket.as_fd())?;
            (socket, None)
        }
        (Listen::Weir(weir), LocalAddress::Inet(addr)) => {
            let shares_address = place == Place::LeftByFormer;
            let options = ListenOptions { shares_address, ..ListenOptions::default() };
            let socket = socket::listen_udp(*addr, &options).map_err(wrong)?;
            set_receive_buffer(socket.as_fd(), weir.receive_buffer_bytes);
            (socket, None)
        }
        (Listen::Unix(path), _) | (_, LocalAddress::Unix(path)) => {
            (socket::listen_unix(path).map_err(wrong)?, SocketFile::of(path))
        }
    };
    let receive = receive::of(config, socket.as_fd(), helper);
    Ok(OpenSocket {
        socket,
        owner: SocketOwner::Relay,
        receive,
        helper: helper.map(Path::to_owned),
        file,
        link,
        input,
    })
}

/// The address that a listener's socket should bind.
fn place_of(listen: &Listen, names: &Names) -> anyhow::Result<LocalAddress> {
    Ok(match listen {
        // An unnamed socket, so that nobody else can send to it.
        Listen::Stdin => LocalAddress::Unix(PathBuf::new()),
        Listen::Unix(path) => LocalAddress::Unix(path.clone()),
        Listen::Udp(udp) => LocalAddress::Inet(own_address(&udp.addr, names)?),
        Listen::Weir(weir) => LocalAddress::Inet(own_address(&weir.addr, names)?),
    })
}

fn own_address(host_port: &HostPort, names: &Names) -> anyhow::Result<SocketAddr> {
    names.addresses(host_port).first().copied().ok_or_else(|| {
        Failure::Unavailable.error(format!(
            "cannot listen on {host_port}: {}. Fix: write the address itself",
            names.error(host_port)
        ))
    })
}

/// Opens one more socket for a listener with several sockets, bound to the same address as `first`.
///
/// # Errors
/// Any error of `socket(2)`, or drops of aggregated datagrams cannot be counted on this socket as they are on `first`.
pub(crate) fn joining(
    config: &ListenerConfig,
    at: SocketAddr,
    first: BorrowedFd<'_>,
    helper: Option<&Path>,
) -> io::Result<(Joining, Receive)> {
    let joining = Joining::open(at)?;
    let socket = joining.socket()?;
    if let Some(udp) = config.udp() {
        set_receive_buffer(socket.as_fd(), udp.receive_buffer_bytes);
        udp.busy_poll.map_or(Ok(()), |time| socket::set_busy_poll(socket.as_fd(), time))?;
    }

    let receive = receive::as_first(first, socket.as_fd(), helper)?;
    Ok((joining, receive))
}

/// The error for a service manager's socket with `sockets` above 1: it belongs to another user, and other sockets cannot join
/// it.
pub(crate) fn stays_alone(config: &ListenerConfig) -> anyhow::Error {
    Failure::Config.error(format!(
        "listener {}: its socket is the service manager's, which others cannot join. Fix: remove sockets, or the .socket unit",
        config.name
    ))
}

/// Fails if a listener's threads are pinned to processors that this process may not use.
///
/// # Errors
/// The message says which processors, and what helps.
pub(crate) fn refuse_cpus(config: &ListenerConfig) -> anyhow::Result<()> {
    match config.missing_cpus() {
        Some(why) => Err(Failure::Config.error(format!("listener {}: {why}", config.name))),
        None => Ok(()),
    }
}

/// Turns on busy polling for the socket's receive calls, if configured.
///
/// # Errors
/// Busy polling needs a privilege; the message says which.
pub(crate) fn busy_poll(config: &ListenerConfig, socket: BorrowedFd<'_>) -> anyhow::Result<()> {
    let Some(time) = config.udp().and_then(|udp| udp.busy_poll) else { return Ok(()) };
    socket::set_busy_poll(socket, time).map_err(|error| {
        let what = format_args!("listener {}: busy_poll is not to be had", config.name);
        refused(what, Wanted::BusyPoll, &error)
    })
}

/// Asks for a receive buffer. The banner reports what the kernel granted.
pub(crate) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) {
    // This fails only for a bad descriptor, and then the socket could not have been bound.
    let _ = socket::set_receive_buffer(socket, bytes);
}

/// As [`set_receive_buffer`], but never shrinks the buffer: a service manager may grant more than this process can.
pub(crate) fn enlarge_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) {
    let granted = socket::receive_buffer(socket).unwrap_or(usize::MAX);
    let may_exceed = effective_capabilities().is_some_and(|set| set & (1 << CAP_NET_ADMIN) != 0);
    let reachable = if may_exceed { bytes } else { bytes.min(rmem_max().saturating_mul(2)) };
    if reachable > granted {
        set_receive_buffer(socket, bytes);
    }
}

/// `net.core.rmem_max`; 0 if it cannot be read.
pub(crate) fn rmem_max() -> usize {
    let text = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// An address with the name in brackets, unless the name is the address itself.
fn named(address: &impl ToString, kind: &str, name: &str) -> String {
    let address = address.to_string();
    if address == name { address } else { format!("{address} ({kind} {name})") }
}

/// A target's opened destination.
pub(crate) struct OpenTarget {
    pub(crate) destination: TargetKind,
    /// The address its socket is connected to; `None` for other kinds, and while no address is known.
    pub(crate) address: Option<SocketAddr>,
}

impl OpenTarget {
    fn without_address(destination: TargetKind) -> OpenTarget {
        OpenTarget { destination, address: None }
    }
}

/// Opens a target's destination. A target whose name does not resolve, or that has no route, receives nothing for now and is
/// tried again, so that the others can start.
///
/// `listen_addrs` are all addresses that we listen on; `origin` is the listener that the target belongs to.
///
/// # Errors
/// The target is one of our own listeners, or this host can never open it as configured.
pub(crate) fn target(
    config: &TargetConfig,
    origin: &str,
    names: &Names,
    ways: &Ways,
    listen_addrs: &[SocketAddr],
) -> anyhow::Result<OpenTarget> {
    let destination = match &config.to {
        Target::Udp(udp) => {
            let known = names.addresses(&udp.addr);
            return match choose(&known, udp) {
                Some(addr) => udp_or_nowhere(config, udp, addr, ways, listen_addrs),
                None => {
                    // The resolver thread has already logged a failed lookup.
                    if !names.has_answer(&udp.addr) {
                        tracing::warn!(
                            "target {}: the resolver does not answer about {}; what the target gets is dropped as \
                             target_unresolved until it does",
                            config.name,
                            udp.addr
                        );
                    }
                    Ok(OpenTarget::without_address(TargetKind::Unresolved))
                }
            };
        }
        Target::Unix(path) => TargetKind::Unix { peer: UnixPeer::follow(path.clone())? },
        Target::File(file) => {
            file.path.as_ref().map_or(Ok(()), |path| prepare_file(config, path))?;
            TargetKind::File(file.file_options())
        }
        Target::Weir(weir) => {
            let (destination, addr) =
                link::target(config, weir, origin, names, ways, listen_addrs)?;
            return Ok(OpenTarget { destination, address: Some(addr) });
        }
        Target::Null => TargetKind::Null,
    };

    Ok(OpenTarget::without_address(destination))
}

/// The first address of the family that the fixed source address, if any, requires.
pub(crate) fn choose(addresses: &[SocketAddr], target: &UdpTarget) -> Option<SocketAddr> {
    let source = target.source_address;
    let fits = |addr: &&SocketAddr| source.is_none_or(|ip| ip.is_ipv4() == addr.is_ipv4());
    addresses.iter().find(fits).copied()
}

fn udp_or_nowhere(
    config: &TargetConfig,
    target: &UdpTarget,
    addr: SocketAddr,
    ways: &Ways,
    listen_addrs: &[SocketAddr],
) -> anyhow::Result<OpenTarget> {
    match udp(config, target, addr, ways, listen_addrs) {
        Ok(open) => Ok(open),
        Err(CannotSend::NoRoute(error)) => {
            tracing::warn!(
                "target {}: {addr} cannot be reached ({error}); what it gets is dropped as network_unreachable until it \
                 can. Fix: add a route, until `ip route get {}` prints one",
                config.name,
                addr.ip()
            );
            Ok(OpenTarget::without_address(TargetKind::NoRoute))
        }
        Err(CannotSend::Never(error)) => Err(error),
    }
}

/// Why a UDP target was not opened.
pub(crate) enum CannotSend {
    /// There is no route at the moment.
    NoRoute(io::Error),
    /// The error will not go away by itself.
    Never(anyhow::Error),
}

/// Opens a UDP target at this address.
pub(crate) fn udp(
    config: &TargetConfig,
    target: &UdpTarget,
    addr: SocketAddr,
    ways: &Ways,
    listen_addrs: &[SocketAddr],
) -> Result<OpenTarget, CannotSend> {
    let socket = socket::connect_udp(addr, &target.send_options())
        .map_err(|error| cannot_send(config, Some(target), addr, error))?;

    let ends = Ends { dst: addr, src: udp_address(socket.as_fd()) };
    let (path, egress) = ways.follow(ends);
    check_loop(config, addr, &path, listen_addrs).map_err(CannotSend::Never)?;

    if target.gso == Gso::Auto {
        say_why_no_runs(config, &egress);
    }
    let source_address = target.seen_from(addr);
    if matches!(source_address, SourceAddress::KeptWithPort(_)) {
        // Shells start programs with a limit of 1,024 descriptors. If the limit cannot be raised, we run with what there is: a
        // sender without a descriptor loses its own port, and that is counted.
        let _ = sys::process::raise_open_files_limit();
    }
    let destination = TargetKind::Udp { socket, gso: target.gso, source_address, path };
    Ok(OpenTarget { destination, address: Some(addr) })
}

fn say_why_no_runs(config: &TargetConfig, egress: &io::Result<Egress>) {
    let name = &config.name;
    match egress {
        Ok(egress) if egress.may_drop_within_messages() => tracing::info!(
            "target {name}: every datagram leaves as a message of its own, because a queue on the way ({}) may drop a part of \
             a larger one unseen",
            egress.queue_kinds.join(", ")
        ),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::TimedOut => tracing::info!(
            "target {name}: every datagram leaves as a message of its own until the kernel says which queues are on the way: \
             its tables are locked by others"
        ),
        Err(error) => tracing::info!(
            "target {name}: every datagram leaves as a message of its own, because the kernel does not say which route it takes \
             ({error})"
        ),
    }
}

/// Fails if datagrams sent there would come back to one of our listeners.
pub(crate) fn refuse_loop(
    config: &TargetConfig,
    addr: SocketAddr,
    ways: &Ways,
    listen_addrs: &[SocketAddr],
) -> anyhow::Result<()> {
    let (path, _) = ways.follow(Ends { dst: addr, src: None });
    check_loop(config, addr, &path, listen_addrs)
}

pub(crate) fn check_loop(
    config: &TargetConfig,
    addr: SocketAddr,
    path: &Way,
    listen_addrs: &[SocketAddr],
) -> anyhow::Result<()> {
    let local_addrs = if path.reaches_this_host() { &[addr.ip()][..] } else { &[] };

    match would_loop(listen_addrs, addr, local_addrs) {
        None => Ok(()),
        Some(own) => {
            let mut target = named(&config.to, "named", &config.name);
            if config.to.to_string() != format!("udp://{addr}") {
                target.push_str(&format!(" at {addr}"));
            }

            let own = if own == addr { String::new() } else { format!(" ({own})") };
            Err(Failure::Config.error(format!(
                "target {target} is where we listen{own}: its datagrams would come back to us. Fix: send them elsewhere"
            )))
        }
    }
}

/// Why a socket cannot be connected to this address, with the options of `target` if given.
pub(crate) fn cannot_send(
    config: &TargetConfig,
    target: Option<&UdpTarget>,
    addr: SocketAddr,
    error: io::Error,
) -> CannotSend {
    if matches!(
        error.kind(),
        io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkDown
    ) {
        return CannotSend::NoRoute(error);
    }

    let wanted = match target {
        None => Wanted::SendUdp(None, None),
        Some(target) if target.keeps_source() => Wanted::SendFromAny(target.source_port),
        Some(target) => Wanted::SendUdp(target.source_address, target.source_port),
    };
    let target = named(&config.to, "target", &config.name);
    let what = format_args!("cannot send to {target} at {addr}");
    CannotSend::Never(refused(what, wanted, &error))
}

/// Owner writes, group reads.
const FILE_MODE: u32 = 0o640;

/// Makes sure that a file target can be written. Payloads may hold anything, so others may not read them.
fn prepare_file(config: &TargetConfig, path: &Path) -> anyhow::Result<()> {
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
