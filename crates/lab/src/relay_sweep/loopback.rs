use crate::network::Error;
use sys::link::Links;
use sys::namespace::OpenNamespace;

/// A network of the lab's own in which there is nothing but loopback: ports are free there, and nothing else passes. It lives
/// as long as this, its threads, sockets and processes do.
pub struct Loopback(OpenNamespace);

impl Loopback {
    /// Makes it. Needs [`crate::network::Privilege`].
    ///
    /// # Errors
    /// [`Error`], which names what is missing.
    pub fn create() -> Result<Loopback, Error> {
        let namespace = OpenNamespace::create().map_err(of_loopback)?;
        Links::open(&namespace)?.set_up("lo")?;
        Ok(Loopback(namespace))
    }

    /// Runs `f` in it, on a thread of its own, and waits for it. Threads and processes that `f` starts are in it too.
    ///
    /// # Errors
    /// When the thread cannot be started or moved.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> Result<R, Error> {
        self.0.run(f).map_err(of_loopback)
    }
}

fn of_loopback(source: sys::namespace::Error) -> Error {
    Error::Namespace { of: "the relay and its receivers", source }
}
