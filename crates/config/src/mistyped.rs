//! Guesses what an unreadable address was meant to be.

use crate::address::{AddressError, is_port};
use crate::sink::kind::is_scheme;
use std::net::Ipv6Addr;

/// Fewest digits in the last group of an IPv6 address to take it for a port: `fd00::1:514`, but not `::1`.
const PORT_DIGITS_MIN: usize = 3;

/// What is wrong, and what to write instead.
type Meant = Option<(&'static str, String)>;

/// For an address to listen on.
pub(crate) fn listener(text: &str) -> Option<AddressError> {
    let meant = match text.split_once(':') {
        _ if is_port(text) => Some(("a port alone is not an address", format!(":{text}"))),
        _ if is_path(text) => Some(("a path alone is not an address", format!("unix:{text}"))),
        Some(("*", port)) if is_port(port) => {
            Some(("* is not an address", format!(":{port} for every IPv4 address")))
        }
        _ => either(text),
    };
    said(meant)
}

/// For an address to send to.
pub(crate) fn target(text: &str) -> Option<AddressError> {
    let meant = match text {
        "null" => Some(("its colon is missing", "null:".to_owned())),
        "stdout" => Some(("its colon is missing", "stdout:".to_owned())),
        _ if is_port(text) => {
            Some(("a port alone is not an address to send to", format!("127.0.0.1:{text}")))
        }
        _ if is_path(text) || is_file(text) => {
            Some(("a path alone is not an address", format!("file:{text}")))
        }
        _ if text.contains(',') && !text.starts_with("file:") => {
            Some(("it holds several addresses", "each as a target of its own".to_owned()))
        }
        _ => either(text),
    };
    said(meant)
}

/// For a target's address that is valid for a sink.
pub(crate) fn target_or_sink(text: &str, error: AddressError) -> AddressError {
    match error {
        AddressError::TargetKind(kind) if is_scheme(&kind) => AddressError::Mistyped {
            why: "a target sends each datagram as it is, and this is for a sink",
            meant: format!(
                "[[sink]] with from = [\"NAME\"] of the listener and to = \"{text}\" into a file for `weir run`"
            ),
        },
        error => error,
    }
}

/// For an address of a sink; `form` is an example, given if the text is only a scheme.
pub(crate) fn sink(text: &str, form: Option<&str>) -> Option<AddressError> {
    let meant = match form {
        Some(form) => Some(("its colon is missing", form.to_owned())),
        None if is_path(text) || is_file(text) => {
            Some(("a path alone is not an address", format!("file:{text}")))
        }
        None => either(text),
    };
    said(meant)
}

/// Schemes followed by a path or nothing, never by a host.
const NO_HOST: [&str; 7] = ["unix", "unixgram", "file", "parquet", "store", "stdout", "null"];

fn said(meant: Meant) -> Option<AddressError> {
    meant.map(|(why, meant)| AddressError::Mistyped { why, meant })
}

fn is_path(text: &str) -> bool {
    ["/", "./", "../", "~/"].iter().any(|start| text.starts_with(start))
}

/// Whether the text ends like a file name: `copy.log`.
fn is_file(text: &str) -> bool {
    [".log", ".txt", ".json", ".jsonl"].iter().any(|end| text.ends_with(end)) && !text.contains(':')
}

fn either(text: &str) -> Meant {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let lower = scheme.to_lowercase();

    if lower != scheme {
        return Some(("schemes are in lower case", format!("{lower}{rest}")));
    }
    if let Some(rest) = text.strip_prefix("udp:/").filter(|rest| !rest.starts_with('/')) {
        return Some(("a slash is missing", format!("udp://{rest}")));
    }
    if let Some((scheme, rest)) = text.split_once(':')
        && is_scheme(scheme)
        && !is_port(rest)
        && !rest.starts_with('/')
        && !NO_HOST.contains(&scheme)
    {
        return Some(("two slashes are missing", format!("{scheme}://{rest}")));
    }
    if let Some((host, port)) = rest.split_once(char::is_whitespace)
        && is_port(port)
    {
        return Some(("a colon stands between address and port", format!("{scheme}{host}:{port}")));
    }
    let bare = bracketed(rest)?;
    Some(("an IPv6 address with a port stands in brackets", format!("{scheme}{bare}")))
}

/// The brackets that an IPv6 address lacks, with its port or a usual one.
fn bracketed(text: &str) -> Option<String> {
    if let Some((addr, port)) = text.rsplit_once(':')
        && is_port(port)
        && port.len() >= PORT_DIGITS_MIN
        && addr.parse::<Ipv6Addr>().is_ok()
    {
        return Some(format!("[{addr}]:{port}"));
    }
    text.parse::<Ipv6Addr>().ok().map(|addr| format!("[{addr}]:514"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: Option<AddressError>, expected: &str) {
        let said = error.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(said.split_once("Fix: write ").map_or("", |(_, meant)| meant), expected);
    }

    #[test]
    fn what_was_meant() {
        check(listener("514"), ":514");
        check(listener("*:514"), ":514 for every IPv4 address");
        check(listener("/run/weir.sock"), "unix:/run/weir.sock");
        check(listener("::1:20514"), "[::1]:20514");
        check(listener("udp://fd00::1:514"), "udp://[fd00::1]:514");
        check(listener("fd00::1"), "[fd00::1]:514");
        check(listener("10.0.0.1 514"), "10.0.0.1:514");
        check(listener("UDP://10.0.0.1:514"), "udp://10.0.0.1:514");
        check(listener("udp:/10.0.0.1:514"), "udp://10.0.0.1:514");
        check(listener("10.0.0.1"), "");
        check(target("514"), "127.0.0.1:514");
        check(target("null"), "null:");
        check(target("stdout"), "stdout:");
        check(target("./x.log"), "file:./x.log");
        check(target("x.log"), "file:x.log");
        check(sink("/var/x.jsonl", None), "file:/var/x.jsonl");
        check(sink("kafka:host:9092/topic", None), "kafka://host:9092/topic");
        check(target("a:1,b:2"), "each as a target of its own");
    }
}
