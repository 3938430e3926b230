//! What the engine guarantees about its memory, and about broken input.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod broken;
