//! `ClickHouse`'s engine behind our own HTTP interface (`crates/testkit/servers/clickhouse.py`).

use super::place::Place;
use crate::{find_tool, root, try_get};
use std::net::TcpStream;
use std::process::Command;

pub(super) fn command(place: &Place) -> Command {
    let mut command = Command::new(find_tool("weir-clickhouse").expect("asked for before"));
    command
        .arg(root().join("crates/testkit/servers/clickhouse.py"))
        .args([place.addr.port().to_string(), place.file("data")])
        .arg(root().join("proto"));
    command.args(place.tls.iter().flat_map(|tls| [tls.certificate(), tls.key()]));
    command
}

pub(super) fn answers(place: &Place) -> bool {
    // It listens once everything is ready; a request without TLS is closed unanswered.
    if place.tls.is_some() {
        return TcpStream::connect(place.addr).is_ok();
    }
    try_get(place.addr, "/?query=SELECT%201", "*/*").is_ok()
}
