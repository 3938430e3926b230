//! A TCP proxy between a client and a server, with faults that can be switched while it runs.

mod connection;

use crate::{free_port, listen, wait_for};
use connection::{Connection, Limits, Step};
use std::io::ErrorKind;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sys::poll::PollSet;

/// What the proxy does to existing and new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it just forwards.
    None,
    /// Forwards at most this many bytes per second, over all connections, in each direction. Fires once for each connection
    /// that has to wait.
    Slow { bytes_per_sec: u64 },
    /// Accepts connections, leaves them open, and reads nothing. Fires once for each connection on which the client sends.
    Hang,
    /// Does not listen, and resets open connections. Fires once for each of those; connections refused by the kernel are not
    /// counted.
    Refuse,
    /// Resets a connection once it has forwarded this many more bytes to the server. Fires for each.
    ResetAfter { sent_bytes: u64 },
    /// Closes a connection once it has forwarded this many more bytes of the server's answers. Fires for each.
    CloseAfter { answered_bytes: u64 },
}

/// Further connections wait in the kernel until one of these has ended.
const CONNECTIONS_MAX: usize = 256;

/// How long a newly set fault may take to become effective.
const TICK: Duration = Duration::from_millis(5);

/// A proxy. One thread serves all connections; everything ends with this value.
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// The fault, and how many have been set before it.
    fault: Mutex<(u64, Option<Fault>)>,
    applied: AtomicU64,
    is_ended: AtomicBool,
    fired: AtomicU64,
    accepted: AtomicU64,
    sent_bytes: AtomicU64,
    answered_bytes: AtomicU64,
}

impl Proxy {
    /// Starts a proxy on loopback for `server`, which need not be running yet.
    #[track_caller]
    pub fn start(server: SocketAddr) -> Proxy {
        Proxy::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())), server)
    }

    /// The same at another address, which the calling thread's namespace has.
    #[track_caller]
    pub fn start_at(addr: SocketAddr, server: SocketAddr) -> Proxy {
        let shared = Arc::new(Shared::default());
        let mut relay = Relay {
            addr,
            server,
            shared: Arc::clone(&shared),
            listener: Some(open(addr)),
            connections: Vec::new(),
            fault: Fault::None,
            limits: Limits::new(Fault::None),
        };
        let thread = thread::spawn(move || relay.run());
        Proxy { addr, shared, thread: Some(thread) }
    }

    /// The address for clients.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sets the fault and waits until it is effective. Resets the count of an earlier one.
    #[track_caller]
    pub fn set(&self, fault: Fault) {
        let number = {
            let mut current = self.shared.fault.lock().unwrap();
            *current = (current.0 + 1, Some(fault));
            current.0
        };
        wait_for("the proxy to take a fault", || {
            (self.shared.applied.load(Ordering::Acquire) == number).then_some(())
        });
    }

    /// How often the current fault has fired: a test that relies on a fault checks that it occurred.
    pub fn fired(&self) -> u64 {
        self.shared.fired.load(Ordering::Acquire)
    }

    /// Number of connections accepted.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Acquire)
    }

    /// Bytes forwarded to the server.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Acquire)
    }

    /// Bytes of the server's answers forwarded to clients.
    pub fn answered_bytes(&self) -> u64 {
        self.shared.answered_bytes.load(Ordering::Acquire)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the proxy's thread panicked");
        }
    }
}

/// The state of the proxy's thread.
struct Relay {
    addr: SocketAddr,
    server: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<TcpListener>,
    connections: Vec<Connection>,
    fault: Fault,
    limits: Limits,
}

impl Relay {
    fn run(&mut self) {
        let mut set = PollSet::default();
        while !self.shared.is_ended.load(Ordering::Acquire) {
            self.take_fault();
            self.accept();
            self.limits.refill(Instant::now());
            self.step();

            set.clear();
            if let Some(listener) = &self.listener {
                connection::add_listener(&mut set, listener);
            }
            for connection in &self.connections {
                connection.add_to(&mut set, self.fault, &self.limits);
            }
            // A signal just ends the wait early.
            let _ = set.wait(TICK);
        }
    }

    fn take_fault(&mut self) {
        let (number, fault) = *self.shared.fault.lock().expect("nobody panics with it");
        if number == self.shared.applied.load(Ordering::Acquire) {
            return;
        }
        self.fault = fault.unwrap_or(Fault::None);
        self.limits = Limits::new(self.fault);
        let mut fired = 0;

        if self.fault == Fault::Refuse {
            self.listener = None;
            fired = self.connections.len() as u64;
            self.connections.drain(..).for_each(Connection::reset);
        } else if self.listener.is_none() {
            self.listener = Some(open(self.addr));
        }
        self.connections.iter_mut().for_each(Connection::forget_fault);
        self.shared.fired.store(fired, Ordering::Release);
        self.shared.applied.store(number, Ordering::Release);
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        while self.connections.len() < CONNECTIONS_MAX {
            let client = match listener.accept() {
                Ok((client, _)) => client,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client was gone before it was accepted.
                Err(_) => continue,
            };
            self.shared.accepted.fetch_add(1, Ordering::Release);
            match TcpStream::connect_timeout(&self.server, Duration::from_secs(1)) {
                Ok(server) => self.connections.push(Connection::new(client, server)),
                Err(_) => connection::reset(client),
            }
        }
    }

    fn step(&mut self) {
        for mut connection in mem::take(&mut self.connections) {
            let step = connection.step(self.fault, &mut self.limits);
            self.shared.sent_bytes.fetch_add(step.sent_bytes, Ordering::Release);
            self.shared.answered_bytes.fetch_add(step.answered_bytes, Ordering::Release);
            self.shared.fired.fetch_add(step.fired.into(), Ordering::Release);
            match step.then {
                Step::Keep => self.connections.push(connection),
                Step::Close => drop(connection),
                Step::Reset => connection.reset(),
            }
        }
    }
}

fn open(addr: SocketAddr) -> TcpListener {
    let listener = listen(addr);
    listener.set_nonblocking(true).expect("it is a socket");
    listener
}
