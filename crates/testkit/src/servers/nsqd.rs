//! NSQ's daemon.

use super::place::{Life, Place};
use super::second_port;
use crate::{find_tool, try_get};
use std::fs;
use std::process::Command;

pub(super) fn command(place: &Place) -> Command {
    let data = place.file("data");
    fs::create_dir_all(&data).unwrap();
    let mut command = Command::new(find_tool("nsqd").expect("asked for before"));
    command
        .arg(format!("--tcp-address={}", place.addr))
        .arg(format!("--http-address={}", second_port(place.addr)))
        .args(["--https-address=", "--broadcast-address=127.0.0.1"])
        .arg(format!("--data-path={data}"));
    if let Some(tls) = &place.tls {
        // HTTP stays unencrypted, for the readiness check.
        command.arg("--tls-required=tcp-https");
        command.arg(format!("--tls-cert={}", tls.certificate()));
        command.arg(format!("--tls-key={}", tls.key()));
    }
    if place.life == Life::Killed {
        // Neither messages in memory nor unsynced ones survive a kill. It syncs 27,000 messages per second in memory, and about
        // 100 on a disk.
        command.args(["--mem-queue-size=0", "--sync-every=1"]);
    }
    command
}

pub(super) fn answers(place: &Place) -> bool {
    try_get(second_port(place.addr), "/ping", "*/*").is_ok()
}
