//! The receiver: reads marked datagrams and reports what is missing, duplicate, reordered, corrupt, truncated or late.
//!
//! Each listener has its own thread and socket and judges independently, because each of a relay's targets gets every
//! datagram. Memory is bounded: a bitmap window for each stream, and at most [`Options::streams_max`] streams.

mod listener;
mod report;
mod run;
mod stream;
mod tracker;

pub use report::{Counts, Gap, ListenerReport, Progress, Report, RunReport, SenderReport};

use crate::Address;
pub(crate) use listener::Bound;
use run::Finished;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;
pub(crate) use stream::Stream;

/// What to listen on, how to judge, and when to stop.
#[derive(Clone, Debug)]
pub struct Options {
    pub listeners: Vec<Address>,
    /// Interface on which to join a multicast group: a name or, for IPv4, its address.
    pub multicast_interface: Option<String>,
    /// Receive buffer size to request, in bytes of the kernel's accounting. The report has the size granted.
    pub receive_buffer_bytes: usize,
    pub until: Until,
    /// Age at which a datagram counts as late.
    pub late_after: Duration,
    /// Most streams (run, sender, flow) to track on each listener; datagrams of further ones are only counted. Each
    /// costs an eighth of the window in bytes.
    pub streams_max: usize,
    /// How far behind the highest sequence number a duplicate can be distinguished from a late arrival, in datagrams.
    pub window: usize,
    /// Pause between system calls. A longer pause means fewer wake-ups and less CPU, but is included in the latencies.
    pub read_interval: Duration,
}

impl Options {
    /// The default options of `weir verify`.
    pub fn on(listeners: Vec<Address>) -> Options {
        Options {
            listeners,
            multicast_interface: None,
            receive_buffer_bytes: 64 * 1_024 * 1_024,
            until: Until::default(),
            late_after: Duration::from_secs(1),
            streams_max: 1_024,
            window: 1_048_576,
            read_interval: Duration::ZERO,
        }
    }
}

/// When a listener stops: when any of these holds, or its stop flag is set.
#[derive(Clone, Debug, Default)]
pub struct Until {
    /// This long after the start.
    pub duration: Option<Duration>,
    /// When this many distinct data datagrams have arrived.
    pub count: Option<u64>,
    /// When the senders have announced their end.
    pub done: Option<Done>,
}

/// When the senders count as done.
#[derive(Clone, Debug)]
pub struct Done {
    /// Number of runs that must end.
    pub runs: usize,
    /// Silence after the last end heartbeat, for late datagrams; at most 50 ms if none is outstanding.
    pub idle: Duration,
    /// Silence after the first datagram that means the end heartbeats are lost. The report then says that the end was
    /// not seen.
    pub silence: Duration,
}

impl Default for Done {
    fn default() -> Done {
        Done { runs: 1, idle: Duration::from_secs(1), silence: Duration::from_secs(10) }
    }
}

/// Why the receiver could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no listener")]
    NoListener,
    #[error("cannot listen on {address}")]
    Listen {
        address: Address,
        #[source]
        source: io::Error,
    },
}

/// Bound sockets that have not been read yet.
pub struct Verifier {
    options: Options,
    bound: Vec<Bound>,
    progress: Arc<[Progress]>,
}

impl Verifier {
    /// Binds all listeners. Everything that arrives from now on is counted.
    ///
    /// # Errors
    /// An address cannot be listened on.
    pub fn bind(options: Options) -> Result<Verifier, Error> {
        if options.listeners.is_empty() {
            return Err(Error::NoListener);
        }

        let bound = options
            .listeners
            .iter()
            .map(|address| {
                Bound::open(address, &options)
                    .map_err(|source| Error::Listen { address: address.clone(), source })
            })
            .collect::<Result<Vec<_>, _>>()?;

        let progress = bound.iter().map(|_| Progress::default()).collect();
        Ok(Verifier { options, bound, progress })
    }

    /// The addresses of the listeners, with the ports that the kernel chose for port 0.
    pub fn addresses(&self) -> Vec<Address> {
        self.bound.iter().map(|bound| bound.address.clone()).collect()
    }

    /// Receive buffer size granted to each listener, in bytes of the kernel's accounting.
    pub fn receive_buffers_bytes(&self) -> Vec<usize> {
        self.bound.iter().map(|bound| bound.receive_buffer_bytes).collect()
    }

    /// Counts that can be read while it runs.
    pub fn progress(&self) -> Arc<[Progress]> {
        Arc::clone(&self.progress)
    }

    /// Receives until a limit is reached or `stop` is set.
    pub fn run(self, stop: &AtomicBool) -> Report {
        let Verifier { options, bound, progress } = self;
        let options = &options;
        let finished: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = bound
                .into_iter()
                .zip(&*progress)
                .map(|(bound, progress)| scope.spawn(move || bound.run(options, stop, progress)))
                .collect();
            // A panic in a listener's thread is passed on.
            threads.into_iter().map(|t| t.join().expect("a listener does not panic")).collect()
        });
        Report::new(share_totals(finished).into_iter().map(|one| one.report(options)).collect())
    }
}

/// Shares what one listener has learned about the end of a stream with the others: behind a relay, all of them get the
/// same streams, and a lost end must not make one's streams look shorter than they were.
fn share_totals(mut finished: Vec<Finished>) -> Vec<Finished> {
    let totals: Vec<_> = finished.iter().flat_map(|one| one.tracker.totals()).collect();
    for one in finished.iter_mut().filter(|one| one.should_know_ends()) {
        totals.iter().for_each(|total| one.tracker.learn(total));
    }
    finished
}
