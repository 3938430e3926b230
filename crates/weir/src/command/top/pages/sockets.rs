//! The page of TCP sockets: those that the daemon puts first, or groups of all.

use super::super::answers::{Group, Socket, Sockets, endpoint};
use super::super::grid::{Column, Entry, Kind, column};
use super::super::model::Model;
use super::{Content, Trend, bytes, entry, or_dash, share};
use record::SocketState;
use sockets::Limit;
use text::{Tint, bit_rate, escaped, grouped, plural, short_time};
use wire::inet_diag::State;

const SOCKETS: &[Column] = &[
    column("state", Kind::Word, 4),
    column("local", Kind::Name(13), 0),
    column("peer", Kind::Name(13), 0),
    column("RTT", Kind::Figure, 0),
    column("±", Kind::Figure, 6),
    column("min", Kind::Figure, 7),
    column("cwnd", Kind::Figure, 2),
    column("retrans", Kind::Figure, 1),
    column("held up", Kind::Word, 3),
    column("rate", Kind::Figure, 8),
    column("send-Q", Kind::Figure, 9),
    column("recv-Q", Kind::Figure, 9),
    column("sent", Kind::Figure, 10),
    column("received", Kind::Figure, 10),
    column("sent again", Kind::Figure, 11),
    column("whose", Kind::Name(12), 5),
    column("RTT over time", Kind::Line, 12),
];

const GROUPS: &[Column] = &[
    column("group", Kind::Name(16), 0),
    column("sockets", Kind::Figure, 0),
    column("longest RTT", Kind::Figure, 0),
    column("sent", Kind::Figure, 2),
    column("received", Kind::Figure, 3),
    column("sent again", Kind::Figure, 1),
];

pub(super) fn content(model: &Model) -> Content<'_> {
    let wanted = model.wanted();
    let told = model.sockets.as_ref();
    // What stands there is an answer to another question until the next one comes.
    let is_late = told.is_some_and(|(asked, _)| *asked != wanted);
    let told = told.map(|(_, told)| told);

    let mut content = match told {
        Some(Ok(sockets)) if !sockets.groups.is_empty() && !wanted.group.is_empty() => {
            Content::of(model, GROUPS, groups(sockets))
        }
        Some(Ok(sockets)) => {
            let entries = sockets.sockets.iter().map(|socket| row(model, socket)).collect();
            Content::of(model, SOCKETS, entries)
        }
        _ => Content::of(model, SOCKETS, Vec::new()),
    };

    match told {
        None => content.say("asking for sockets", Tint::Dim),
        Some(Err(why)) => content.refuse(why),
        Some(Ok(sockets)) => {
            let late = if is_late { "asking again; " } else { "" };
            content.say(format!("{late}{}", words(sockets, model.group_word())), Tint::Plain);
        }
    }
    let trend = |title, line| Trend { title, line, figure: |us| short_time(us as u64) };
    content.trends =
        vec![trend("median RTT", &model.lines.median_rtt), trend("p99 RTT", &model.lines.p99_rtt)];
    content
}

fn words(of: &Sockets, group: Option<&str>) -> String {
    let namespaces = plural(of.namespaces, "namespace", "namespaces");
    let below = match group {
        Some(group) => format!("counted by {group}"),
        None => format!("{} of them below", grouped(of.sockets.len() as u64)),
    };
    let pass = if of.matched == 1 { "socket passes" } else { "sockets pass" };
    let mut words = format!("{} {pass} in {namespaces}, {below}", grouped(of.matched));
    if of.namespaces_failed > 0 {
        let failed = plural(of.namespaces_failed, "namespace", "namespaces");
        words.push_str(&format!("; {failed} could not be read"));
    }
    if of.truncated {
        words.push_str("; the walk took too long, so this is a part");
    }
    words
}

fn row<'a>(model: &'a Model, socket: &Socket) -> Entry<'a> {
    let place = |address: Option<std::net::IpAddr>, port| {
        or_dash(address, |address| endpoint(&address.to_string(), port))
    };
    let time = |us: Option<u64>| or_dash(us.filter(|&us| us > 0), short_time);
    let count = |count: Option<u64>| or_dash(count, grouped);
    let amount = |amount: Option<u64>| or_dash(amount, bytes);
    let whose = [&socket.systemd_unit, &socket.container_id, &socket.netns_name];
    let whose = whose.into_iter().flatten().next().map(|name| escaped(name));
    let resent = socket.bytes_retrans.zip(socket.bytes_sent);
    let (held_up, tint) = held_up(socket);

    let cells = vec![
        state(socket),
        place(socket.src_address, socket.src_port),
        place(socket.dst_address, socket.dst_port),
        time(socket.rtt_us),
        time(socket.rttvar_us),
        // All ones before the first sample (tcp_min_rtt, include/net/tcp.h).
        time(socket.min_rtt_us.filter(|&us| us != u64::from(u32::MAX))),
        count(socket.snd_cwnd_segments),
        count(socket.total_retrans_segments),
        held_up,
        or_dash(socket.delivery_rate_bytes_per_sec, |rate| bit_rate(rate as f64 * 8.0)),
        amount(socket.send_queue),
        amount(socket.receive_queue),
        amount(socket.bytes_sent),
        amount(socket.bytes_received),
        or_dash(resent, |(part, whole)| share(part, whole)),
        whose.unwrap_or_default(),
    ];
    let line = socket.cookie.and_then(|cookie| model.lines.of_sockets.get(&cookie));
    Entry { cells, line, tint }
}

/// The state as `ss` prints it; one without a name is a number.
fn state(socket: &Socket) -> String {
    let number = |word: &str| SocketState::from_word(word).map(|state| state.0);
    or_dash(socket.state.as_ref(), |state| match state.as_str().and_then(number) {
        Some(number) => State::from_number(number).printed().to_owned(),
        None => escaped(&state.to_string()),
    })
}

/// What held it up, as in `weir sockets`.
fn held_up(socket: &Socket) -> (String, Tint) {
    /// Highlight a limit that takes at least this share of the busy time.
    const MUCH_PERCENT: u64 = 20;
    let limit = Limit::of(
        socket.busy_time_us,
        socket.rwnd_limited_us,
        socket.sndbuf_limited_us,
        socket.delivery_rate_app_limited,
    );
    match limit {
        Some(limit @ (Limit::PeerWindow(percent) | Limit::SendBuffer(percent))) => {
            let tint = if percent >= MUCH_PERCENT { Tint::Notice } else { Tint::Plain };
            (format!("{} {percent}%", limit.word()), tint)
        }
        limit => (or_dash(limit, |limit| limit.word().to_owned()), Tint::Plain),
    }
}

/// The groups and what is in none of them: together all that pass.
fn groups(of: &Sockets) -> Vec<Entry<'static>> {
    let row = |name: String, group: &Group| {
        let number = |text: &str| text.parse().unwrap_or(0);
        let sent = number(&group.bytes_sent);
        let longest = Some(group.rtt_us_max).filter(|&us| us > 0);
        let cells = [
            name,
            grouped(group.sockets),
            or_dash(longest, short_time),
            bytes(sent),
            bytes(number(&group.bytes_received)),
            share(number(&group.bytes_retrans), sent),
        ];
        entry(cells, Tint::Plain)
    };
    let name = |group: &Group| match &*group.key {
        "" => "unknown".to_owned(),
        key => escaped(key),
    };
    let mut rows: Vec<_> = of.groups.iter().map(|group| row(name(group), group)).collect();
    if of.other.sockets > 0 {
        rows.push(row("other".to_owned(), &of.other));
    }
    rows
}
