//! The program as its users meet it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod addresses;
mod choices;
mod choose;
mod clickhouse_queries;
mod clocks;
mod collector;
mod config_command;
mod daemon;
mod datagram_sinks;
mod ddos_pack;
mod deploy_files;
mod documents;
mod egress_port;
mod examples;
#[cfg(feature = "store")]
mod file_modes;
mod files;
#[cfg(all(feature = "store", feature = "http"))]
mod fleet;
mod flow_events;
mod flows_command;
mod flows_daemon;
mod flows_http;
mod flows_overload;
mod flows_readers;
mod followers;
mod gen_verify_command;
#[cfg(feature = "grpc")]
mod grpc;
mod health_command;
mod help_command;
mod hosts;
#[cfg(feature = "lab")]
mod lab_command;
#[cfg(feature = "lab")]
mod lab_more;
mod layers;
mod ledger_command;
mod link;
mod link_crash;
mod log_format;
mod many;
mod memory_limits;
mod metrics_contract;
#[cfg(all(feature = "all-sinks", feature = "lab"))]
mod mistakes;
mod mitigate_command;
#[cfg(feature = "gobgp")]
mod mitigation;
mod mitigation_forged;
mod monitoring;
mod names;
mod namespace_helper;
mod namespace_helper_bounds;
mod nobody;
mod operators;
mod pipes;
mod preserve_source;
mod prometheus;
#[cfg(feature = "store")]
mod query_command;
#[cfg(feature = "store")]
mod query_helper;
mod real_collectors;
mod real_statsd;
mod real_syslog;
mod receive;
mod relay_cli;
mod reload;
mod reload_command;
#[cfg(feature = "tls")]
mod remote;
mod restart;
mod run_token;
mod said_source;
mod screens;
mod sink_check;
mod sockets;
mod spools;
#[cfg(feature = "store")]
mod store_check;
#[cfg(feature = "store")]
mod store_faults;
mod support;
mod syslog_command;
mod syslog_zones;
mod terminal;
mod top;
mod torn_files;
mod ui_command;
mod unprivileged;
mod view;
#[cfg(feature = "store")]
mod who_reads_what;

/// What [`support::Weir`] calls before a process starts: here, tests run beside each other.
fn before_start() {}
