//! What the tests of several crates share: waits with a deadline, what a test asks before it uses what a machine may lack,
//! folders, processes, network namespaces, sockets, random numbers, generated files, and the servers of others with clients of theirs.
//!
//! Crates name it in `[dev-dependencies]` only, and it names no crate of ours but `sys`: a judge shares no code with what it
//! judges. What the tests of one crate alone use stays in its `tests/CRATE/support.rs`.

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
pub use folder::{SmallDisk, TempDir};
pub use generated::{generated, generated_part, root};
pub use lossy::LossyWay;
pub use mmdb::{Field as MmdbField, mmdb};
pub use need::{find_tool, need_python_module, need_root, need_root_netns, need_tool, say, skip};
pub use net::{free_port, get, listen, receive, receiver, sender, try_get};
pub use netns::Netns;
pub use process::{OwnProgram, Peer, Process, run, signal};
pub use random::Random;
pub use routers::{BgpProgram, Routers};
pub use scale::{datagrams, outage, rows};
pub use wait::{DEADLINE, LOOK_INTERVAL, What, wait_for, wait_for_up_to, within};
