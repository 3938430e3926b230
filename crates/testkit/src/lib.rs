//! Shared test code: waits with a deadline, checks for what a machine may lack, directories, processes, network namespaces,
//! sockets, random numbers, generated files, and third-party servers with their own clients.
//!
//! Crates use it only in `[dev-dependencies]`, and it depends on none of our crates except `sys`: a judge shares no code with
//! what it judges. Code used by the tests of a single crate stays in its `tests/CRATE/support.rs`.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's helpers may panic as the test does")]

mod alone;
mod folder;
mod generated;
mod lossy;
mod mmdb;
mod need;
mod net;
mod netns;
mod process;
pub mod proxy;
mod random;
pub mod readback;
mod routers;
mod scale;
pub mod servers;
mod wait;

pub use alone::alone;
pub use folder::{FailingDisk, PowerDisk, SmallDisk, TempDir};
pub use generated::{TERMINALS, generated, generated_part, root, screens};
pub use lossy::LossyWay;
pub use mmdb::{Field as MmdbField, mmdb};
pub use need::{find_tool, need_python_module, need_root, need_root_netns, need_tool, say, skip};
pub use net::{free_port, get, listen, receive, receiver, sender, try_get};
pub use netns::Netns;
pub use process::{OwnProgram, Peer, Process, run, signal};
pub use random::Random;
pub use routers::{BgpProgram, Routers};
pub use scale::{datagrams, history_rows, outage, rows};
pub use wait::{DEADLINE, LOOK_INTERVAL, What, wait_for, wait_for_up_to, within};
