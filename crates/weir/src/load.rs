//! What `weir gen` and `weir verify` share: addresses and quantities on the command line, the stop signal, the progress line.

use crate::exit::Failure;
use ::load::Address;
use clap::ValueEnum;
use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use weir::config::{Host, HostPort, ListenAddress, TargetAddress};

pub(crate) use ::ledger::grouped;
pub(crate) use weir::config::units::parse_duration;
use weir::config::units::parse_size;

/// Whether and how progress is shown on standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ProgressMode {
    /// Rewritten in place on a terminal, else new lines every ten seconds.
    Auto,
    /// New lines every second.
    Lines,
    /// None.
    Off,
}

/// A flag that Ctrl-C and SIGTERM set. A second signal ends the program at once, unless it follows within half a second.
pub(crate) fn stop_flag() -> io::Result<&'static AtomicBool> {
    Ok(sys::signal::stop_flag()?)
}

/// Whether it is a terminal on which a line can be written over.
pub(crate) fn rewrites_lines(stream: &impl IsTerminal) -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    stream.is_terminal() && !is_dumb
}

/// Runs `work` while lines about it go to standard error.
pub(crate) fn with_progress<T>(
    mode: ProgressMode,
    line: impl Fn() -> String + Send,
    work: impl FnOnce() -> T,
) -> T {
    let on_terminal = rewrites_lines(&io::stderr());
    let every = match mode {
        ProgressMode::Off => return work(),
        ProgressMode::Lines => Duration::from_secs(1),
        ProgressMode::Auto if on_terminal => Duration::from_millis(500),
        ProgressMode::Auto => Duration::from_secs(10),
    };
    let rewrites = on_terminal && mode == ProgressMode::Auto;
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Progress is a courtesy: nothing depends on whether it can be written.
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let (before, after) = if rewrites { ("\r\x1b[K", "") } else { ("", "\n") };
                let _ = write!(io::stderr(), "{before}{}{after}", line());
            }
            if rewrites {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        });
        let result = work();
        drop(end);
        result
    })
}

/// Where to send, of a target on the command line; host names are resolved, once.
pub(crate) fn target(address: &TargetAddress) -> anyhow::Result<Address> {
    match address {
        TargetAddress::Udp(host_port) => resolve(host_port).map(Address::Udp),
        TargetAddress::Unix(path) => Ok(Address::Unix(path.clone())),
        TargetAddress::File(_) | TargetAddress::Null => Err(Failure::Usage
            .error(format!("cannot send to {address}: write udp://HOST:PORT or unix:/path"))),
    }
}

/// Where to listen, of an address on the command line.
pub(crate) fn listener(address: &ListenAddress) -> anyhow::Result<Address> {
    match address {
        ListenAddress::Udp(host_port) => resolve(host_port).map(Address::Udp),
        ListenAddress::Unix(path) => Ok(Address::Unix(path.clone())),
    }
}

fn resolve(host_port: &HostPort) -> anyhow::Result<SocketAddr> {
    let unavailable = |why: &str| {
        Failure::Unavailable
            .error(format!("cannot resolve {host_port}: {why}; see `getent ahosts` for the name"))
    };
    let name = match &host_port.host {
        Host::Ip(ip) => return Ok(SocketAddr::new(*ip, host_port.port)),
        Host::Name(name) => name,
    };
    let found = (name.as_str(), host_port.port).to_socket_addrs();
    let mut found = found.map_err(|error| unavailable(&error.to_string()))?;
    found.next().ok_or_else(|| unavailable("it has no address"))
}

/// A count or a rate: a whole number with an optional factor: `100k`, `1M`, `64Ki`.
pub(crate) fn parse_number(text: &str) -> Result<u64, String> {
    const FACTORS: [(&str, u64); 7] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("", 1),
    ];
    let (digits, factor) = FACTORS
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))
        .ok_or("a number is missing")?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > 9 {
        return Err("write a number such as 1000, 100k (1000), 64Ki (1024) or 1.5M".to_owned());
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    let value: u128 = format!("{whole}{fraction}").parse().map_err(|_| "it is too large")?;
    let product = value.checked_mul(u128::from(factor)).ok_or("it is too large")?;
    if !product.is_multiple_of(scale) {
        return Err("it is not a whole number".to_owned());
    }
    u64::try_from(product / scale).map_err(|_| "it is too large".to_owned())
}

/// Bytes: a number as in [`parse_number`], with or without `B`.
pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    let number = parse_number(text.strip_suffix('B').unwrap_or(text))?;
    usize::try_from(number).map_err(|_| "it is too large".to_owned())
}

/// A buffer's size: as in the configuration, with a unit.
pub(crate) fn parse_buffer(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes).map_err(|_| "it is too large".to_owned())
}

/// An address that the system refused: says which, why, and what mends it.
pub(crate) fn address_error(error: &(dyn std::error::Error + 'static)) -> anyhow::Error {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let (failure, hint) = match source.map(io::Error::kind) {
        Some(io::ErrorKind::AddrInUse) => (
            Failure::Unavailable,
            "; another program holds it: `ss -lunxp` shows which, or choose another",
        ),
        Some(io::ErrorKind::AddrNotAvailable) => {
            (Failure::Unavailable, "; this host does not have the address: see `ip address`")
        }
        Some(io::ErrorKind::PermissionDenied) => (
            Failure::Permission,
            "; ports below 1024 need a privilege: choose a higher one, or `setcap cap_net_bind_service+ep` on the binary",
        ),
        Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            (Failure::Unavailable, "; nobody listens there: start the receiver first")
        }
        Some(_) => (Failure::Unavailable, ""),
        None => (Failure::Usage, ""),
    };
    match source {
        Some(source) => failure.error(format!("{error}: {source}{hint}")),
        None => failure.error(format!("{error}{hint}")),
    }
}

/// A time in the unit that leaves one to three digits before the point.
pub(crate) fn time_text(time_ns: u64) -> String {
    let (value, unit) = match time_ns {
        0..1_000 => return format!("{time_ns} ns"),
        1_000..1_000_000 => (time_ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (time_ns as f64 / 1e6, "ms"),
        _ => (time_ns as f64 / 1e9, "s"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// A rate of bits: `160 Mbit/s`.
pub(crate) fn bits_text(bits_per_sec: f64) -> String {
    match bits_per_sec {
        ..1e3 => format!("{bits_per_sec:.0} bit/s"),
        1e3..1e6 => format!("{:.1} kbit/s", bits_per_sec / 1e3),
        1e6..1e9 => format!("{:.1} Mbit/s", bits_per_sec / 1e6),
        _ => format!("{:.2} Gbit/s", bits_per_sec / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str, expected: Option<u64>) {
        assert_eq!(parse_number(text).ok(), expected, "{text}");
    }

    #[test]
    fn numbers() {
        number("0", Some(0));
        number("1000", Some(1_000));
        number("100k", Some(100_000));
        number("1.5M", Some(1_500_000));
        number("64Ki", Some(65_536));
        number("0.5", None);
        number("k", None);
        number("1kk", None);
        number("-1", None);
        number("1.", Some(1));
        number("99999999999999999999", None);
        assert_eq!(parse_bytes("64MiB"), Ok(67_108_864));
        assert_eq!(parse_bytes("200"), Ok(200));
        assert_eq!(parse_buffer("64KiB"), Ok(65_536));
        assert!(parse_buffer("16").is_err());
    }

    fn check_target(text: &str, expected: &str) {
        assert_eq!(target(&text.parse().unwrap()).unwrap().to_string(), expected, "{text}");
    }

    #[test]
    fn addresses() {
        check_target("127.0.0.1:514", "udp://127.0.0.1:514");
        check_target("udp://[::1]:514", "udp://[::1]:514");
        check_target("unix:/run/x.sock", "unix:/run/x.sock");
        assert_eq!(listener(&":0".parse().unwrap()).unwrap().to_string(), "udp://0.0.0.0:0");
        assert!(target(&"null:".parse().unwrap()).is_err());
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(time_text(999), "999 ns");
        assert_eq!(time_text(12_345), "12.3 µs");
        assert_eq!(time_text(9_996_000), "10.0 ms");
        assert_eq!(bits_text(160e6), "160.0 Mbit/s");
    }
}
