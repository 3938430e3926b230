//! Opens a link in a browser without the link on its command line, which every user of this host can read.
//!
//! The browser gets the address of a server here that answers one request, of this user, with the link.

use crate::exit::Failure;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for the browser's request.
const BROWSER_WAIT: Duration = Duration::from_secs(30);
/// Longest wait for a client's request line, and for it to take the answer.
const CLIENT_WAIT: Duration = Duration::from_secs(1);
/// Time between two looks for a client.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Opens `link` in the browser of this user: `BROWSER`, or what `xdg-open` starts.
///
/// # Errors
/// No browser can be started, or it does not ask in time.
pub(super) fn open(link: &str) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;

    let browser =
        std::env::var_os("BROWSER").filter(|name| !name.is_empty()).unwrap_or("xdg-open".into());
    start(&browser, &format!("http://{address}/")).map_err(|error| {
        let browser = browser.display();
        let message = format!("cannot start {browser}: {error}. Fix: open what `weir ui` prints");
        Failure::Unavailable.error(message)
    })?;

    let deadline = Instant::now() + BROWSER_WAIT;
    while Instant::now() < deadline {
        match listener.accept() {
            Ok((client, from)) => {
                if is_ours(from, address) && answer(&client, link).is_ok() {
                    return Ok(());
                }
            }
            Err(_) => thread::sleep(LOOK_INTERVAL),
        }
    }
    let wait = BROWSER_WAIT.as_secs();
    let message = format!(
        "no browser of this user has opened within {wait} s. Fix: open what `weir ui` prints"
    );
    Err(Failure::Unavailable.error(message))
}

fn start(browser: &OsString, url: &str) -> io::Result<()> {
    let mut command = Command::new(browser);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

/// Whether a client is a process of this user: the kernel's list of TCP sockets says whose each is.
fn is_ours(client: SocketAddr, server: SocketAddr) -> bool {
    let list = fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    owner(&list, client, server) == Some(sys::process::effective_uid())
}

/// The user whose socket goes from one address to the other, in the text of proc(5), `/proc/net/tcp`.
fn owner(list: &str, from: SocketAddr, to: SocketAddr) -> Option<u32> {
    let (from, to) = (in_hexadecimal(from)?, in_hexadecimal(to)?);
    let lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.into_iter().find(|fields| {
        fields.get(1).copied() == Some(&*from) && fields.get(2).copied() == Some(&*to)
    })?;
    line.get(7)?.parse().ok()
}

/// An address as the kernel writes it: the bytes as one number of this host.
fn in_hexadecimal(address: SocketAddr) -> Option<String> {
    let SocketAddr::V4(v4) = address else { return None };
    let number = u32::from_ne_bytes(v4.ip().octets());
    Some(format!("{number:08X}:{:04X}", v4.port()))
}

/// Sends a client on to the link.
fn answer(client: &TcpStream, link: &str) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(CLIENT_WAIT))?;
    client.set_write_timeout(Some(CLIENT_WAIT))?;
    let mut line = String::new();
    BufReader::new(io::Read::take(client, 1024)).read_line(&mut line)?;
    if !line.starts_with("GET / ") {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut client = client;
    write!(
        client,
        "HTTP/1.1 302 Found\r\nLocation: {link}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_that_of_the_client() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
             0: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 1\n\
             1: 0100007F:D431 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2\n";
        let address = |text: &str| text.parse().unwrap();
        let (client, server) = (address("127.0.0.1:54321"), address("127.0.0.1:8080"));
        assert_eq!(owner(list, client, server), Some(1000));
        assert_eq!(owner(list, address("127.0.0.1:54322"), server), None);
    }
}
