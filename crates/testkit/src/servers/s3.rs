//! moto, an S3-compatible server (`crates/testkit/servers/s3.py`).

use super::Place;
use crate::{find_tool, root, try_get};
use std::net::SocketAddr;
use std::process::Command;

pub(super) fn command(place: &Place) -> Command {
    let mut command = Command::new(find_tool("weir-python").expect("asked for before"));
    command
        .arg(root().join("crates/testkit/servers/s3.py"))
        .args([place.addr.port().to_string(), place.file("data")]);
    command
}

pub(super) fn answers(addr: SocketAddr) -> bool {
    try_get(addr, "/", "*/*").is_ok()
}
