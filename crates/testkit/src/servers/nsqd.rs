//! NSQ's daemon.

use super::{Place, second_port};
use crate::{find_tool, try_get};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

pub(super) fn command(place: &Place) -> Command {
    let data = place.file("data");
    fs::create_dir_all(&data).unwrap();
    let mut command = Command::new(find_tool("nsqd").expect("asked for before"));
    command
        .arg(format!("--tcp-address={}", place.addr))
        .arg(format!("--http-address={}", second_port(place.addr)))
        .args(["--https-address=", "--broadcast-address=127.0.0.1"])
        .arg(format!("--data-path={data}"))
        // What it holds in memory, and what it has not synced, does not outlive a kill.
        .args(["--mem-queue-size=0", "--sync-every=1"]);
    command
}

pub(super) fn answers(addr: SocketAddr) -> bool {
    try_get(second_port(addr), "/ping", "*/*").is_ok()
}
