//! The commands: what each takes, and what it does with it. One module each, of the command's name.

pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod ledger;
pub(crate) mod namespace_helper;
pub(crate) mod relay;
pub(crate) mod run;
pub(crate) mod sockets;
