//! Sockets passed in by a service manager (sd_listen_fds(3)).

use super::drops::{self, Drops};
use crate::exit::Failure;
use config::ListenerConfig;
use std::os::fd::{AsFd, OwnedFd};
use sys::socket::{self, LocalAddress};

/// Sockets passed in by a service manager that no listener uses (yet).
#[derive(Default)]
pub(crate) struct Inherited(Vec<OwnedFd>);

impl Inherited {
    /// Takes the descriptors passed to this process: sockets, and the drop counts that an earlier process noted for them.
    ///
    /// # Errors
    /// One of the sockets is not a datagram socket.
    pub(crate) fn take() -> anyhow::Result<(Inherited, Drops)> {
        let (stored, sockets): (Vec<_>, Vec<_>) =
            sys::activation::take().into_iter().partition(|one| one.name == drops::NAME);
        let drops = Drops::open(stored.into_iter().next().map(|one| one.fd));
        let sockets: Vec<_> = sockets.into_iter().map(|one| one.fd).collect();
        match sockets.iter().find(|socket| !socket::is_datagram(socket.as_fd())) {
            None => Ok((Inherited(sockets), drops)),
            Some(stream) => Err(Failure::Config.error(format!(
                "the service manager handed over {}, which carries no datagrams. \
                 Fix: write ListenDatagram= in the .socket unit",
                describe(stream)
            ))),
        }
    }

    /// Returns a socket that a listener no longer uses. The service manager holds it too, so the address could not be bound
    /// again.
    pub(crate) fn put_back(&mut self, socket: OwnedFd) {
        self.0.push(socket);
    }

    /// Fails if a socket is left over at the start: nobody would read it, and it would fill up.
    pub(crate) fn expect_none(&self, listeners: &[ListenerConfig]) -> anyhow::Result<()> {
        let Some(socket) = self.0.first() else { return Ok(()) };
        let ours: Vec<_> = listeners.iter().map(|listener| listener.listen.to_string()).collect();
        Err(Failure::Config.error(format!(
            "the service manager handed over a socket at {}, where no listener listens (they listen on {}). \
             Fix: make ListenDatagram= in the .socket unit and listen in the configuration equal",
            describe(socket),
            ours.join(", ")
        )))
    }

    /// Takes the socket that is bound to this address.
    pub(crate) fn find(&mut self, at: &LocalAddress) -> Option<OwnedFd> {
        let is_it = |socket: &OwnedFd| socket::local_address(socket.as_fd()).as_ref() == Some(at);
        let index = self.0.iter().position(is_it)?;
        Some(self.0.swap_remove(index))
    }
}

fn describe(socket: &OwnedFd) -> String {
    match socket::local_address(socket.as_fd()) {
        Some(LocalAddress::Inet(addr)) => format!("{addr}"),
        Some(LocalAddress::Unix(path)) => format!("unix:{}", path.display()),
        None => "an unknown address".to_owned(),
    }
}
