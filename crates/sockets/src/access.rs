//! How the collector reaches namespaces: from this process, or through the helper that holds the capabilities.

use crate::quiet::TcpCounts;
use std::io;
use std::os::fd::AsFd;
use sys::Errno;
use sys::namespace::{Discovery, Error, Home, Identity, Nsids, Scan, Target};
use sys::netlink::{Protocol, Socket};
use sys::socket::set_receive_buffer;

/// Which namespaces to collect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// This process's own. Needs no privilege.
    Own,
    /// Every namespace that can be found.
    All,
    /// Those with these names, as in [`Found::name`].
    Named(Vec<String>),
}

/// A namespace that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Identity of the namespace.
    pub id: Identity,
    /// Its name, if it is mounted at a file: what `ip netns` or a container engine calls it.
    pub name: Option<String>,
    /// A process in it, if one was seen.
    pub process: Option<u32>,
}

/// Multicast groups of `NETLINK_SOCK_DIAG` (`enum sknetlink_groups`, linux/sock_diag.h).
const SKNLGRP_INET_TCP_DESTROY: u32 = 1;
const SKNLGRP_INET6_TCP_DESTROY: u32 = 3;

/// Opens what the collector reads. Descriptors of namespaces themselves never outlive a call.
pub trait Access: Send {
    /// Finds the namespaces in the scope. The own one comes first if it is in the scope.
    ///
    /// # Errors
    /// The search failed. The namespaces in `found` can still be opened, for instance the own one. Namespaces that are invisible
    /// for lack of a capability are not an error; the result counts them.
    fn discover(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan>;

    /// As [`Self::discover`], but reuses the last discovery for what only processes lead to. A cheap call when something was
    /// mounted.
    ///
    /// # Errors
    /// As [`Self::discover`].
    fn discover_mounted(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan> {
        self.discover(scope, found)
    }

    /// Whether this process searches with its own rights, so that additional capabilities would show more.
    fn is_direct(&self) -> bool {
        true
    }

    /// Opens a `NETLINK_SOCK_DIAG` socket in the namespace at index `at` of the last discovery.
    ///
    /// # Errors
    /// The namespace is gone or may not be entered.
    fn open(&mut self, at: usize) -> Result<Socket, Error>;

    /// The id that close events use for the namespace at index `at` of the last discovery. Assigns one if it has none.
    ///
    /// # Errors
    /// Any netlink error; `EPERM` without `CAP_NET_ADMIN`, `EACCES` when the namespace may not be opened, `ENOENT` when it is
    /// gone.
    fn nsid(&mut self, at: usize) -> Result<i32, Errno>;

    /// The kernel's TCP counters of the namespace at index `at` of the last discovery. If they cannot be read, every poll walks
    /// the namespace.
    ///
    /// # Errors
    /// As [`Self::open`]; `ENOSYS` when the access has no way to read them.
    fn tcp_counts(&mut self, at: usize) -> Result<TcpCounts, Error> {
        let _ = at;
        Err(Error::Syscall { call: "reading the counts of TCP", errno: Errno::NOSYS })
    }

    /// A second access with the same rights, whose discoveries do not change the indices of this one. `None` when only polls can
    /// find new namespaces.
    fn second(&self) -> Option<Box<dyn Access>> {
        None
    }

    /// Opens the socket that receives events of TCP sockets being destroyed, with a receive buffer of `buffer_bytes` if that is
    /// allowed.
    ///
    /// # Errors
    /// This kernel has no such events, or receiving those of other namespaces is not allowed.
    fn events(&mut self, hears: Hears, buffer_bytes: usize) -> Result<Socket, Errno>;
}

/// Whose close events are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hears {
    /// Those of the own namespace.
    Own,
    /// Those of every namespace that has an id.
    All,
}

/// Access with the rights of this process. Create and use it on one thread: it enters namespaces with that thread.
#[derive(Default)]
pub struct Direct {
    discovery: Discovery,
    /// Indices of the last result in `discovery`.
    places: Vec<usize>,
    own: Option<Identity>,
    home: Option<Home>,
    nsids: Option<Nsids>,
}

impl Direct {
    /// Access from the namespace of the calling thread.
    #[must_use]
    pub fn new() -> Direct {
        Direct::default()
    }

    fn home(&mut self) -> Result<&Home, Error> {
        if self.home.is_none() {
            self.home = Some(Home::remember()?);
        }
        self.home.as_ref().ok_or(Error::Gone)
    }

    /// Runs `f` in the namespace at index `at` of the last discovery.
    fn inside<R: Send>(&mut self, at: usize, f: impl FnOnce() -> R + Send) -> Result<R, Error> {
        let place = *self.places.get(at).ok_or(Error::Gone)?;
        let other = self.discovery.namespace(place).filter(|one| Some(one.id) != self.own);
        // The own one is not entered: that would need a capability.
        let Some(namespace) = other else { return Ok(f()) };

        // Closed on return: an open descriptor would keep the namespace alive after its last process.
        let namespace = namespace.open()?;
        self.home()?.enter(&namespace, f)
    }
}

impl Direct {
    fn look(
        &mut self,
        scope: &Scope,
        found: &mut Vec<Found>,
        scan: impl FnOnce(&mut Discovery) -> io::Result<Scan>,
    ) -> io::Result<Scan> {
        found.clear();
        self.places.clear();
        let own = sys::namespace::own()?;
        self.own = Some(own);
        if *scope == Scope::Own {
            found.push(Found { id: own, name: None, process: None });
            self.places.push(0);
            return Ok(Scan::default());
        }
        let scan = scan(&mut self.discovery)?;
        for (place, namespace) in self.discovery.namespaces().enumerate() {
            let name = namespace.name().map(|name| String::from_utf8_lossy(name).into_owned());
            if let Scope::Named(names) = scope
                && !name.as_ref().is_some_and(|name| names.contains(name))
            {
                continue;
            }
            found.push(Found { id: namespace.id, name, process: namespace.process });
            self.places.push(place);
        }
        Ok(scan)
    }
}

impl Access for Direct {
    fn discover(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan> {
        self.look(scope, found, Discovery::scan)
    }

    fn discover_mounted(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan> {
        self.look(scope, found, Discovery::scan_mounted)
    }

    fn open(&mut self, at: usize) -> Result<Socket, Error> {
        self.inside(at, || Socket::open(Protocol::SockDiag))?
            .map_err(|errno| Error::Syscall { call: "socket", errno })
    }

    fn tcp_counts(&mut self, at: usize) -> Result<TcpCounts, Error> {
        let missing = Error::Syscall { call: "reading the counts of TCP", errno: Errno::NOENT };
        self.inside(at, TcpCounts::read)?.ok_or(missing)
    }

    fn nsid(&mut self, at: usize) -> Result<i32, Errno> {
        if self.nsids.is_none() {
            self.nsids = Some(Nsids::open().map_err(|error| Errno::from(&error))?);
        }
        let place = self.places.get(at).copied();
        let namespace = place.and_then(|place| self.discovery.namespace(place));
        let open = namespace.ok_or(Errno::NOENT)?.open().map_err(|error| match error {
            Error::Gone => Errno::NOENT,
            Error::NotPermitted { .. } => Errno::ACCES,
            Error::Syscall { errno, .. } => errno,
        })?;
        self.nsids.as_mut().ok_or(Errno::NOENT)?.assign(Target::Open(open.as_fd()))
    }

    fn second(&self) -> Option<Box<dyn Access>> {
        Some(Box::new(Direct::new()))
    }

    fn events(&mut self, hears: Hears, buffer_bytes: usize) -> Result<Socket, Errno> {
        let socket = Socket::open(Protocol::SockDiag)?;
        if hears == Hears::All {
            socket.listen_all_namespaces()?;
        }
        set_receive_buffer(socket.as_fd(), buffer_bytes).map_err(|error| Errno::from(&error))?;
        socket.join_group(SKNLGRP_INET_TCP_DESTROY)?;
        socket.join_group(SKNLGRP_INET6_TCP_DESTROY)?;
        Ok(socket)
    }
}
