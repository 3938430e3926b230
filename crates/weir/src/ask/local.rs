//! Requests to a daemon at its unix socket, where the kernel says who asks.

use super::{ANSWER_BYTES_MAX, NO_DAEMON_HERE};
use crate::exit::Failure;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use ureq::http::StatusCode;

/// The path of the unix socket that an admin address names, as `unix:/run/weir/admin.sock` or `/run/weir/admin.sock`.
pub(super) fn path_of(admin: &str) -> Option<&str> {
    let is_path = admin.starts_with(['/', '.']);
    admin.strip_prefix("unix:").or_else(|| is_path.then_some(admin))
}

/// As [`super::exchange`].
pub(super) fn exchange(
    path: &str,
    page: &str,
    timeout: Duration,
    begun: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<(String, StatusCode, String)> {
    let no_answer = |error: io::Error| {
        let (failure, fix) = match error.kind() {
            io::ErrorKind::PermissionDenied => (
                Failure::Permission,
                "run this as root, as the daemon's user or as one of admin.socket_users",
            ),
            _ => (Failure::Unavailable, NO_DAEMON_HERE),
        };
        failure.error(format!("no daemon answers at unix:{path}: {error}. Fix: {fix}"))
    };

    let mut answer = request(path, page, timeout).map_err(no_answer)?;
    let status = head(&mut answer).map_err(no_answer)?;
    if status.is_success() {
        begun()?;
    }
    let mut body = String::new();
    answer.take(ANSWER_BYTES_MAX).read_to_string(&mut body).map_err(no_answer)?;
    Ok((format!("unix:{path}"), status, body.trim_end().to_owned()))
}

fn request(path: &str, page: &str, timeout: Duration) -> io::Result<BufReader<UnixStream>> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    // An answer to HTTP/1.0 is not in chunks: it ends with the connection.
    write!(stream, "GET {page} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    Ok(BufReader::new(stream))
}

/// Reads the head of an answer.
fn head(answer: &mut impl BufRead) -> io::Result<StatusCode> {
    let mut lines = answer.take(HEAD_BYTES_MAX).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let not_http = || io::Error::new(io::ErrorKind::InvalidData, "it does not speak HTTP");
    for line in lines {
        if line?.is_empty() {
            return status.ok_or_else(not_http);
        }
    }
    Err(not_http())
}

/// Longest head of an answer: the daemon's are below 1 KiB.
const HEAD_BYTES_MAX: u64 = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(path_of("unix:/run/a.sock"), Some("/run/a.sock"));
        assert_eq!(path_of("unix:a.sock"), Some("a.sock"));
        assert_eq!(path_of("/run/a.sock"), Some("/run/a.sock"));
        assert_eq!(path_of("./a.sock"), Some("./a.sock"));
        assert_eq!(path_of("127.0.0.1:9464"), None);
        assert_eq!(path_of("http://a/"), None);
    }

    #[test]
    fn heads() {
        let mut answer = &b"HTTP/1.0 401 Unauthorized\r\na: b\r\n\r\nbody"[..];
        assert_eq!(head(&mut answer).unwrap(), StatusCode::UNAUTHORIZED);
        assert_eq!(answer, b"body");
        for wrong in ["", "HTTP/1.0 200", "SSH-2.0-x\r\n\r\n", "HTTP/1.0 x\r\n\r\n"] {
            assert!(head(&mut wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
