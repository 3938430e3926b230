//! Sockets of loopback, and pages over HTTP.

use crate::wait::DEADLINE;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// A port of loopback that was free a moment ago, for UDP and TCP; below the ports that the kernel chooses by itself.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(97);
    loop {
        let step = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let at = ("127.0.0.1", 20_000 + (step % 10_000) as u16);
        if UdpSocket::bind(at).is_ok() && TcpListener::bind(at).is_ok() {
            return at.1;
        }
    }
}

/// A receiving socket on loopback, and its address.
pub fn receiver() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// A sending socket on loopback that is connected to `to`.
pub fn sender(to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// The next datagram.
pub fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let len = socket.recv(&mut buffer).expect("a datagram arrives");
    buffer.truncate(len);
    buffer
}

/// A page over HTTP; any status but 200 fails the test.
pub fn get(server: SocketAddr, path: &str, accept: &str) -> String {
    try_get(server, path, accept).unwrap_or_else(|error| panic!("{server}{path}: {error}"))
}

/// A page over HTTP, or why there is none.
pub fn try_get(server: SocketAddr, path: &str, accept: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect(server).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(DEADLINE)).map_err(|error| error.to_string())?;

    // HTTP/1.0: no server answers in chunks.
    let head = format!("GET {path} HTTP/1.0\r\nHost: {server}\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(head.as_bytes()).map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;

    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| answer.clone())?;
    let status = head.split_whitespace().nth(1);
    if status == Some("200") { Ok(body.to_owned()) } else { Err(head.to_owned()) }
}
