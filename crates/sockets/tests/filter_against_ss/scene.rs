//! A namespace with sockets of every kind, which do not change.

use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use sys::namespace::{Home, OpenNamespace};
use testkit::{need_root_netns, need_tool, run};

/// Whether namespaces can be created and `ss` is available. Prints `skipped:` if not, and fails if they are required.
pub(crate) fn need_root_and_ss() -> bool {
    need_root_netns() && need_tool("ss") && need_tool("nsenter")
}

/// The namespace and its sockets. Both are removed when dropped.
pub(crate) struct Scene {
    name: String,
    home: Home,
    sockets: Vec<Socket>,
    cgroup: Option<Cgroup>,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("weir-filter-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        run(Command::new("ip").args(["netns", "add", &name]));
        let cgroup = Cgroup::new(&name);
        let mut scene =
            Scene { name, home: Home::remember().unwrap(), sockets: Vec::new(), cgroup };
        scene.ip("link set lo up");
        for (device, v4, v6) in [("d0", "10.1.0", "2001:db8:1:"), ("d1", "10.2.0", "2001:db8:2:")] {
            scene.ip(&format!("link add {device} type veth peer name {device}-peer"));
            scene.ip(&format!("link set {device} up"));
            scene.ip(&format!("link set {device}-peer up"));
            for address in [format!("{v4}.1/24"), format!("{v6}:1/64 nodad")] {
                scene.ip(&format!("addr add {address} dev {device}"));
            }
            // A neighbor with a known address that never answers: a connection to it waits for minutes.
            for silent in [format!("{v4}.99"), format!("{v6}:99")] {
                scene.ip(&format!("neigh add {silent} lladdr 02:00:00:00:00:99 dev {device}"));
            }
        }
        scene.sockets = scene.inside(prepare);
        if let Some(cgroup) = &scene.cgroup {
            let path = scene.path();
            scene
                .sockets
                .extend(cgroup.inside(|| enter(&scene.home, &path, connection_of_its_own)));
        }
        scene
    }

    pub(crate) fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// Runs `f` in the namespace, on this thread.
    pub(crate) fn inside<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        enter(&self.home, &self.path(), f)
    }

    /// The expression with the path of the cgroup. Without cgroups, an expression that is valid anywhere.
    pub(crate) fn fill_in(&self, case: &str) -> String {
        match &self.cgroup {
            Some(cgroup) => case.replace("{cgroup}", cgroup.path.to_str().unwrap()),
            None if case.contains("{cgroup}") => "sport = :8001".to_owned(),
            None => case.to_owned(),
        }
    }

    fn ip(&self, args: &str) {
        run(Command::new("ip").args(["-n", &self.name]).args(args.split_whitespace()));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.sockets.clear();
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

fn enter<R: Send>(home: &Home, path: &Path, f: impl FnOnce() -> R + Send) -> R {
    home.enter(&OpenNamespace::open(path).unwrap(), f).unwrap()
}

/// Held while the process, with all its tests, is in the cgroup of one test.
static MOVED: Mutex<()> = Mutex::new(());

/// A cgroup of its own, if there is a writable version 2 hierarchy.
struct Cgroup {
    path: PathBuf,
    home: PathBuf,
}

impl Cgroup {
    fn new(name: &str) -> Option<Cgroup> {
        let _at_home = MOVED.lock().unwrap_or_else(PoisonError::into_inner);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find_map(|line| {
            let mut columns = line.split(' ');
            let path = columns.nth(1)?;
            (columns.next()? == "cgroup2").then_some(path)
        })?;
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let path = Path::new(mount).join(name);
        fs::create_dir(&path).ok()?;
        Some(Cgroup { path, home: Path::new(mount).join(own) })
    }

    /// Runs `f` with the whole process in the cgroup, so that new sockets belong to it. Moves the process back afterwards.
    fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        let _moved = MOVED.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::process::id().to_string();
        fs::write(self.path.join("cgroup.procs"), &pid).unwrap();
        let result = f();
        fs::write(self.home.join("cgroup.procs"), &pid).unwrap();
        result
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _at_home = MOVED.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = fs::write(self.home.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&self.path);
    }
}

/// Options set on a socket before it is bound.
#[derive(Clone, Copy, Default)]
struct Options {
    device: Option<&'static str>,
    mark: u32,
    from: Option<&'static str>,
}

fn prepare() -> Vec<Socket> {
    let mut kept = Vec::new();
    let v4 = listen("127.0.0.1:8001", Options::default());
    let v6 = listen("[::1]:8002", Options::default());
    let dual = listen("[::]:8003", Options::default());
    let own_device = listen("127.0.0.1:8005", Options { device: Some("lo"), ..Options::default() });
    for (address, options) in [
        ("0.0.0.0:80", Options::default()),
        ("127.0.0.1:8080", Options { mark: 0x20, ..Options::default() }),
        ("10.2.0.1:8007", Options { device: Some("d1"), ..Options::default() }),
        ("[2001:db8:1::1]:8006", Options::default()),
        // Bound, to one of the ports that the kernel chooses from.
        ("127.0.0.1:45000", Options::default()),
    ] {
        kept.push(listen(address, options));
    }
    let none = Options::default();
    let marked = |mark| Options { mark, ..none };
    let from = |address| Options { from: Some(address), ..none };
    let on = |device| Options { device: Some(device), ..none };
    for (listener, address, options) in [
        (&v4, "127.0.0.1:8001", none),
        (&v4, "127.0.0.1:8001", from("127.0.0.2:40001")),
        (&v4, "127.0.0.1:8001", from("127.0.0.2:900")),
        (&v4, "127.0.0.1:8001", from("127.0.0.3:0")),
        (&v4, "127.0.0.1:8001", marked(0x10)),
        (&v4, "127.0.0.1:8001", marked(0x11)),
        (&v4, "127.0.0.1:8001", on("lo")),
        (&v6, "[::1]:8002", none),
        (&v6, "[::1]:8002", marked(0x3)),
        (&dual, "127.0.0.1:8003", none),
        (&dual, "[::1]:8003", none),
        (&dual, "[2001:db8:1::1]:8003", none),
        (&dual, "10.1.0.1:8003", none),
        (&own_device, "127.0.0.1:8005", none),
    ] {
        kept.extend(connection(listener, address, options));
    }
    kept.extend(half_closed(&v4));
    kept.push(time_wait(&v4));
    kept.extend(unread(&v4));
    for (address, options) in [
        ("10.1.0.99:81", on("d0")),
        ("10.1.0.99:82", none),
        ("10.2.0.99:81", on("d1")),
        ("[2001:db8:1::99]:81", none),
        ("[2001:db8:2::99]:81", Options { mark: 0x10, ..on("d1") }),
    ] {
        kept.push(unanswered(address, options));
    }
    kept.extend([v4, v6, dual, own_device]);
    kept
}

/// For the cgroup: a listener and a connection.
fn connection_of_its_own() -> Vec<Socket> {
    let listener = listen("127.0.0.9:8001", Options::default());
    let mut kept = Vec::from(connection(&listener, "127.0.0.9:8001", Options::default()));
    kept.push(listener);
    kept
}

fn listen(address: &str, options: Options) -> Socket {
    let address: SocketAddr = address.parse().unwrap();
    let socket = open(address, options);
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(16).unwrap();
    socket
}

fn open(address: SocketAddr, options: Options) -> Socket {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_mark(options.mark).unwrap();
    socket.bind_device(options.device.map(str::as_bytes)).unwrap();
    if let Some(from) = options.from {
        let from: SocketAddr = from.parse().unwrap();
        socket.bind(&SockAddr::from(from)).unwrap();
    }
    socket
}

fn connection(listener: &Socket, address: &str, options: Options) -> [Socket; 2] {
    let address: SocketAddr = address.parse().unwrap();
    let client = open(address, options);
    client.connect(&address.into()).unwrap();
    let (server, _) = listener.accept().unwrap();
    [client, server]
}

/// FIN-WAIT-2 here, and CLOSE-WAIT at the other end.
fn half_closed(listener: &Socket) -> [Socket; 2] {
    let [client, mut server] = connection(listener, "127.0.0.1:8001", Options::default());
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    [client, server]
}

/// TIME-WAIT, which outlives both descriptors. Returns an unrelated socket.
fn time_wait(listener: &Socket) -> Socket {
    let [client, mut server] =
        connection(listener, "127.0.0.1:8001", Options { mark: 0x10, ..Options::default() });
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    drop(server);
    let mut client = TcpStream::from(client);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    drop(client);
    Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap()
}

/// Data that the receiver does not read, all of it acknowledged.
fn unread(listener: &Socket) -> [Socket; 2] {
    let [mut client, server] = connection(listener, "127.0.0.1:8001", Options::default());
    client.write_all(&[7; 2_000]).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while server.peek(&mut [std::mem::MaybeUninit::uninit(); 4_000]).unwrap() < 2_000 {
        assert!(Instant::now() < deadline, "the data never came");
    }
    [client, server]
}

/// SYN-SENT for minutes: nobody answers at the other end of the pair.
fn unanswered(address: &str, options: Options) -> Socket {
    let address: SocketAddr = address.parse().unwrap();
    let socket = open(address, options);
    socket.set_nonblocking(true).unwrap();
    assert!(socket.connect(&address.into()).is_err(), "{address} answered");
    socket
}
