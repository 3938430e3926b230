//! Statistics over runs: exact quantiles, means, intervals, and the treatment of messages that never arrived.
//!
//! Messages of one run are strongly correlated: one stall delays hundreds of them. Runs are independent. So every
//! interval here is over **runs**: a bootstrap draws whole runs with replacement.

mod age;
mod binomial;
mod bootstrap;
mod pool;
mod summary;

pub use age::{Delivery, age_at_intervals};
pub use binomial::clopper_pearson;
pub use bootstrap::{Bootstrap, Estimate, Interval};
pub use pool::{Figure, Pool};
pub use summary::{Loss, Summary};
