//! The commands: what each takes, and what it does. One module per command, named like it.

pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod flows;
pub(crate) mod r#gen;
pub(crate) mod health;
pub(crate) mod help;
pub(crate) mod hop;
#[cfg(feature = "lab")]
pub(crate) mod lab;
pub(crate) mod ledger;
pub(crate) mod man;
pub(crate) mod mitigate;
pub(crate) mod namespace_helper;
#[cfg(not(feature = "lab"))]
pub(crate) mod no_lab;
#[cfg(feature = "store")]
pub(crate) mod query;
#[cfg(feature = "store")]
pub(crate) mod query_helper;
pub(crate) mod relay;
pub(crate) mod reload;
pub(crate) mod run;
pub(crate) mod sink;
pub(crate) mod sockets;
pub(crate) mod stop;
pub(crate) mod syslog;
pub(crate) mod top;
pub(crate) mod ui;
pub(crate) mod verify;
pub(crate) mod version;
#[cfg(feature = "store")]
pub(crate) mod view;

#[cfg(not(feature = "lab"))]
pub(crate) use no_lab as lab;
