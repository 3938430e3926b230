//! NATS with `JetStream`.

use super::place::Place;
use super::second_port;
use crate::{find_tool, try_get};
use std::process::Command;

pub(super) fn command(place: &Place) -> Command {
    let mut command = Command::new(find_tool("nats-server").expect("asked for before"));
    command
        .args(["--addr", "127.0.0.1", "--port", &place.addr.port().to_string()])
        .args(["--http_port", &second_port(place.addr).port().to_string()])
        .args(["--jetstream", "--store_dir", &place.file("data")]);
    if let Some(tls) = &place.tls {
        command.args(["--tls", "--tlscert", &tls.certificate(), "--tlskey", &tls.key()]);
        command.args(["--user", "weir", "--pass", "right"]);
    }
    command
}

pub(super) fn answers(place: &Place) -> bool {
    try_get(second_port(place.addr), "/healthz", "*/*").is_ok()
}
