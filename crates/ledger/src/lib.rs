//! The ledger: what was received, what left, what was lost, where and why.
//!
//! At every hop `received = delivered + dropped(reason) + in flight` holds at every instant. A sink has three more outcomes: rows
//! that its store `rejected(class)`, rows that are `uncertain` because no answer came, and rows that its spool has `kept` for its
//! next life. "In flight" is never counted: it is what was received minus everything that left. A reader loads the counters of
//! what left *before* the counter of what was received, so that the difference is never negative. It also looks at what was
//! received once before that, so that the difference can be compared with the hop's capacity. Each counter has one writer, never
//! goes back, and is never reset while the process lives.
//!
//! A data plane writes [`Counters`] (a sink [`SinkCounters`]), a [`Meter`] turns them into [`HopSnapshot`]s, and the [`Ledger`]
//! gathers them.

#![forbid(unsafe_code)]

mod counters;
mod decimal;
mod figures;
mod hop;
mod reason;
mod registry;
mod reject;
mod snapshot;
mod waterfall;
mod way;

pub use counters::{Amount, Counters, DelayHistogram, EventCounter, SinkCounters, Tally};
pub use figures::{
    ConnectionEnd, Event, Gauge, IcmpError, NamespaceError, PollPhase, SendError, TcpState, Unit,
};
pub use hop::{
    Accounting, Delay, Dropped, Earlier, HopBuilder, HopKind, HopSnapshot, Peer, PeerSender,
    Rejected, Trouble,
};
pub use reason::Reason;
pub use registry::{Ledger, Meter};
pub use reject::RejectClass;
pub use snapshot::{Loss, Snapshot, Speaker};
pub use waterfall::{hop_lines, verdict_lines, waterfall, waterfall_without_balance};
pub use way::Way;
