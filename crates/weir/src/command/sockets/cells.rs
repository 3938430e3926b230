//! The text of a cell, and the key that a row is sorted by.

use super::columns::{Key, View};
use super::rates::Rates;
use record::{AddressFamily, CloseReason, SocketState};
use sockets::Limit;
use std::fmt::Write as _;
use std::net::IpAddr;
use text::{Tint, escaped};
use wire::inet_diag::State;

pub(super) fn number(value: Option<impl Into<u64>>) -> Key {
    value.map_or(Key::Absent, |value| Key::Number(value.into()))
}

pub(super) fn text_key(text: Option<&str>) -> Key {
    text.map_or(Key::Absent, |text| Key::Text(text.into()))
}

pub(super) fn rate_key(view: &View<'_>, rate: fn(&Rates) -> f64) -> Key {
    view.moved.rates.map_or(Key::Absent, |rates| Key::Number((rate(&rates) * 1e3) as u64))
}

pub(super) fn put_or_dash<T, S: AsRef<str>>(
    value: Option<T>,
    out: &mut String,
    show: impl FnOnce(T) -> S,
) -> Tint {
    match value {
        Some(value) => {
            out.push_str(show(value).as_ref());
            Tint::Plain
        }
        None => put_dash(out),
    }
}

fn put_dash(out: &mut String) -> Tint {
    out.push('-');
    Tint::Dim
}

/// An amount of bytes; 0 has no unit.
pub(super) fn bytes(bytes: u64) -> String {
    if bytes == 0 { "0".to_owned() } else { text::size(bytes) }
}

/// A byte rate, shown in bits like those of `ss`; 0 has no unit.
pub(super) fn byte_rate(bytes_per_sec: f64) -> String {
    match bytes_per_sec {
        ..0.05 => "0".to_owned(),
        _ => text::bit_rate(bytes_per_sec * 8.0),
    }
}

/// A rate of events: `0`, `0.5/s`, `12.3k/s`.
pub(super) fn event_rate(per_sec: f64) -> String {
    match per_sec {
        ..0.05 => "0".to_owned(),
        _ => format!("{}/s", text::short_count(per_sec)),
    }
}

pub(super) fn put_state(view: &View<'_>, out: &mut String) -> Tint {
    let Some(state) = view.record.state else { return put_dash(out) };
    match State::from_number(state.0) {
        State::Unknown(number) => {
            write!(out, "UNKNOWN {number}").expect("writing to a string cannot fail");
        }
        known => out.push_str(known.printed()),
    }
    match state {
        SocketState::ESTABLISHED | SocketState::LISTEN => Tint::Plain,
        SocketState::SYN_SENT | SocketState::SYN_RECV | SocketState::CLOSE_WAIT => Tint::Notice,
        _ => Tint::Dim,
    }
}

fn address_key(address: Option<IpAddr>, port: Option<u16>) -> Key {
    let Some(address) = address else { return Key::Absent };
    let mut key = [0; 18];
    let bytes = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    key[..16].copy_from_slice(&bytes);
    key[16..].copy_from_slice(&port.unwrap_or_default().to_be_bytes());
    Key::Address(key)
}

pub(super) fn local_key(view: &View<'_>) -> Key {
    address_key(view.record.src_address, view.record.src_port)
}

pub(super) fn peer_key(view: &View<'_>) -> Key {
    address_key(view.record.dst_address, view.record.dst_port)
}

pub(super) fn put_local(view: &View<'_>, out: &mut String) -> Tint {
    put_address(view, view.record.src_address, view.record.src_port, view.interface, out)
}

pub(super) fn put_peer(view: &View<'_>, out: &mut String) -> Tint {
    let port = view.record.dst_port.filter(|&port| port != 0);
    put_address(view, view.record.dst_address, port, None, out)
}

fn put_address(
    view: &View<'_>,
    address: Option<IpAddr>,
    port: Option<u16>,
    interface: Option<&str>,
    out: &mut String,
) -> Tint {
    let Some(address) = address else {
        // The kernel has cleared the address, as of a connection that was refused, but not the port.
        return match port {
            Some(port) if port != 0 => {
                write!(out, "*:{port}").expect("writing to a string cannot fail");
                Tint::Plain
            }
            _ => put_dash(out),
        };
    };

    let is_v6 = view.record.family == Some(AddressFamily::INET6);
    let takes_both = is_v6 && address.is_unspecified() && view.record.v6_only != Some(true);
    let begin = out.len();

    match address {
        _ if takes_both => out.push('*'),
        IpAddr::V4(address) => write!(out, "{address}").expect("writing to a string cannot fail"),
        IpAddr::V6(address) => write!(out, "[{address}").expect("writing to a string cannot fail"),
    }

    if let Some(interface) = interface {
        out.push('%');
        out.push_str(&escaped(interface));
    }

    if out.get(begin..).is_some_and(|text| text.starts_with('[')) {
        out.push(']');
    }

    out.push(':');
    match port {
        Some(port) => write!(out, "{port}").expect("writing to a string cannot fail"),
        // The kernel has cleared it before announcing the close.
        None if view.record.close_reason.is_some() => out.push('?'),
        None => out.push('*'),
    }
    Tint::Plain
}

fn is_listener(view: &View<'_>) -> bool {
    view.record.state == Some(SocketState::LISTEN)
}

pub(super) fn put_send_queue(view: &View<'_>, out: &mut String) -> Tint {
    let is_listener = is_listener(view);
    put_or_dash(view.record.send_queue, out, |queue| match is_listener {
        true => queue.to_string(),
        false => bytes(queue.into()),
    })
}

pub(super) fn put_receive_queue(view: &View<'_>, out: &mut String) -> Tint {
    if is_listener(view) {
        return put_waiting(view, out);
    }
    let queue = view.record.receive_queue;
    match put_or_dash(queue, out, |queue| bytes(queue.into())) {
        Tint::Plain if queue.is_some_and(|bytes| bytes > 0) => Tint::Notice,
        tint => tint,
    }
}

pub(super) fn put_waiting(view: &View<'_>, out: &mut String) -> Tint {
    let (waiting, limit) = (view.record.receive_queue, view.record.send_queue);
    match put_or_dash(waiting, out, |waiting| waiting.to_string()) {
        // The kernel accepts one more than the limit and then drops (sk_acceptq_is_full, include/net/sock.h).
        Tint::Plain if waiting > limit => Tint::Alarm,
        Tint::Plain if waiting.is_some_and(|waiting| waiting > 0) => Tint::Notice,
        tint => tint,
    }
}

pub(super) fn min_rtt(view: &View<'_>) -> Option<u32> {
    // All ones before the first sample (tcp_min_rtt, include/net/tcp.h).
    view.record.min_rtt_us.filter(|&us| us != u32::MAX && !is_listener(view))
}

pub(super) fn cwnd(view: &View<'_>) -> Option<u32> {
    view.record.snd_cwnd_segments.filter(|_| !is_listener(view))
}

pub(super) fn ssthresh(view: &View<'_>) -> Option<u32> {
    // TCP_INFINITE_SSTHRESH (include/net/tcp.h): there has been no loss yet.
    view.record.snd_ssthresh_segments.filter(|&segments| segments < 0x7fff_ffff)
}

/// For a listener the kernel puts another number there: the connections waiting to be accepted.
pub(super) fn unacked(view: &View<'_>) -> Option<u32> {
    view.record.unacked_segments.filter(|_| !is_listener(view))
}

pub(super) fn put_drops(view: &View<'_>, out: &mut String) -> Tint {
    let drops = view.record.drops;
    match put_or_dash(drops, out, |drops| drops.to_string()) {
        Tint::Plain if drops.is_some_and(|drops| drops > 0) => Tint::Alarm,
        tint => tint,
    }
}

pub(super) fn drop_rate_key(view: &View<'_>) -> Key {
    view.moved.drops_per_sec.map_or(Key::Absent, |rate| Key::Number((rate * 1e3) as u64))
}

pub(super) fn put_drop_rate(view: &View<'_>, out: &mut String) -> Tint {
    let rate = view.moved.drops_per_sec;
    match put_or_dash(rate, out, event_rate) {
        Tint::Plain if rate.is_some_and(|rate| rate > 0.0) => Tint::Alarm,
        tint => tint,
    }
}

pub(super) fn delivery_rate(view: &View<'_>) -> Option<u64> {
    view.record.delivery_rate_bytes_per_sec.filter(|&rate| rate > 0)
}

pub(super) fn pacing_rate(view: &View<'_>) -> Option<u64> {
    view.record.pacing_rate_bytes_per_sec.filter(|&rate| rate != u64::MAX)
}

pub(super) fn put_retrans(view: &View<'_>, out: &mut String) -> Tint {
    let now = view.record.retrans_segments.unwrap_or(0);
    let Some(total) = view.record.total_retrans_segments.filter(|_| !is_listener(view)) else {
        return put_dash(out);
    };
    if now == 0 && total == 0 {
        out.push('0');
        return Tint::Plain;
    }
    write!(out, "{now}/{total}").expect("writing to a string cannot fail");
    if now > 0 { Tint::Alarm } else { Tint::Notice }
}

pub(super) fn put_retrans_rate(view: &View<'_>, out: &mut String) -> Tint {
    let tint = put_or_dash(view.moved.rates, out, |rates| event_rate(rates.retrans_segments));
    if view.moved.rates.is_some_and(|rates| rates.retrans_segments > 0.0) {
        Tint::Alarm
    } else {
        tint
    }
}

fn limit(view: &View<'_>) -> Option<Limit> {
    let record = view.record;
    let (rwnd_us, sndbuf_us) = (record.rwnd_limited_us, record.sndbuf_limited_us);
    Limit::of(record.busy_time_us, rwnd_us, sndbuf_us, record.delivery_rate_app_limited)
}

pub(super) fn limit_key(view: &View<'_>) -> Key {
    text_key(limit(view).map(Limit::word))
}

pub(super) fn put_limited(view: &View<'_>, out: &mut String) -> Tint {
    /// Highlight a limit that takes at least this share of the busy time.
    const MUCH_PERCENT: u64 = 20;
    let limit = limit(view);
    let tint = put_or_dash(limit, out, Limit::word);
    match limit {
        Some(Limit::PeerWindow(percent) | Limit::SendBuffer(percent)) => {
            write!(out, " {percent}%").expect("writing to a string cannot fail");
            if percent >= MUCH_PERCENT { Tint::Notice } else { Tint::Plain }
        }
        _ => tint,
    }
}

pub(super) fn idle_ms(view: &View<'_>) -> Option<u32> {
    let record = view.record;
    if is_listener(view) {
        return None;
    }
    match (record.last_data_sent_ms, record.last_data_recv_ms) {
        (Some(sent), Some(received)) => Some(sent.min(received)),
        (one, other) => one.or(other),
    }
}

pub(super) fn age_ms(view: &View<'_>) -> Option<u64> {
    view.age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

pub(super) fn namespace_key(view: &View<'_>) -> Key {
    match view.record.netns_name {
        Some(name) => Key::Text(name.into()),
        None => number(view.record.netns_inode),
    }
}

pub(super) fn put_namespace(view: &View<'_>, out: &mut String) -> Tint {
    match view.record.netns_name {
        Some(name) => put_or_dash(Some(name), out, escaped),
        None => put_or_dash(view.record.netns_inode, out, |inode| format!("net:[{inode}]")),
    }
}

pub(super) fn put_process(view: &View<'_>, out: &mut String) -> Tint {
    let name = view.record.process_name.unwrap_or_default();
    let tint = put_or_dash(view.record.process_id, out, |pid| format!("{}({pid})", escaped(name)));
    if view.owners > 1 {
        write!(out, " +{}", view.owners - 1).expect("writing to a string cannot fail");
    }
    tint
}

pub(super) fn put_user(view: &View<'_>, out: &mut String) -> Tint {
    put_or_dash(view.record.uid, out, |uid| match view.users.name(uid) {
        Some(name) => escaped(name),
        None => uid.to_string(),
    })
}

pub(super) fn put_ended(view: &View<'_>, out: &mut String) -> Tint {
    let reason = view.record.close_reason;
    let tint = put_or_dash(reason, out, |reason| match reason.word() {
        Some(word) => word.to_owned(),
        None => reason.0.to_string(),
    });
    match reason {
        Some(CloseReason::TIMED_OUT | CloseReason::PEER_RESET | CloseReason::REFUSED) => {
            Tint::Alarm
        }
        Some(CloseReason::OUR_RESET) => Tint::Notice,
        _ => tint,
    }
}

pub(super) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
