//! What `weir`, the program, is made of beside its commands: the configuration.
//!
//! A library only so that the configuration can be fuzzed and its documentation be held equal to it.

#![forbid(unsafe_code)]

pub mod config;
