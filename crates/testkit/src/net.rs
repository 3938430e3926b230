//! Loopback sockets, and HTTP requests.

use crate::wait::{DEADLINE, wait_for};
use std::collections::HashSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// A loopback port that was free a moment ago, for UDP and TCP, below the ports that the kernel chooses by itself.
///
/// It is looked up rather than tried by binding: a process that another thread is just starting has a copy of every descriptor
/// until it calls `exec`, and would hold a port bound here for that long.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(97);
    let used = used_ports();
    loop {
        let step = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + (step % 10_000) as u16;
        if !used.contains(&port) {
            return port;
        }
    }
}

/// Local ports of all sockets in this network namespace, whatever their address and state
/// (`Documentation/networking/proc_net_tcp.rst`).
fn used_ports() -> HashSet<u16> {
    let tables = ["tcp", "tcp6", "udp", "udp6"];
    // Without IPv6 its tables do not exist.
    let texts = tables
        .iter()
        .filter_map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")).ok());
    texts.flat_map(|text| text.lines().filter_map(local_port).collect::<Vec<_>>()).collect()
}

/// The local port in a line such as `  0: 0100007F:15B3 00000000:0000 0A …`.
fn local_port(line: &str) -> Option<u16> {
    let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

/// Listens at an address chosen by a test. Waits if the address was used before: a process that another thread is just starting
/// has a copy of the closed listener.
#[track_caller]
pub fn listen(addr: SocketAddr) -> TcpListener {
    wait_for(format!("a listener at {addr}"), || match TcpListener::bind(addr) {
        Ok(listener) => Some(listener),
        Err(error) if error.kind() == ErrorKind::AddrInUse => None,
        Err(error) => panic!("listening at {addr}: {error}"),
    })
}

/// A receiving socket on loopback, and its address.
pub fn receiver() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// A sending socket on loopback, connected to `to`.
pub fn sender(to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// Receives the next datagram.
pub fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let len = socket.recv(&mut buffer).expect("a datagram arrives");
    buffer.truncate(len);
    buffer
}

/// Requests a page over HTTP; any status except 200 fails the test.
pub fn get(server: SocketAddr, path: &str, accept: &str) -> String {
    try_get(server, path, accept).unwrap_or_else(|error| panic!("{server}{path}: {error}"))
}

/// Requests a page over HTTP; the error says why there is none.
pub fn try_get(server: SocketAddr, path: &str, accept: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect(server).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(DEADLINE)).map_err(|error| error.to_string())?;

    // HTTP/1.0, so that no server answers in chunks.
    let head = format!("GET {path} HTTP/1.0\r\nHost: {server}\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(head.as_bytes()).map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;

    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| answer.clone())?;
    let status = head.split_whitespace().nth(1);
    if status == Some("200") { Ok(body.to_owned()) } else { Err(answer.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_both_protocols_and_families_are_used_ones() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("[::1]:0").unwrap();

        let used = used_ports();

        assert!(used.contains(&udp.local_addr().unwrap().port()));
        assert!(used.contains(&tcp.local_addr().unwrap().port()));
    }
}
