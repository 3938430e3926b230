//! The cost of each stage of a relay on this machine, and the rates that it predicts for other machines.
//!
//! Each stage is measured from outside: the kernel counts the CPU time of the relay's threads, and the relay's ledger counts the
//! datagrams that they processed, in runs that differ by one stage. So the measurement covers the released program with its
//! system calls, and not a copy of its loops. [`measure`] runs the relays, `model` predicts, and [`Known`] compares the
//! prediction for this machine with its measured rate.

mod measure;
mod model;
mod page;

pub use measure::{Error, measure};
pub use model::{Extrapolated, Predicted, Queues, Setup, predict, simulate};

use crate::About;
use load::Address;
use serde::Serialize;
use std::error::Error as StdError;
use std::time::Duration;
use text::Ink;

/// Which threads send to the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// The thread that receives or merges.
    Inline,
    /// Separate threads.
    Threaded,
}

impl Schedule {
    /// The value for `weir relay --schedule`.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Inline => "inline",
            Schedule::Threaded => "threaded",
        }
    }
}

/// How a relay runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Number of sockets that share the address; with more than one, datagrams are merged in the order of arrival.
    pub sockets: usize,
    pub schedule: Schedule,
    /// Number of copies of each datagram; with 0, datagrams are discarded after they are received.
    pub targets: usize,
}

/// The counters of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams read from the relay's sockets.
    pub read: u64,
    /// Copies sent to all targets together.
    pub sent: u64,
}

/// A relay whose threads can be observed.
pub trait Staged {
    /// Starts the relay on the CPUs of the calling thread. Its threads are named `rx-in` (receives or merges), `rx-in-N` (reads
    /// one of several sockets) and `tx-N` (sends). Returns the address where it receives datagrams, and its process ID.
    ///
    /// # Errors
    /// The relay does not start.
    fn start(&mut self, shape: Shape, targets: &[Address]) -> Result<(Address, u32), Cause>;

    /// The relay's counters since its start.
    ///
    /// # Errors
    /// The relay does not answer.
    fn counts(&mut self) -> Result<Counts, Cause>;

    /// Ends the relay.
    fn stop(&mut self);
}

/// Why a relay could not be measured.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Size of a datagram in bytes.
    pub size_bytes: usize,
    /// Length of one measurement.
    pub duration: Duration,
    /// Number of measurements of each kind, of which the median counts.
    pub repetitions: usize,
}

/// Nanoseconds of CPU time that each stage takes per datagram, in kernel and program together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// Receiving, admitting and writing into the ring, by one thread, in full batches.
    pub receive_ns: f64,
    /// The same for one of several sockets.
    pub member_ns: f64,
    /// Taking datagrams from the rings of several sockets in order, and writing them to the listener's ring.
    pub merge_ns: f64,
    /// Additional work of the receiving thread when other threads send: waking them up.
    pub hand_over_ns: f64,
    /// Sending a copy to a target, by the receiving thread.
    pub send_ns: f64,
    /// Sending a copy to a target, by a separate thread.
    pub worker_send_ns: f64,
    /// Additional cost of a datagram that arrives alone instead of in a full batch: a poll, a wake-up, and a separate system
    /// call.
    pub wake_up_ns: f64,
    /// The kernel's work for a single datagram, from a sender's call on loopback to the relay's socket. It represents the soft
    /// interrupt of a network card's queue, but is higher because it includes the sender's call.
    pub deliver_ns: f64,
    /// The cost of a datagram for the lab's sender, which sends many in one message.
    pub load_send_ns: f64,
    /// The cost of a copy for the lab's receivers.
    pub load_take_ns: f64,
}

/// A relay on this machine under more load than it can handle: the model's prediction, and the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Known {
    pub shape: Shape,
    /// CPUs that the relay may use.
    pub processors: usize,
    /// Whether the load runs on one of the same CPUs instead of a separate one.
    pub shares_with_load: bool,
    /// CPUs that other programs left free, as a median: the basis of the prediction.
    pub processors_left: f64,
    pub predicted_per_sec: f64,
    /// Datagrams per second that every target received, as a median.
    pub measured_per_sec: f64,
    /// Lowest and highest value of the repetitions.
    pub measured_range: (f64, f64),
}

impl Known {
    /// Error of the prediction as a share of the measured rate; positive if the prediction is too high.
    pub fn error(&self) -> f64 {
        self.predicted_per_sec / self.measured_per_sec - 1.0
    }
}

/// All measurements, and the predictions from them.
#[derive(Clone, Debug, Serialize)]
pub struct Stages {
    pub about: About,
    pub size_bytes: usize,
    pub duration_s: f64,
    pub repetitions: usize,
    pub costs: Costs,
    /// Predictions that can be checked on this machine.
    pub known: Vec<Known>,
    /// The largest error of a checked prediction, as a share.
    pub error_max: f64,
    /// Extrapolations to machines with more CPUs.
    pub predicted: Vec<Extrapolated>,
}

impl Stages {
    /// Combines the measurements, and adds the predictions.
    pub fn new(about: About, plan: &Plan, costs: Costs, known: Vec<Known>) -> Stages {
        let error_max = known.iter().map(|known| known.error().abs()).fold(0.0, f64::max);
        Stages {
            about,
            size_bytes: plan.size_bytes,
            duration_s: plan.duration.as_secs_f64(),
            repetitions: plan.repetitions,
            costs,
            known,
            error_max,
            predicted: model::for_larger_machines(&costs),
        }
    }

    /// The tables as text, in lines of at most this many columns; sentences are the caller's to fold.
    pub fn terminal(&self, columns: Option<usize>, ink: Ink) -> String {
        page::render(self, columns, ink)
    }
}
