//! NATS with `JetStream`.

use super::{Place, second_port};
use crate::{find_tool, try_get};
use std::net::SocketAddr;
use std::process::Command;

pub(super) fn command(place: &Place) -> Command {
    let mut command = Command::new(find_tool("nats-server").expect("asked for before"));
    command
        .args(["--addr", "127.0.0.1", "--port", &place.addr.port().to_string()])
        .args(["--http_port", &second_port(place.addr).port().to_string()])
        .args(["--jetstream", "--store_dir", &place.file("data")]);
    command
}

pub(super) fn answers(addr: SocketAddr) -> bool {
    try_get(second_port(addr), "/healthz", "*/*").is_ok()
}
