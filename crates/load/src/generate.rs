//! The generator: sends marked datagrams on an absolute schedule.
//!
//! Each sending thread owns source sockets ("flows") to every target and assigns the slots of its schedule to them in
//! turn. A late slot is sent at once and its lateness recorded; nothing is skipped to catch up. A datagram counts as sent
//! when the kernel has accepted it; one that the kernel refused is retried with the same sequence number.

mod flow;
mod lines;
mod options;
mod report;
mod schedule;
mod sender;

pub use lines::lines;
pub use options::{Limit, Options, Pacing, Rate, Segmentation, Sizes};
pub use report::{ErrorCounts, Progress, Report, TargetReport};

use crate::Address;
use crate::random;
use sender::Sender;
use std::io;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no target")]
    NoTarget,
    #[error(
        "{size} bytes are too few for such a payload with its check data. Fix: write --size {min} or more"
    )]
    SizeTooSmall { size: usize, min: usize },
    #[error("{size} bytes are too many for a datagram over IPv4. Fix: write --size {max} or less")]
    SizeTooLarge { size: usize, max: usize },
    #[error(
        "{flows} flows are not enough for {senders} senders. Fix: write --senders from 1 to the number of --flows"
    )]
    Flows { flows: usize, senders: usize },
    #[error(
        "{targets} targets with {flows} flows each are too many. Fix: write --flows so that all together are at most 65,535"
    )]
    TooManyFlows { targets: usize, flows: usize },
    #[error(
        "a fixed source port is for one flow, and there are {flows}. Fix: remove --source-port, or write --flows 1"
    )]
    SourcePort { flows: usize },
    #[error("the rate is 0. Fix: write for example --rate 1k")]
    Rate,
    #[error("a burst has at least one datagram")]
    Burst,
    #[error(
        "lines have no length that is known before: their rate is a number of them per second, or max"
    )]
    RateOfLines,
    #[error("cannot read the lines")]
    Input(#[source] io::Error),
    #[error("cannot open a socket to {address}")]
    Open {
        address: Address,
        #[source]
        source: io::Error,
    },
}

/// Sends until the limit is reached or `stop` is set, then sends the end heartbeats, and returns a report.
///
/// # Errors
/// The options contradict each other, or a socket cannot be opened. In either case nothing was sent.
pub fn run(options: &Options, stop: &AtomicBool, progress: &Progress) -> Result<Report, Error> {
    options.validate()?;
    let run = options.run.unwrap_or_else(random::fresh_run_id);
    let mut senders = (0..options.senders)
        .map(|idx| Sender::open(options, run, idx))
        .collect::<Result<Vec<_>, _>>()?;

    let start_ns = sys::clock::monotonic_ns();
    thread::scope(|scope| {
        for sender in &mut senders {
            scope.spawn(move || sender.run(start_ns, stop, progress));
        }
    });

    let elapsed = senders.iter().map(Sender::elapsed).max().unwrap_or(Duration::ZERO);
    Ok(report::collect(options, run, elapsed, &senders))
}
