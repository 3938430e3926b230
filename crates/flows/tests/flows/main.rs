//! What the engine promises of its memory, and of input that is broken.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod broken;
