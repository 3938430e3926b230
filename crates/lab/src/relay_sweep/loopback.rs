use crate::network::Error;
use sys::link::Links;
use sys::namespace::OpenNamespace;

/// A network namespace with only a loopback device: all ports are free, and there is no other traffic. It lives as long as
/// this value and its threads, sockets and processes.
pub struct Loopback(OpenNamespace);

impl Loopback {
    /// Creates the network. Requires [`crate::network::Privilege`].
    ///
    /// # Errors
    /// [`Error`], which names what is missing.
    pub fn create() -> Result<Loopback, Error> {
        let namespace = OpenNamespace::create().map_err(of_loopback)?;
        Links::open(&namespace)?.set_up("lo")?;
        Ok(Loopback(namespace))
    }

    /// Runs `f` in the network, on a separate thread, and waits for it. Threads and processes that `f` starts are in the
    /// network too.
    ///
    /// # Errors
    /// The thread cannot be started or moved.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> Result<R, Error> {
        self.0.run(f).map_err(of_loopback)
    }
}

fn of_loopback(source: sys::namespace::Error) -> Error {
    Error::Namespace { of: "the relay and its receivers", source }
}
