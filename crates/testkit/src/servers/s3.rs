//! moto, an S3-compatible server (`crates/testkit/servers/s3.py`).

use super::place::Place;
use crate::{find_tool, root, try_get};
use std::net::TcpStream;
use std::process::Command;

pub(super) fn command(place: &Place) -> Command {
    let mut command = Command::new(find_tool("weir-python").expect("asked for before"));
    command
        .arg(root().join("crates/testkit/servers/s3.py"))
        .args([place.addr.port().to_string(), place.file("data")]);
    command.args(place.tls.iter().flat_map(|tls| [tls.certificate(), tls.key()]));
    command
}

pub(super) fn answers(place: &Place) -> bool {
    // It listens once everything is ready; a request without TLS is closed unanswered.
    if place.tls.is_some() {
        return TcpStream::connect(place.addr).is_ok();
    }
    try_get(place.addr, "/", "*/*").is_ok()
}
