//! The TCP socket collector: every TCP socket of every network namespace, and those that close between polls.
//!
//! [`Collector`] is one thread. It finds the namespaces, walks the table of each with one request, joins the results by cookie
//! with what it knows, and passes records to an [`Output`]. Between two datagrams it takes the kernel's close events. It keeps no
//! descriptor of a namespace, and its table is bounded.
//!
//! The parts also serve `weir sockets`: [`Direct`] opens namespaces, a [`Walker`] reads one, [`describe`] turns a message into a
//! record, [`filter`] selects sockets, and [`attribution`] finds their owners.

#![forbid(unsafe_code)]

pub mod attribution;
pub mod filter;
pub mod helper;
pub mod unseen;

mod access;
mod assemble;
mod closing;
mod collector;
mod congestions;
mod delta;
mod describe;
mod emission;
mod ends;
mod engine;
mod fingerprint;
mod held;
mod identity;
mod judge;
mod limit;
mod look;
mod memory;
mod meter;
mod missed;
mod namespaces;
mod options;
mod output;
mod poll;
mod query;
mod quiet;
mod rejected;
mod runner;
mod says;
mod scout;
mod served;
mod table;
mod totals;
mod turns;
mod unheard;
mod walk;

pub use access::{Access, Direct, Found, Hears, Scope};
pub use collector::{Collector, MakeAccess, Panicked, Questions};
pub use delta::without_delta;
pub use describe::{Whose, describe};
pub use identity::{Identity, run_id};
pub use limit::Limit;
pub use memory::{ANSWERS_BYTES_MAX, HELD_BYTES_MAX, cgroup_bytes_max};
pub use options::{Closes, DEFAULT_FIELDS, Options, Undecided};
pub use output::{Output, Problem};
pub use query::{Answer, Figure, Group, Order, QueryError, RANKED_MAX, Ranked, Reach};
pub use quiet::TcpCounts;
pub use served::Served;
pub use walk::{Ask, Transport, Visitor, WalkError, Walked, Walker};
