//! Opens what the configuration names: the sockets of listeners and the destinations of targets.

mod file;

use self::file::prepare_file;
pub(crate) use self::file::{make_folder, sink_file, sink_folder};
use super::inherited::Inherited;
use super::link;
use super::names::Names;
use super::receive;
use super::ways::Ways;
use crate::exit::Failure;
use crate::refused::{Wanted, is_no_device, refused};
use config::{
    HostPort, Listen, ListenerConfig, Target, TargetConfig, UdpListener, UdpTarget, UnixListener,
    choose, would_loop,
};
use ledger::Trouble;
use relay::{
    Gso, LinkListenOptions, Path as Way, Receive, SocketOwner, SourceAddress, TargetKind, UnixPeer,
};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Instant;
use sys::process::{CAP_NET_ADMIN, effective_capabilities};
use sys::route::{Egress, Ends};
use sys::socket::{self, Joining, ListenOptions, LocalAddress, SendOptions, interface_index};

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
    /// The UDP addresses at which it receives.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        socket::receiving_addresses(self.socket.as_fd())
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

/// Why a listener cannot listen.
pub(crate) enum CannotListen {
    /// This host does not have its address or its interface, or its name has no address. That may change.
    Waits(Trouble, Awaited),
    /// The error will not go away by itself.
    Never(anyhow::Error),
}

/// What a listener waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    Interface,
    /// An address of this host, or one of its name.
    Address,
}

impl From<anyhow::Error> for CannotListen {
    fn from(error: anyhow::Error) -> CannotListen {
        CannotListen::Never(error)
    }
}

impl CannotListen {
    /// What is wrong, and what helps.
    pub(crate) fn into_trouble(self) -> Trouble {
        let message = match self {
            CannotListen::Waits(trouble, _) => return trouble,
            CannotListen::Never(error) => format!("{error:#}"),
        };
        let (what, fix) = message.split_once(". Fix: ").unwrap_or((&message, "see the log"));
        Trouble { what: what.to_owned(), fix: fix.to_owned() }
    }
}

/// Opens a listener's socket, or finds it among the inherited ones.
///
/// # Errors
/// The address is not available, now or ever; the message says what to do.
pub(crate) fn listener(
    config: &ListenerConfig,
    place: Place,
    inherited: &mut Inherited,
    names: &Names,
    helper: Option<&Path>,
) -> Result<OpenSocket, CannotListen> {
    let at = place_of(&config.listen, names)?;
    refuse_cpus(config)?;
    let link = link::listen_options(config)?;
    if let Some(socket) = inherited.find(&at) {
        if config.sockets() > 1 {
            // Put it back for a corrected file: nobody else could get the port.
            inherited.put_back(socket);
            return Err(stays_alone(config).into());
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

    let Fresh { socket, file, input } = fresh(config, &at, place, names)?;
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

/// A socket that was opened for a listener.
struct Fresh {
    socket: OwnedFd,
    file: Option<SocketFile>,
    /// Where what is read from standard input goes.
    input: Option<UnixDatagram>,
}

impl Fresh {
    fn new(socket: OwnedFd) -> Fresh {
        Fresh { socket, file: None, input: None }
    }
}

fn fresh(
    config: &ListenerConfig,
    at: &LocalAddress,
    place: Place,
    names: &Names,
) -> Result<Fresh, CannotListen> {
    let wrong = |error| cannot_listen_at(config, at, &error);
    let shares_address = place == Place::LeftByFormer;
    match (&config.listen, at) {
        (Listen::Stdin, _) => {
            let (ours, socket) = UnixDatagram::pair().map_err(wrong)?;
            Ok(Fresh { input: Some(ours), ..Fresh::new(socket.into()) })
        }
        (Listen::Udp(udp), LocalAddress::Inet(addr)) => {
            let options = ListenOptions { shares_address, ..udp.listen_options() };
            let dual = dual(&config.name, udp, names, place);
            let socket = dual.map_or_else(|| socket::listen_udp(*addr, &options), Ok);
            let socket = socket.map_err(wrong)?;
            set_receive_buffer(socket.as_fd(), udp.receive_buffer_bytes);
            busy_poll(config, socket.as_fd())?;
            Ok(Fresh::new(socket))
        }
        (Listen::Weir(weir), LocalAddress::Inet(addr)) => {
            let options = ListenOptions { shares_address, ..ListenOptions::default() };
            let socket = socket::listen_udp(*addr, &options).map_err(wrong)?;
            set_receive_buffer(socket.as_fd(), weir.receive_buffer_bytes);
            Ok(Fresh::new(socket))
        }
        (Listen::Unix(unix), _) => {
            let socket = socket::listen_unix(&unix.path).map_err(wrong)?;
            let file = SocketFile::of(&unix.path);
            share(&config.name, unix).inspect_err(|_| file.iter().for_each(SocketFile::remove))?;
            Ok(Fresh { file, ..Fresh::new(socket) })
        }
        (Listen::Udp(_) | Listen::Weir(_), LocalAddress::Unix(path)) => {
            let socket = socket::listen_unix(path).map_err(wrong)?;
            Ok(Fresh { file: SocketFile::of(path), ..Fresh::new(socket) })
        }
    }
}

/// A socket of both families, for a name such as `localhost`. Where it cannot be had, the name's first address is left.
fn dual(name: &str, udp: &UdpListener, names: &Names, place: Place) -> Option<OwnedFd> {
    if !udp.is_dual(&names.addresses(&udp.addr)) {
        return None;
    }
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, udp.addr.port));
    let shares_address = place == Place::LeftByFormer;
    let options = ListenOptions { shares_address, ..udp.dual_options() };
    let opened = socket::listen_udp(any, &options);
    let opened = opened.inspect_err(|error| {
        tracing::warn!(
            "listener {name}: it listens at the first address of {} alone: a socket for both families cannot be had: {error}. Fix: end \
             what else has the port on this host (`ss -lunp`), or add a listener for the other address",
            udp.addr
        );
    });
    opened.ok()
}

/// What an error of opening a listener's socket means.
fn cannot_listen_at(config: &ListenerConfig, at: &LocalAddress, error: &io::Error) -> CannotListen {
    let wanted = match at {
        LocalAddress::Inet(addr) => Wanted::Udp(*addr),
        LocalAddress::Unix(path) => Wanted::Unix(path),
    };
    let listener = named(&config.listen, "listener", &config.name);
    let refused = refused(format_args!("cannot listen on {listener}"), wanted, error);
    let awaited = match error.kind() {
        io::ErrorKind::AddrNotAvailable => Some(Awaited::Address),
        _ => is_no_device(error).then_some(Awaited::Interface),
    };
    let error = CannotListen::Never(refused);
    match awaited {
        Some(awaited) => CannotListen::Waits(error.into_trouble(), awaited),
        None => error,
    }
}

/// Lets those send to a unix listener's socket who may.
fn share(name: &str, unix: &UnixListener) -> anyhow::Result<()> {
    let wrong = |why| Failure::Config.error(format!("listener {name}: {why}"));
    let ids = unix.ids().map_err(wrong)?;
    socket::share_socket_file(&unix.path, unix.mode.0, ids).map_err(|error| {
        let failure = match error.kind() {
            io::ErrorKind::PermissionDenied => Failure::Permission,
            _ => Failure::Io,
        };
        failure.error(format!(
            "listener {name}: mode, owner and group of {} cannot be set: {error}. Fix: remove owner, name a group of this user's \
             (`id`), or AmbientCapabilities=CAP_CHOWN in the unit",
            unix.path.display()
        ))
    })
}

/// The address that a listener's socket should bind.
fn place_of(listen: &Listen, names: &Names) -> Result<LocalAddress, CannotListen> {
    Ok(match listen {
        // An unnamed socket, so that nobody else can send to it.
        Listen::Stdin => LocalAddress::Unix(PathBuf::new()),
        Listen::Unix(unix) => LocalAddress::Unix(unix.path.clone()),
        Listen::Udp(udp) => LocalAddress::Inet(own_address(&udp.addr, names)?),
        Listen::Weir(weir) => LocalAddress::Inet(own_address(&weir.addr, names)?),
    })
}

fn own_address(host_port: &HostPort, names: &Names) -> Result<SocketAddr, CannotListen> {
    names.addresses(host_port).first().copied().ok_or_else(|| {
        let trouble = Trouble {
            what: format!("cannot listen on {host_port}: {}", names.error(host_port)),
            fix: "write the address itself".to_owned(),
        };
        CannotListen::Waits(trouble, Awaited::Address)
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
    let is_dual = socket::receiving_addresses(first).len() > 1;
    let options = if is_dual { UdpListener::dual_options } else { UdpListener::listen_options };
    let options = config.udp().map(options).unwrap_or_default();
    let joining = Joining::open(at, &options)?;
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

/// `net.core.rmem_max`, from a socket where the sysctl cannot be read; 0 if that fails too.
pub(crate) fn rmem_max() -> usize {
    let text = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    text.trim().parse().ok().or_else(|| socket::receive_buffer_max().ok()).unwrap_or(0)
}

/// An address with the name in brackets, unless the name is the address itself.
fn named(address: &impl ToString, kind: &str, name: &str) -> String {
    let address = address.to_string();
    if address == name { address } else { format!("{address} ({kind} {name})") }
}

/// A target's opened destination.
pub(crate) struct OpenTarget {
    pub(crate) destination: TargetKind,
    /// What its socket depends on; `None` for other kinds, and while no socket is open.
    pub(crate) anchor: Option<Anchor>,
    /// What this host does not have that the target is to send by, if it waits for that.
    pub(crate) absent: Option<anyhow::Error>,
}

impl OpenTarget {
    pub(crate) fn without_socket(destination: TargetKind) -> OpenTarget {
        OpenTarget { destination, anchor: None, absent: None }
    }
}

/// What a connected UDP socket took from this host when it was opened, and keeps although this host changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    /// The address that it is connected to.
    pub(crate) remote: SocketAddr,
    /// The address that its datagrams leave from.
    pub(crate) source: Option<IpAddr>,
    /// Index of the interface that its options name; 0 if they name none.
    interface_index: u32,
    pub(crate) opened: Instant,
}

impl Anchor {
    pub(crate) fn of(socket: BorrowedFd<'_>, remote: SocketAddr, options: &SendOptions) -> Anchor {
        let interface = options.multicast_interface.as_deref().or(options.interface.as_deref());
        Anchor {
            opened: Instant::now(),
            remote,
            source: udp_address(socket).map(|addr| addr.ip()),
            interface_index: interface.map_or(0, |name| interface_index(name).unwrap_or(0)),
        }
    }

    /// Whether a socket with the other anchor would serve as well.
    pub(crate) fn is_like(&self, other: &Anchor) -> bool {
        (self.remote, self.source, self.interface_index)
            == (other.remote, other.source, other.interface_index)
    }

    /// In words, what a socket with this anchor has other than one with `former`.
    pub(crate) fn differences(&self, former: Option<&Anchor>) -> String {
        let Some(former) = former else {
            return format!("sending to {}, before nowhere", self.remote);
        };
        if former.remote != self.remote {
            return format!("sending to {}, before {}", self.remote, former.remote);
        }
        let shown = |source: Option<IpAddr>| source.map_or("?".to_owned(), |ip| ip.to_string());
        match former.source == self.source {
            true => "sending by the interface that has its name now".to_owned(),
            false => {
                format!("sending from {}, before {}", shown(self.source), shown(former.source))
            }
        }
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
            return match choose(&known, udp.source_address) {
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
                    Ok(OpenTarget::without_socket(TargetKind::Unresolved))
                }
            };
        }
        Target::Unix(path) => TargetKind::Unix { peer: UnixPeer::follow(path.clone())? },
        Target::File(file) => {
            file.path.as_ref().map_or(Ok(()), |path| prepare_file(config, path))?;
            TargetKind::File(file.file_options())
        }
        Target::Weir(weir) => {
            return link::target(config, weir, origin, names, ways, listen_addrs);
        }
        Target::Null => TargetKind::Null,
    };

    Ok(OpenTarget::without_socket(destination))
}

fn udp_or_nowhere(
    config: &TargetConfig,
    target: &UdpTarget,
    addr: SocketAddr,
    ways: &Ways,
    listen_addrs: &[SocketAddr],
) -> anyhow::Result<OpenTarget> {
    let open = |(socket, anchor): (OwnedFd, Anchor)| {
        let destination = udp(config, target, (socket, anchor), ways, listen_addrs)?;
        Ok(OpenTarget { destination, anchor: Some(anchor), absent: None })
    };
    match connect(config, target, addr).and_then(open) {
        Ok(open) => Ok(open),
        Err(CannotSend::NoRoute(error)) => {
            tracing::warn!(
                "target {}: {addr} cannot be reached ({error}); what it gets is dropped as network_unreachable until it \
                 can. Fix: {}",
                config.name,
                way_out(addr, &error)
            );
            let is_absent = error.kind() == io::ErrorKind::AddrNotAvailable;
            let absent = is_absent.then(|| why_never(config, Some(target), addr, &error));
            Ok(OpenTarget { absent, ..OpenTarget::without_socket(TargetKind::NoRoute) })
        }
        Err(CannotSend::Never(error)) => Err(error),
    }
}

/// What makes a send to this address possible, after this error.
pub(crate) fn way_out(addr: SocketAddr, error: &io::Error) -> String {
    if is_no_device(error) {
        return "make the interface, until `ip link` lists it".to_owned();
    }
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            "add the source address, until `ip address` lists it".to_owned()
        }
        _ => format!("add a route, until `ip route get {}` prints one", addr.ip()),
    }
}

/// Why a UDP target was not opened.
pub(crate) enum CannotSend {
    /// There is no route at the moment, or an address or interface of this host that it is to use is not there.
    NoRoute(io::Error),
    /// The error will not go away by itself.
    Never(anyhow::Error),
}

/// Opens the socket of a UDP target at this address.
pub(crate) fn connect(
    config: &TargetConfig,
    target: &UdpTarget,
    addr: SocketAddr,
) -> Result<(OwnedFd, Anchor), CannotSend> {
    let options = target.send_options();
    let socket = socket::connect_udp(addr, &options)
        .map_err(|error| cannot_send(config, Some(target), addr, error))?;
    let anchor = Anchor::of(socket.as_fd(), addr, &options);
    Ok((socket, anchor))
}

/// A UDP target with this socket, whose path is followed.
pub(crate) fn udp(
    config: &TargetConfig,
    target: &UdpTarget,
    (socket, anchor): (OwnedFd, Anchor),
    ways: &Ways,
    listen_addrs: &[SocketAddr],
) -> Result<TargetKind, CannotSend> {
    let addr = anchor.remote;
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
    Ok(TargetKind::Udp { socket, gso: target.gso, source_address, path })
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
    // An address or an interface of this host may come later, as a route may.
    let is_absent = error.kind() == io::ErrorKind::AddrNotAvailable || is_no_device(&error);
    if is_absent
        || matches!(
            error.kind(),
            io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkDown
        )
    {
        return CannotSend::NoRoute(error);
    }
    CannotSend::Never(why_never(config, target, addr, &error))
}

fn why_never(
    config: &TargetConfig,
    target: Option<&UdpTarget>,
    addr: SocketAddr,
    error: &io::Error,
) -> anyhow::Error {
    let wanted = match target {
        None => Wanted::SendUdp(None, None),
        Some(target) if target.keeps_source() => Wanted::SendFromAny(target.source_port),
        Some(target) => Wanted::SendUdp(target.source_address, target.source_port),
    };
    let target = named(&config.to, "target", &config.name);
    refused(format_args!("cannot send to {target} at {addr}"), wanted, error)
}
