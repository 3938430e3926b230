//! Turns sFlow into traffic figures that state their own uncertainty.
//!
//! An [`Engine`] takes datagrams. It identifies each agent by the content of its datagrams, and tracks what was lost and where:
//! inside the agent or on the network. A [`Sampler`] computes what each sample stands for from what *arrived*, so that figures
//! stay right under loss. A [`Definition`] says which samples make a flow; its heaviest flows are kept in bounded memory, each
//! with an [`Estimate`]: a value and its 95 % interval. A [`Watch`] reports once when a figure passes a limit. An [`Analysis`] is
//! all of it, with the last [`Event`]s. This crate does no I/O and has no clock of its own.

#![forbid(unsafe_code)]

mod agent;
mod allowance;
mod analysis;
mod batch;
mod counter;
mod counting;
mod definition;
mod discrepancy;
mod engine;
mod estimate;
mod event;
mod field;
mod filter;
mod heaviest;
mod key;
mod lookup;
mod places;
mod port;
mod portion;
mod sampler;
mod sequence;
mod sflow;
mod share;
mod source;
mod table;
mod threshold;
mod twins;
mod vantage;

pub use agent::{Agent, AgentId};
pub use allowance::{FRAME_BYTES_MAX, SPEED_BITS_PER_SEC};
pub use analysis::{AgentFigure, Analysis, Moment, PortFigure, Watched};
pub use counting::Counting;
pub use definition::{
    Aggregation, Definition, DefinitionTotals, Direction, Figure, Measure, Sample, Traffic,
};
pub use discrepancy::{Discrepancies, Discrepancy};
pub use engine::{Engine, EngineTotals, Limits, NO_ADDRESS, Taken};
pub use estimate::{Estimate, Sums};
pub use event::{Event, EventLog, Subject};
pub use field::{Facts, Field, Kind, Value, Word};
pub use filter::{Filter, FilterError};
pub use heaviest::{Across, Heaviest, ROWS_MAX, Rows};
pub use key::{Part, PartError};
pub use lookup::{Author, Groups, Network};
pub use places::PlacesError;
pub use port::{Compared, Port, PortCounters, PortRates, Rates as PortRate, Times};
pub use portion::{Accepted, Amounts, Cause, CounterReading, Portion, Told};
pub use sampler::{Rates, Reading, Sampler, SamplerTotals, Worth};
pub use sequence::{Seen, Sequence, SequenceTotals};
pub use sflow::Observed;
pub use source::{Source, Structure};
pub use table::{Ended, Flow, Leaving, Table};
pub use threshold::{Change, Judge, Passed, Threshold, Watch};
