//! Tests on a reply of the kernel's and on what else is known.

use super::ast::{Device, Expr, Test, TextField};
use super::facts::{Facts, Process};
use super::fields::{Field, Source};
use std::net::{IpAddr, SocketAddr};
use wire::inet_diag::bytecode::{End, PortTest, Prefix};
use wire::inet_diag::tcp_info::Unit;
use wire::inet_diag::{SocketMessage, State, States};

/// Local ports that the kernel chooses from unless told otherwise (`net.ipv4.ip_local_port_range`).
pub(super) const DEFAULT_LOCAL_PORTS: (u16, u16) = (32_768, 60_999);

impl Expr {
    /// Whether the socket passes.
    #[must_use]
    pub fn matches(&self, message: &SocketMessage<'_>, facts: &Facts<'_>) -> bool {
        match self {
            Expr::All(parts) => parts.iter().all(|part| part.matches(message, facts)),
            Expr::Any(parts) => parts.iter().any(|part| part.matches(message, facts)),
            Expr::Not(inner) => !inner.matches(message, facts),
            Expr::Test(test) => holds(test, message, facts),
        }
    }
}

fn holds(test: &Test, message: &SocketMessage<'_>, facts: &Facts<'_>) -> bool {
    match test {
        Test::Host(end, prefix, port) => {
            let address = end_of(*end, message);
            port.is_none_or(|port| port == address.port())
                && prefix.is_none_or(|prefix| inside(address.ip(), prefix))
        }
        Test::Port(end, test, wanted) => {
            let port = end_of(*end, message).port();
            match test {
                PortTest::Equal => port == *wanted,
                PortTest::AtLeast => port >= *wanted,
                PortTest::AtMost => port <= *wanted,
            }
        }
        Test::Autobound => {
            let (first, last) = facts.local_ports.unwrap_or(DEFAULT_LOCAL_PORTS);
            (first..=last).contains(&message.id.src.port())
        }
        Test::Device(Device::Index(index)) => message.id.interface_index == *index,
        Test::Device(Device::Name(name)) => {
            message.id.interface_index != 0 && facts.interface == Some(name)
        }
        Test::Mark { value, mask } => message.mark.is_some_and(|mark| mark & mask == *value),
        Test::Cgroup { id, .. } => message.cgroup_id == Some(*id),
        Test::State(states) => state_in(message.state, *states),
        Test::Family(family) => message.family == *family,
        Test::Number(field, compare, wanted) => {
            number_holds(*field, message, facts, &|value| compare.holds(value, *wanted))
        }
        Test::Text(field, pattern) => text_holds(*field, pattern, message, facts),
    }
}

/// Replies say of bound sockets, which have a bit of their own in requests, that they are closed.
pub(super) fn state_in(state: State, states: States) -> bool {
    states.contains(state) || (state == State::Closed && states.contains(State::BoundInactive))
}

fn end_of(end: End, message: &SocketMessage<'_>) -> SocketAddr {
    match end {
        End::Source => message.id.src,
        End::Destination => message.id.dst,
    }
}

/// As the kernel compares: an IPv4 prefix holds IPv4-mapped addresses too, an IPv6 prefix no IPv4 ones.
fn inside(address: IpAddr, prefix: Prefix) -> bool {
    match (prefix.address, address) {
        (IpAddr::V4(wanted), IpAddr::V4(address)) => {
            same(wanted.to_bits().into(), address.to_bits().into(), 32, prefix.bits)
        }
        (IpAddr::V4(wanted), IpAddr::V6(address)) => {
            address.to_ipv4_mapped().is_some_and(|address| {
                same(wanted.to_bits().into(), address.to_bits().into(), 32, prefix.bits)
            })
        }
        (IpAddr::V6(wanted), IpAddr::V6(address)) => {
            same(wanted.to_bits(), address.to_bits(), 128, prefix.bits)
        }
        (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

fn same(a: u128, b: u128, width: u32, bits: u8) -> bool {
    (a ^ b).checked_shr(width.saturating_sub(bits.into())).unwrap_or(0) == 0
}

fn number_holds(
    field: Field,
    message: &SocketMessage<'_>,
    facts: &Facts<'_>,
    test: &dyn Fn(u64) -> bool,
) -> bool {
    let known = match field.source() {
        Source::Pid => return facts.processes.iter().any(|process| test(process.pid.into())),
        Source::TcpInfo(info) => {
            message.tcp_info.as_ref().and_then(|values| tcp_info(info, values))
        }
        Source::ReceiveQueue => Some(message.receive_queue.into()),
        Source::SendQueue => Some(message.send_queue.into()),
        Source::Uid => Some(message.uid.into()),
        Source::Inode => Some(message.inode.into()),
        Source::Cookie => Some(message.id.cookie),
        Source::Drops => message.memory.and_then(|memory| memory.drops).map(u64::from),
        Source::Age => facts.age.map(|age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX)),
    };
    known.is_some_and(test)
}

/// A field in the unit that filters are kept in: microseconds, or bits per second.
fn tcp_info(
    field: &wire::inet_diag::tcp_info::Field,
    values: &wire::inet_diag::TcpInfo,
) -> Option<u64> {
    let value = field.read(values)?;
    // All ones: no round trip was measured yet (`minmax_reset` in net/ipv4/tcp.c).
    if field.name == "min_rtt_us" && value == u32::MAX.into() {
        return None;
    }
    Some(match field.unit {
        Unit::Milliseconds => value.saturating_mul(1_000),
        Unit::BytesPerSecond => value.saturating_mul(8),
        Unit::None | Unit::Microseconds | Unit::Bytes | Unit::Segments => value,
    })
}

fn text_holds(
    field: TextField,
    pattern: &str,
    message: &SocketMessage<'_>,
    facts: &Facts<'_>,
) -> bool {
    let text = match field {
        TextField::Process => {
            return facts.processes.iter().any(|Process { name, .. }| fits(pattern, name));
        }
        TextField::Netns => facts.netns,
        TextField::Pod => facts.pod,
        TextField::Container => facts.container,
        TextField::Unit => facts.unit,
        TextField::CgroupPath => facts.cgroup_path,
        TextField::CongestionControl => message.congestion,
    };
    text.is_some_and(|text| fits(pattern, text))
}

/// Whether a text fits a pattern in which `*` stands for any characters, also for none.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (middle, last) =
        rest.rsplit_once('*').map_or((None, rest), |(middle, last)| (Some(middle), last));
    for part in middle.into_iter().flat_map(|middle| middle.split('*')) {
        match text.find(part).and_then(|at| text.get(at + part.len()..)) {
            Some(rest) => text = rest,
            None => return false,
        }
    }
    text.ends_with(last)
}
