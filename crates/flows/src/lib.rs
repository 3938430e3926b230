//! sFlow into traffic figures that say how sure they are.
#![forbid(unsafe_code)]

mod estimate;
mod sampler;
mod sequence;
mod table;

pub use estimate::{Estimate, Sums};
pub use sampler::{Rates, Reading, Sampler, SamplerTotals, Worth};
pub use sequence::{Seen, Sequence, SequenceTotals};
pub use table::{Ended, Flow, Table};
