//! What each stage of a relay costs on this machine, and which rate that predicts for others.
//!
//! A stage is measured from outside: the processor time of the relay's threads, which the kernel counts, over the datagrams that its
//! ledger says they dealt with, in runs that differ by one stage. So what is measured is the program as it is shipped, with its
//! calls into the kernel, and not a copy of its loops. [`measure`] runs them, `model` predicts, and [`Known`] is the prediction
//! for this machine beside what it did.

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

/// Who sends to the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// The thread that receives, or merges.
    Inline,
    /// Threads of their own.
    Threaded,
}

impl Schedule {
    /// As `weir relay --schedule` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Inline => "inline",
            Schedule::Threaded => "threaded",
        }
    }
}

/// How a relay is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Sockets that share the address, in order of arrival if more than one.
    pub sockets: usize,
    pub schedule: Schedule,
    /// Copies of each datagram; 0: they are thrown away once received.
    pub targets: usize,
}

/// What a relay has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams read from its sockets.
    pub read: u64,
    /// Copies sent, over all targets.
    pub sent: u64,
}

/// A relay whose threads can be looked at.
pub trait Staged {
    /// Starts it, on the processors of the calling thread. Its threads are named `rx-in` (receives or merges), `rx-in-N` (reads one of
    /// several sockets) and `tx-N` (sends). Returns where it takes datagrams, and its process.
    ///
    /// # Errors
    /// It does not start.
    fn start(&mut self, shape: Shape, targets: &[Address]) -> Result<(Address, u32), Cause>;

    /// What it has counted since it was started.
    ///
    /// # Errors
    /// It does not answer.
    fn counts(&mut self) -> Result<Counts, Cause>;

    /// Ends it.
    fn stop(&mut self);
}

/// Why a relay could not be measured.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes of a datagram.
    pub size_bytes: usize,
    /// Length of one measurement.
    pub duration: Duration,
    /// Measurements of each; medians count.
    pub repetitions: usize,
}

/// Nanoseconds of a processor that each stage takes for a datagram, kernel and program together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// Receive, admit and write into the ring, by one thread, from full batches.
    pub receive_ns: f64,
    /// The same for one of several sockets.
    pub member_ns: f64,
    /// Take from the rings of several sockets in order, into the listener's.
    pub merge_ns: f64,
    /// What the thread that receives has more to do where others send: to wake them.
    pub hand_over_ns: f64,
    /// A copy to a target by the thread that receives.
    pub send_ns: f64,
    /// A copy to a target by a thread of its own.
    pub worker_send_ns: f64,
    /// What a datagram that comes alone costs more than one of a full batch: a poll, a wake-up, a call for it alone.
    pub wake_up_ns: f64,
    /// The kernel's way of a single datagram from a sender's call on loopback to the relay's socket. It stands for the soft interrupt of
    /// a network card's queue, and is more than that: the sender's call is in it.
    pub deliver_ns: f64,
    /// What the lab's sender takes for a datagram; many leave in one message.
    pub load_send_ns: f64,
    /// What the lab's receivers take for a copy.
    pub load_take_ns: f64,
}

/// A relay on this machine under more load than it can take: what the model says, and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Known {
    pub shape: Shape,
    /// Processors that the relay may use.
    pub processors: usize,
    /// The load has one of the same processors, and not one of its own.
    pub shares_with_load: bool,
    /// Processors that other programs left, in the median: what the prediction counts with.
    pub processors_left: f64,
    pub predicted_per_sec: f64,
    /// Datagrams per second that every target got: the median.
    pub measured_per_sec: f64,
    /// Lowest and highest of the repetitions.
    pub measured_range: (f64, f64),
}

impl Known {
    /// How far the prediction is off, as a share of what was measured: above 0 it is too high.
    pub fn error(&self) -> f64 {
        self.predicted_per_sec / self.measured_per_sec - 1.0
    }
}

/// Everything that was measured, and what follows.
#[derive(Clone, Debug, Serialize)]
pub struct Stages {
    pub about: About,
    pub size_bytes: usize,
    pub duration_s: f64,
    pub repetitions: usize,
    pub costs: Costs,
    /// This machine: where the prediction can be checked.
    pub known: Vec<Known>,
    /// The largest error of a prediction that could be checked, as a share.
    pub error_max: f64,
    /// Machines with more processors: extrapolated.
    pub predicted: Vec<Extrapolated>,
}

impl Stages {
    /// Puts the parts together, and predicts.
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

    /// The tables as text.
    pub fn terminal(&self) -> String {
        page::render(self)
    }
}
