//! `[FAMILY:]ADDRESS[/PREFIX][:PORT]`, as `ss` reads it.

use super::names::Names;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use wire::inet_diag::Family;
use wire::inet_diag::bytecode::Prefix;

/// The meaning of a host or port in a filter.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) family: Option<Family>,
    /// Any of these; empty for every address.
    pub(super) prefixes: Vec<Prefix>,
    pub(super) port: Option<u16>,
    pub(super) notes: Vec<String>,
}

/// What is wrong with a host, where, and the likely correction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// A part of the host's text.
#[derive(Clone, Copy)]
struct Part<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> Part<'a> {
    fn split(self, at: usize) -> (Part<'a>, Part<'a>) {
        let (left, right) = self.text.split_at_checked(at).unwrap_or((self.text, ""));
        (
            Part { text: left, start: self.start },
            Part { text: right, start: self.start + left.len() },
        )
    }

    /// The part without its first `len` bytes.
    fn after(self, len: usize) -> Part<'a> {
        self.split(len).1
    }

    fn problem(self, message: impl Into<String>, help: Option<&str>) -> Problem {
        Problem {
            span: self.start..self.start + self.text.len(),
            message: message.into(),
            help: help.map(str::to_owned),
        }
    }
}

/// The operand of `src` and `dst`.
pub(super) fn host(text: &str, names: &dyn Names) -> Result<Host, Problem> {
    let (family, rest) = family(Part { text, start: 0 })?;
    if rest.text.is_empty() {
        return Err(
            rest.problem("an address or a port is missing", Some("write `*` for any address"))
        );
    }

    let mut host = Host { family, ..Host::default() };
    let (address, port) = split(rest, &mut host)?;
    host.port = port_of(port, names)?;
    host.prefixes = prefixes(address, names, &mut host)?;

    Ok(host)
}

/// The operand of `sport` and `dport`: only a port, with or without its colon.
pub(super) fn port(text: &str, names: &dyn Names) -> Result<Host, Problem> {
    let (family, rest) = family(Part { text, start: 0 })?;
    if rest.text.is_empty() {
        return Err(rest.problem("a port is missing", Some("write `:443`, or `*` for any")));
    }
    let rest = if rest.text.starts_with(':') { rest.after(1) } else { rest };
    Ok(Host { family, port: port_of(rest, names)?, ..Host::default() })
}

fn family(part: Part<'_>) -> Result<(Option<Family>, Part<'_>), Problem> {
    for (prefix, family) in [("inet:", Family::Inet), ("inet6:", Family::Inet6)] {
        if part.text.starts_with(prefix) {
            return Ok((Some(family), part.after(prefix.len())));
        }
    }

    let other = ["unix:", "link:", "netlink:", "vsock:"]
        .iter()
        .find(|prefix| part.text.starts_with(**prefix));
    match other {
        Some(prefix) => Err(part
            .split(prefix.len())
            .0
            .problem("only TCP sockets are read", Some("write `inet:` or `inet6:`"))),
        None => Ok((None, part)),
    }
}

/// Address (with its prefix length) and port.
fn split<'a>(part: Part<'a>, host: &mut Host) -> Result<(Part<'a>, Part<'a>), Problem> {
    if part.text.starts_with('[') {
        return bracketed(part);
    }

    // With a prefix length, the port's colon comes after it; colons before the slash belong to the address.
    let slash = part.text.find('/').unwrap_or(0);
    let colon = part.text.get(slash..).and_then(|text| text.rfind(':')).map(|at| at + slash);
    let Some(colon) = colon else { return Ok(part.split(part.text.len())) };
    let (address, port) = (part.split(colon).0, part.split(colon).1.after(1));

    // `2001:db8::1:443` can be an address, or an address and a port. As with `ss`, it is the latter if a number follows an
    // address; a note points that out.
    let is_whole = part.text.parse::<Ipv6Addr>().is_ok();
    let is_number = port.text.bytes().all(|byte| byte.is_ascii_digit());
    let is_v6 = slash == 0 && address.text.contains(':');
    let is_split = !is_v6 || (address.text.parse::<Ipv6Addr>().is_ok() && (is_number || !is_whole));

    if is_whole && !is_split {
        return Ok(part.split(part.text.len()));
    }
    if is_whole {
        host.notes.push(format!(
            "`{}` is read as address {} and port {}. Fix: write `[{}]` for the address alone",
            part.text, address.text, port.text, part.text
        ));
    }
    Ok((address, port))
}

/// `[ADDRESS]:PORT`, with a prefix length on either side of the bracket.
fn bracketed(part: Part<'_>) -> Result<(Part<'_>, Part<'_>), Problem> {
    let Some(close) = part.text.find(']') else {
        return Err(part.problem(
            "the [ is never closed",
            Some("write an IPv6 address with a port as `[2001:db8::1]:443`"),
        ));
    };

    let inside = part.split(close).0.after(1);
    let rest = part.split(close + 1).1;

    match rest.text.split_at_checked(1) {
        None => Ok((inside, rest)),
        Some((":", _)) => Ok((inside, rest.after(1))),
        Some(("/", _)) => {
            let length = rest.text.find(':').unwrap_or(rest.text.len());
            let outside = Part { text: part.split(close + 1 + length).0.text, start: part.start };
            Ok((outside, rest.after(length + usize::from(length < rest.text.len()))))
        }
        Some(_) => Err(rest.problem(
            "a colon and a port are expected after the ]",
            Some("write for example `[::1]:443`"),
        )),
    }
}

fn port_of(part: Part<'_>, names: &dyn Names) -> Result<Option<u16>, Problem> {
    let text = part.text;
    if text.is_empty() || text == "*" {
        return Ok(None);
    }

    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(text.parse().unwrap_or(u64::MAX))
        }
        None => None,
    };

    match (number, names.service(text)) {
        (Some(number), _) => u16::try_from(number).map(Some).map_err(|_| {
            part.problem(format!("{text} is not a port"), Some("write a number up to 65535"))
        }),
        (None, Some(port)) => Ok(Some(port)),
        (None, None) => Err(part.problem(
            format!("`{text}` is neither a port nor a service of /etc/services"),
            Some(match text.contains('-') {
                true => "write `sport in 1000-2000`",
                false => "write the number, such as 443",
            }),
        )),
    }
}

fn prefixes(part: Part<'_>, names: &dyn Names, host: &mut Host) -> Result<Vec<Prefix>, Problem> {
    if matches!(part.text, "" | "*" | "any" | "all" | "default") {
        return Ok(Vec::new());
    }

    let slash = part.text.find('/');
    let (written, length) = part.split(slash.unwrap_or(part.text.len()));
    let text = written.text.trim_start_matches('[').trim_end_matches(']');
    let Some(address) = address(text, slash.is_none(), host) else {
        return lookup(written, slash, names, host.family);
    };

    let fits = match host.family {
        Some(Family::Inet) => address.is_ipv4(),
        Some(Family::Inet6) => address.is_ipv6(),
        None => true,
    };

    if !fits {
        let family = host.family.map_or("", Family::name);
        return Err(written.problem(
            format!("`{text}` is not an address of family {family}"),
            Some("leave the family out"),
        ));
    }

    let bits =
        if slash.is_some() { prefix_length(length.after(1), address)? } else { width(address) };
    Ok(vec![Prefix { address, bits }])
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Parses an address. Missing bytes of an IPv4 address are zero, as in `10/8`.
fn address(text: &str, alone: bool, host: &mut Host) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }

    let mut octets = [0; 4];
    let mut count = 0;
    for part in text.split('.') {
        // Some parsers read a part with a leading zero as octal (inet_aton(3)), so it is rejected.
        let canonical = part == "0" || !part.starts_with('0');
        if !canonical || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }

        *octets.get_mut(count)? = part.parse().ok()?;
        count += 1;
    }

    let address = Ipv4Addr::from(octets);
    if alone && count < 4 {
        host.notes.push(format!(
            "`{text}` is the single address {address}. Fix: write `{text}/{}` for the network",
            count * 8
        ));
    }
    Some(address.into())
}

/// Parses a number of bits, or for IPv4 a netmask.
fn prefix_length(part: Part<'_>, address: IpAddr) -> Result<u8, Problem> {
    let width = width(address);
    let mask: Option<Ipv4Addr> = part.text.parse().ok().filter(|_| address.is_ipv4());

    let bits = match mask {
        // A netmask without holes has all its ones first.
        Some(mask) if mask.to_bits().leading_ones() == mask.to_bits().count_ones() => {
            u8::try_from(mask.to_bits().count_ones()).ok()
        }
        Some(_) => {
            return Err(part.problem(
                format!("the mask {} has holes", part.text),
                Some("write a prefix length, such as `/24`"),
            ));
        }
        None => part.text.parse().ok(),
    };

    bits.filter(|bits| *bits <= width).ok_or_else(|| {
        part.problem(
            format!("`{}` is not a prefix length", part.text),
            Some(&format!("write 0 to {width} bits")),
        )
    })
}

fn lookup(
    part: Part<'_>,
    slash: Option<usize>,
    names: &dyn Names,
    family: Option<Family>,
) -> Result<Vec<Prefix>, Problem> {
    let text = part.text;
    let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if is_name && slash.is_none() {
        let fits = |address: &IpAddr| {
            family.is_none_or(|family| address.is_ipv4() == (family == Family::Inet))
        };

        let found: Vec<Prefix> = names
            .host(text)
            .into_iter()
            .filter(fits)
            .map(|address| Prefix { address, bits: width(address) })
            .collect();

        if !found.is_empty() {
            return Ok(found);
        }
    }

    Err(part.problem(
        format!("`{text}` is neither an address nor a host that can be looked up"),
        Some(match text.contains(':') {
            true => "write an IPv6 address with a port as `[2001:db8::1]:443`",
            false => "write an address, or a name that `getent ahosts` resolves",
        }),
    ))
}
