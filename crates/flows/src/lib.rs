//! sFlow into traffic figures that say how sure they are.
#![forbid(unsafe_code)]

mod counter;
mod definition;
mod estimate;
mod field;
mod filter;
mod key;
mod lookup;
mod sampler;
mod sequence;
mod table;
mod threshold;

pub use counter::{Delta, Width, delta};
pub use definition::{
    Aggregation, Counting, Definition, DefinitionTotals, Direction, Figure, Measure, Sample,
};
pub use estimate::{Estimate, Sums};
pub use field::{Facts, Field, Kind, Value};
pub use filter::{Filter, FilterError};
pub use key::{Part, PartError};
pub use lookup::{Groups, Network};
pub use sampler::{Rates, Reading, Sampler, SamplerTotals, Worth};
pub use sequence::{Seen, Sequence, SequenceTotals};
pub use table::{Ended, Flow, Table};
pub use threshold::{Change, Judge, Passed, Threshold, Watch};
