//! The collector on the running kernel: what it reports about the sockets in a test's own network namespaces.

mod attributed;
mod bounds;
mod closes;
mod complete;
mod identity;
mod law;
mod people;
mod questions;
mod quiet;
mod renewed;
mod selection;
mod spaces;
mod watch;

use crate::choices::scene;
