//! The collector on the running kernel: what it tells of the sockets of a test's own network namespaces.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

#[path = "collector/attributed.rs"]
mod attributed;
#[path = "collector/bounds.rs"]
mod bounds;
#[path = "collector/closes.rs"]
mod closes;
#[path = "collector/complete.rs"]
mod complete;
#[path = "collector/identity.rs"]
mod identity;
#[path = "collector/law.rs"]
mod law;
#[path = "collector/people.rs"]
mod people;
#[path = "collector/questions.rs"]
mod questions;
#[path = "collector/quiet.rs"]
mod quiet;
#[path = "collector/renewed.rs"]
mod renewed;
#[path = "choices/scene.rs"]
mod scene;
#[path = "collector/selection.rs"]
mod selection;
#[path = "collector/spaces.rs"]
mod spaces;
#[path = "collector/watch.rs"]
mod watch;
