//! `ClickHouse`'s engine behind an HTTP interface of our own (`crates/testkit/servers/clickhouse.py`).

use super::Place;
use crate::{find_tool, root, try_get};
use std::net::SocketAddr;
use std::process::Command;

pub(super) fn command(place: &Place) -> Command {
    let mut command = Command::new(find_tool("weir-clickhouse").expect("asked for before"));
    command
        .arg(root().join("crates/testkit/servers/clickhouse.py"))
        .args([place.addr.port().to_string(), place.file("data")])
        .arg(root().join("proto"));
    command
}

pub(super) fn answers(addr: SocketAddr) -> bool {
    try_get(addr, "/?query=SELECT%201", "*/*").is_ok()
}
