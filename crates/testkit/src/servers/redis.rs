//! Redis with an append-only file.

use super::Place;
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
        .args(["--bind", "127.0.0.1", "--port", &place.addr.port().to_string()])
        // Each command is written to the file before it is answered; syncing it is for when the power fails.
        .args(["--dir", &data, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
    command
}

pub(super) fn answers(addr: SocketAddr) -> bool {
    ping(addr).is_ok_and(|answer| &answer == b"+PONG\r\n")
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
