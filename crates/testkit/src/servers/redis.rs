//! Redis with an append-only file.

use super::place::Place;
use crate::{DEADLINE, find_tool};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

pub(super) fn command(place: &Place) -> Command {
    let data = place.file("data");
    fs::create_dir_all(&data).unwrap();
    let mut command = Command::new(find_tool("redis-server").expect("asked for before"));
    command
        .args(["--bind", "127.0.0.1"])
        // Each command is written to the file before it is answered; syncing only protects against a power failure. With
        // `everysec`, a command may be answered before it is written while a sync is in progress (Redis, aof.c,
        // flushAppendOnlyFile), and a kill would lose it.
        .args(["--dir", &data, "--save", "", "--appendonly", "yes", "--appendfsync", "no"]);
    let port = place.addr.port().to_string();
    let Some(tls) = &place.tls else {
        command.args(["--port", &port]);
        return command;
    };
    command
        .args(["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"])
        .args(["--tls-cert-file", &tls.certificate(), "--tls-key-file", &tls.key()])
        .args(["--tls-ca-cert-file", &tls.certificates.ca()])
        .args(["--user", "default", "off"])
        .args(["--user", "weir", "on", ">right", "~*", "&*", "+@all"]);
    command
}

pub(super) fn answers(place: &Place) -> bool {
    if place.tls.is_none() {
        return ping(place.addr).is_ok_and(|answer| &answer == b"+PONG\r\n");
    }
    let mut cli = Command::new(find_tool("redis-cli").expect("it comes with the server"));
    cli.args(["--tls", "--insecure", "--user", "weir", "--pass", "right", "--no-auth-warning"]);
    let output = cli.args(["-p", &place.addr.port().to_string(), "ping"]).output().unwrap();
    output.stdout == b"PONG\n"
}

/// While it loads its file it answers `-LOADING …`.
fn ping(addr: SocketAddr) -> io::Result<[u8; 7]> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}
