//! Tests of the crate: the engine over many seeds, and real BGP speakers with a real router.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "tests")]

mod bridge;
mod change;
mod engine;
#[cfg(feature = "gobgp")]
mod rig;
#[cfg(feature = "gobgp")]
mod routers;
mod simulation;
