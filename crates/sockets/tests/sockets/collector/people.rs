//! Sockets for a collector to find.

use socket2::SockRef;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use testkit::Netns;

/// The kinds of sockets at the ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ends {
    V4,
    V6,
    /// An IPv4 client of an IPv6 listener.
    Mapped,
}

impl Ends {
    fn addresses(self) -> (IpAddr, IpAddr) {
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        match self {
            Ends::V4 => (v4, v4),
            Ends::V6 => (v6, v6),
            Ends::Mapped => (Ipv6Addr::UNSPECIFIED.into(), v4),
        }
    }
}

/// Connections within a namespace, and their listener.
pub(crate) struct Crowd {
    pub(crate) pairs: Vec<(TcpStream, TcpStream)>,
    pub(crate) listener: TcpListener,
}

impl Crowd {
    pub(crate) fn new(netns: &Netns, ends: Ends, connections: usize) -> Crowd {
        netns.inside(|| {
            let (listens_at, server) = ends.addresses();
            let listener = TcpListener::bind((listens_at, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let pairs = (0..connections).map(|_| {
                let client = TcpStream::connect((server, port)).unwrap();
                (client, listener.accept().unwrap().0)
            });
            Crowd { pairs: pairs.collect(), listener }
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// Cookies of both ends of a connection.
    pub(crate) fn cookies(&self, at: usize) -> [u64; 2] {
        let (client, server) = &self.pairs[at];
        [cookie(client), cookie(server)]
    }
}

pub(crate) fn cookie(socket: &TcpStream) -> u64 {
    SockRef::from(socket).cookie().unwrap()
}

/// Connections that are opened, used and closed or aborted as fast as possible, until the storm is dropped.
pub(crate) struct Storm<'s> {
    is_over: &'s AtomicBool,
}

pub(crate) fn storm<R>(netns: &Netns, threads: usize, f: impl FnOnce(&AtomicU64) -> R) -> R {
    let (is_over, connections) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Ends even if `f` panics: the scope waits for its threads.
        let _storm = Storm { is_over: &is_over };
        for thread in 0..threads {
            let (is_over, connections) = (&is_over, &connections);
            scope.spawn(move || {
                netns.inside(|| {
                    let ends = if thread.is_multiple_of(2) { Ends::V4 } else { Ends::Mapped };
                    let (listens_at, server) = ends.addresses();
                    let listener = TcpListener::bind((listens_at, 0)).unwrap();
                    let port = listener.local_addr().unwrap().port();
                    while !is_over.load(Ordering::Relaxed) {
                        // Ports run out for a moment: connections closed in order stay for a minute.
                        let Ok(client) = TcpStream::connect((server, port)) else { continue };
                        let (accepted, _) = listener.accept().unwrap();
                        let count = connections.fetch_add(1, Ordering::Relaxed);
                        if !count.is_multiple_of(8) {
                            SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
                        }
                        drop((client, accepted));
                    }
                });
            });
        }
        f(&connections)
    })
}

impl Drop for Storm<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The words that `ss` prints for each socket, by cookie.
pub(crate) fn ss(netns: &Netns) -> BTreeMap<u64, Vec<String>> {
    let output = Command::new("nsenter")
        .arg(format!("--net={}", netns.path().display()))
        .args(["ss", "-tinemHOa"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "ss: {error}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut sockets = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let cookie = words.iter().find_map(|word| word.strip_prefix("sk:")).unwrap();
        let cookie = u64::from_str_radix(cookie, 16).unwrap();
        assert!(sockets.insert(cookie, words).is_none(), "ss lists {line} twice");
    }
    sockets
}
