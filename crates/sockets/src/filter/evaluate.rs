//! Evaluates tests on a kernel message and on what else is known.

use super::ast::{Device, Expr, Test, TextField};
use super::facts::{Facts, Origin};
use super::fields::{Field, MemoryField, Source};
use super::verdict::Verdict;
use crate::Limit;
use crate::attribution::Process;
use crate::says;
use std::net::IpAddr;
use wire::inet_diag::bytecode::{End, PortTest, Prefix};
use wire::inet_diag::tcp_info::Unit;
use wire::inet_diag::{SocketMessage, State, States};

/// Local ports that the kernel chooses from by default (`net.ipv4.ip_local_port_range`).
pub(super) const DEFAULT_LOCAL_PORTS: (u16, u16) = (32_768, 60_999);

impl Expr {
    /// The verdict on the socket. Missing information leaves open whatever depends on it.
    ///
    /// The state is that of the message; the state in a close event means nothing.
    #[must_use]
    pub fn evaluate(&self, message: &SocketMessage<'_>, facts: &Facts<'_>) -> Verdict {
        match self {
            Expr::All(parts) => {
                Verdict::all(parts.iter().map(|part| part.evaluate(message, facts)))
            }
            Expr::Any(parts) => {
                Verdict::any(parts.iter().map(|part| part.evaluate(message, facts)))
            }
            Expr::Not(inner) => !inner.evaluate(message, facts),
            Expr::Test(test) => answer(test, message, facts),
        }
    }

    /// Whether the socket certainly passes.
    #[must_use]
    pub fn matches(&self, message: &SocketMessage<'_>, facts: &Facts<'_>) -> bool {
        self.evaluate(message, facts).passes()
    }

    fn names_states(&self) -> bool {
        let mut found = false;
        self.for_each_test(&mut |test| found |= matches!(test, Test::State(_)));
        found
    }
}

/// The verdict on a connection that no poll has seen, from its close event: whether a poll that requests the states `asked` could
/// have met it in one of the states that it `had`, with the expression true at that time.
pub(crate) fn of_close(
    expression: Option<&Expr>,
    asked: States,
    had: States,
    event: &SocketMessage<'_>,
    facts: &Facts<'_>,
) -> Verdict {
    let facts = Facts { origin: Origin::Close, ..*facts };
    let possible = asked & had;

    match expression {
        _ if possible.is_empty() => Verdict::False,
        None => Verdict::True,
        Some(expression) if expression.names_states() => {
            // The event does not tell which state it was in, so each possible one is tried.
            let mut message = *event;
            Verdict::any(possible.iter().map(|state| {
                message.state = state;
                expression.evaluate(&message, &facts)
            }))
        }
        Some(expression) => expression.evaluate(event, &facts),
    }
}

fn answer(test: &Test, message: &SocketMessage<'_>, facts: &Facts<'_>) -> Verdict {
    match test {
        Test::Host(end, prefix, port) => {
            let address = address_of(*end, message, facts);
            let is_inside =
                prefix.map(|prefix| Verdict::known(address.map(|ip| inside(ip, prefix))));
            let is_port =
                port.map(|port| Verdict::known(port_of(*end, message, facts).map(|at| at == port)));
            Verdict::all(is_inside.into_iter().chain(is_port))
        }
        Test::Port(end, test, wanted) => {
            let holds = |port| port_holds(*test, port, *wanted);
            Verdict::known(port_of(*end, message, facts).map(holds))
        }
        Test::Autobound => autobound(message, facts),
        Test::Device(Device::Index(index)) => (message.id.interface_index == *index).into(),
        // The socket is bound to no interface, whatever the name stands for.
        Test::Device(Device::Name(_)) if message.id.interface_index == 0 => Verdict::False,
        Test::Device(Device::Name(name)) => Verdict::known(facts.interface.map(|it| it == name)),
        // Without CAP_NET_ADMIN the kernel sends no mark: it is unknown rather than 0.
        Test::Mark { value, mask } => {
            Verdict::known(message.mark.map(|mark| mark & mask == *value))
        }
        Test::Cgroup { id, .. } => match facts.origin {
            // As the kernel's programs compare: a socket without a cgroup, such as a minisock, is in none (inet_diag_bc_sk).
            Origin::Row => (message.cgroup_id == Some(*id)).into(),
            Origin::Close => Verdict::Unknown,
        },
        Test::State(states) => state_in(message.state, *states).into(),
        Test::Family(family) => (message.family == *family).into(),
        Test::Number(field, compare, wanted) => {
            number(*field, message, facts, &|value| compare.holds(value, *wanted))
        }
        Test::Text(field, pattern) => text(*field, pattern, message, facts),
    }
}

/// Bound sockets have a bit of their own in requests, but replies report them as closed.
pub(super) fn state_in(state: State, states: States) -> bool {
    states.contains(state) || (state == State::Closed && states.contains(State::BoundInactive))
}

fn address_of(end: End, message: &SocketMessage<'_>, facts: &Facts<'_>) -> Option<IpAddr> {
    let address = match end {
        End::Source => message.id.src.ip(),
        End::Destination => message.id.dst.ip(),
    };
    match facts.origin {
        Origin::Row => Some(address),
        Origin::Close => says::closed_address(address),
    }
}

fn port_of(end: End, message: &SocketMessage<'_>, facts: &Facts<'_>) -> Option<u16> {
    let port = match end {
        End::Source => message.id.src.port(),
        End::Destination => message.id.dst.port(),
    };
    match facts.origin {
        Origin::Row => Some(port),
        Origin::Close => says::closed_port(port),
    }
}

/// For a row the port alone decides, as [`super::Filter::matches`] says. In a close event the port can only rule it out.
fn autobound(message: &SocketMessage<'_>, facts: &Facts<'_>) -> Verdict {
    let (first, last) = facts.local_ports.unwrap_or(DEFAULT_LOCAL_PORTS);
    let is_in_range =
        port_of(End::Source, message, facts).map(|port| (first..=last).contains(&port));
    match facts.origin {
        Origin::Row => Verdict::known(is_in_range),
        Origin::Close => Verdict::known(is_in_range.filter(|is_in_range| !is_in_range)),
    }
}

pub(super) fn port_holds(test: PortTest, port: u16, wanted: u16) -> bool {
    match test {
        PortTest::Equal => port == wanted,
        PortTest::AtLeast => port >= wanted,
        PortTest::AtMost => port <= wanted,
    }
}

/// As the kernel compares: an IPv4 prefix contains IPv4-mapped addresses too, an IPv6 prefix contains no IPv4 addresses.
pub(super) fn inside(address: IpAddr, prefix: Prefix) -> bool {
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
    // A prefix of 0 bits shifts everything out and contains every address.
    (a ^ b).checked_shr(width.saturating_sub(bits.into())).unwrap_or(0) == 0
}

fn number(
    field: Field,
    message: &SocketMessage<'_>,
    facts: &Facts<'_>,
    test: &dyn Fn(u64) -> bool,
) -> Verdict {
    let is_row = facts.origin == Origin::Row;
    let has_counters = is_row || !says::is_aborted(message);

    let value = match field.source() {
        Source::Pid => return held(message, facts, &|process| test(process.pid.into())),
        Source::TcpInfo(info) if has_counters => {
            let is_said = is_row || !says::CLEARED_BEFORE_CLOSE.contains(&info.name);
            let values = message.tcp_info.as_ref().filter(|_| is_said);
            values.and_then(|values| tcp_info(info, values))
        }
        Source::ReceiveQueue if has_counters => Some(message.receive_queue.into()),
        Source::SendQueue if has_counters => Some(message.send_queue.into()),
        Source::TcpInfo(_) | Source::ReceiveQueue | Source::SendQueue => None,
        Source::Uid if is_row => says::uid(message).map(u64::from),
        Source::Inode if is_row => says::inode(message).map(u64::from),
        Source::Uid | Source::Inode => None,
        Source::Cookie => Some(message.id.cookie),
        Source::Waiting => of_listener(message, facts, message.receive_queue),
        Source::Backlog => of_listener(message, facts, message.send_queue),
        Source::Idle if has_counters => idle_us(message),
        Source::Sent if has_counters => {
            let info = message.tcp_info.as_ref();
            info.and_then(|info| info.bytes_sent().or(info.bytes_acked()))
        }
        Source::Idle | Source::Sent => None,
        Source::Dscp => dscp(message).filter(|_| is_row).map(u64::from),
        Source::Memory(field) => message.memory.map(|memory| {
            u64::from(match field {
                MemoryField::Receive => memory.rmem_alloc_bytes,
                MemoryField::ReceiveLimit => memory.rcvbuf_bytes,
                MemoryField::Send => memory.wmem_queued_bytes,
                MemoryField::SendLimit => memory.sndbuf_bytes,
            })
        }),
        Source::Drops => message.memory.and_then(|memory| memory.drops).map(u64::from),
        Source::Age => facts.age.map(|age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX)),
    };

    Verdict::known(value.map(test))
}

/// The number in one of a listener's queue fields, where it counts connections instead of bytes. `None` for other sockets.
fn of_listener(message: &SocketMessage<'_>, facts: &Facts<'_>, number: u32) -> Option<u64> {
    let is_listener = facts.origin == Origin::Row && message.state == State::Listen;
    is_listener.then_some(number.into())
}

/// Time since data was last sent or received, in microseconds.
fn idle_us(message: &SocketMessage<'_>) -> Option<u64> {
    let info = message.tcp_info.as_ref().filter(|_| message.state != State::Listen)?;
    let ages_ms = [info.last_data_sent_ms(), info.last_data_recv_ms()];
    ages_ms.into_iter().flatten().min().map(|ms| u64::from(ms) * 1_000)
}

/// The DSCP of outgoing packets. An IPv6 socket with an IPv4 connection sends IPv4.
fn dscp(message: &SocketMessage<'_>) -> Option<u8> {
    let is_ipv4 = message.id.dst.ip().to_canonical().is_ipv4();
    let byte = if is_ipv4 { message.type_of_service } else { message.traffic_class };
    byte.map(|byte| byte >> 2)
}

fn limit(message: &SocketMessage<'_>) -> Option<Limit> {
    let info = message.tcp_info.as_ref()?;
    let is_app_limited = info.delivery_rate_app_limited().map(|flag| flag != 0);
    Limit::of(info.busy_time_us(), info.rwnd_limited_us(), info.sndbuf_limited_us(), is_app_limited)
}

/// Tests the processes that hold the socket. If none is known, the test is false only for a socket without a file.
fn held(
    message: &SocketMessage<'_>,
    facts: &Facts<'_>,
    test: &dyn Fn(&Process<'_>) -> bool,
) -> Verdict {
    if !facts.processes.is_empty() {
        return facts.processes.iter().any(test).into();
    }
    let has_no_file = facts.origin == Origin::Row && says::inode(message) == Some(0);
    if has_no_file { Verdict::False } else { Verdict::Unknown }
}

/// A field in the unit that filters use: microseconds, or bits per second.
fn tcp_info(
    field: &wire::inet_diag::tcp_info::Field,
    values: &wire::inet_diag::TcpInfo,
) -> Option<u64> {
    let value = field.read(values)?;

    // All ones: no round trip was measured yet (`minmax_reset` in net/ipv4/tcp.c).
    if field.name == "min_rtt_us" && value == u64::from(u32::MAX) {
        return None;
    }

    Some(match field.unit {
        Unit::Milliseconds => value.saturating_mul(1_000),
        Unit::BytesPerSecond => value.saturating_mul(8),
        Unit::None | Unit::Microseconds | Unit::Bytes | Unit::Segments => value,
    })
}

fn text(
    field: TextField,
    pattern: &str,
    message: &SocketMessage<'_>,
    facts: &Facts<'_>,
) -> Verdict {
    // A cgroup whose path is known and names no pod is in none.
    let of_cgroup = |part: Option<&str>| match part {
        Some(part) => Verdict::from(fits(pattern, part)),
        None => Verdict::known(facts.cgroup_path.map(|_| false)),
    };

    match field {
        TextField::Process => held(message, facts, &|process| fits(pattern, process.name)),
        TextField::Netns => match facts.netns {
            Some(name) => fits(pattern, name).into(),
            None if facts.is_netns_known => Verdict::False,
            None => Verdict::Unknown,
        },
        TextField::Pod => of_cgroup(facts.pod),
        TextField::Container => of_cgroup(facts.container),
        TextField::Unit => of_cgroup(facts.unit),
        TextField::CgroupPath => Verdict::known(facts.cgroup_path.map(|path| fits(pattern, path))),
        TextField::Limited => {
            let is_said = facts.origin == Origin::Row || !says::is_aborted(message);
            let limit = limit(message).filter(|_| is_said);
            Verdict::known(limit.map(|limit| fits(pattern, limit.word())))
        }
        TextField::CongestionControl => {
            Verdict::known(message.congestion.map(|name| fits(pattern, name)))
        }
    }
}

/// Whether a text matches a pattern in which `*` stands for any characters, including none.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (middle, last) =
        rest.rsplit_once('*').map_or((None, rest), |(middle, last)| (Some(middle), last));

    // Each part is matched at its first occurrence, which leaves the most text for the rest.
    for part in middle.into_iter().flat_map(|middle| middle.split('*')) {
        match text.find(part).and_then(|at| text.get(at + part.len()..)) {
            Some(rest) => text = rest,
            None => return false,
        }
    }

    text.ends_with(last)
}
