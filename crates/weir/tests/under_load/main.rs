//! The promises under all the load that the machine can make: one file of these tests after the other.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod boundaries;
mod crowding;
mod dead_targets;
mod hostile;
mod isolation;
mod law;
mod overload;
#[cfg(feature = "store")]
mod questions;
#[path = "../weir/support.rs"]
mod support;

use testkit::alone as before_start;
