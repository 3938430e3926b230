//! Apicurio Registry, with its schemas in memory.

use super::place::Place;
use super::{SCHEMA_REGISTRY_PATH, second_port};
use crate::{find_tool, try_get};
use std::net::TcpStream;
use std::process::Command;

pub(super) fn command(place: &Place) -> Command {
    let mut command = Command::new(find_tool("weir-schema-registry").expect("asked for before"));
    let mut set = |name: &str, value: &str| {
        command.arg(format!("-Dquarkus.http.{name}={value}"));
    };
    set("host", "127.0.0.1");
    match &place.tls {
        None => set("port", &place.addr.port().to_string()),
        Some(tls) => {
            set("port", &second_port(place.addr).port().to_string());
            set("ssl-port", &place.addr.port().to_string());
            set("ssl.certificate.files", &tls.certificate());
            set("ssl.certificate.key-files", &tls.key());
        }
    }
    command
}

pub(super) fn answers(place: &Place) -> bool {
    let plain = if place.tls.is_some() { second_port(place.addr) } else { place.addr };
    let is_ready = try_get(plain, &format!("{SCHEMA_REGISTRY_PATH}/subjects"), "*/*").is_ok();
    is_ready && TcpStream::connect(place.addr).is_ok()
}
