use crate::{
    Accounting, Amount, Earlier, Event, Gauge, HopKind, HopSnapshot, Peer, PeerSender, Reason,
    Snapshot, Way,
};
use std::fmt::Write;
use text::{escaped, grouped, plural, short_time, size};

/// The snapshot as text: what entered and left for each origin and target, the largest loss in words, and whether
/// it balances.
pub fn waterfall(snapshot: &Snapshot) -> String {
    waterfall_without_balance(snapshot) + &balance_line(snapshot)
}

/// Like [`waterfall`], without the last line, for text that continues.
pub fn waterfall_without_balance(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    if let Some(daemon) = &snapshot.daemon {
        let up = short_time(snapshot.uptime_ms.saturating_mul(1_000));
        put(&mut text, format_args!("{}, up {up}\n\n", daemon.line()));
    }
    for hop in &snapshot.hops {
        if begins_origin(hop.hop) {
            put(&mut text, format_args!("{}\n", hop.origin));
        }
        write_hop(&mut text, snapshot, hop);
    }
    if snapshot.hops.is_empty() {
        text.push_str("nothing is counted yet: no listener is open\n");
    }

    text.push('\n');
    text.push_str(&loss_lines(snapshot));
    text
}

/// The lines of one hop, as [`waterfall`] shows them under its origin.
pub fn hop_lines(snapshot: &Snapshot, hop: &HopSnapshot) -> String {
    let mut text = String::new();
    write_hop(&mut text, snapshot, hop);
    text
}

/// The last lines of [`waterfall`]: the largest loss in words, and whether everything is accounted for.
pub fn verdict_lines(snapshot: &Snapshot) -> String {
    loss_lines(snapshot) + &balance_line(snapshot)
}

fn balance_line(snapshot: &Snapshot) -> String {
    let in_flight: u64 = snapshot.whole_hops().map(|hop| hop.in_flight.count).sum();
    let broken: i64 = snapshot.hops.iter().map(|hop| hop.unaccounted.abs()).sum();
    format!("in flight: {}   unaccounted: {broken}\n", grouped(in_flight))
}

fn loss_lines(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    match snapshot.unintended_losses().first() {
        None if snapshot.losses().is_empty() => text.push_str("nothing lost\n"),
        None => text.push_str("nothing lost, apart from what your settings drop\n"),
        Some(loss) => {
            let place = match &loss.hop.target {
                Some(target) => format!("{} -> {target}", loss.hop.origin),
                None => loss.hop.origin.clone(),
            };
            let (cause, advice) = match (loss.hop.hop, loss.way) {
                (HopKind::Socket, Way::Dropped(Reason::Shutdown)) => REFUSED_AT_STOP,
                (_, way) => (way.cause(), way.advice()),
            };
            put(
                &mut text,
                format_args!(
                    "largest loss: {} at {} of {place}: {}\n  Fix: {}\n",
                    grouped(loss.amount.count),
                    loss.hop.hop.label(),
                    cause,
                    advice,
                ),
            );
        }
    }

    if snapshot.violations > 0 {
        let times = plural(snapshot.violations, "time", "times");
        put(
            &mut text,
            format_args!("the ledger did not balance {times}, which is a defect of Weir\n"),
        );
    }
    text
}

/// Cause and advice for datagrams that arrive after the relay has begun to stop.
const REFUSED_AT_STOP: (&str, &str) = (
    "it arrived after the relay had begun to stop",
    "stop the senders first, or use socket activation, which keeps the socket open between two relays",
);

/// Whether this kind of hop is the first of its origin.
fn begins_origin(kind: HopKind) -> bool {
    matches!(kind, HopKind::Socket | HopKind::Poll | HopKind::Analysis)
}

/// Width of the names before the numbers.
const NAME_COLUMNS: usize = 28;
/// Width of a word and its number, in the lines below a hop.
const COUNT_COLUMNS: usize = 20;

fn write_hop(text: &mut String, snapshot: &Snapshot, hop: &HopSnapshot) {
    let target = hop.target.as_deref().unwrap_or("?");
    let part = snapshot.part_of_sink(hop).map_or(String::new(), |part| format!(", {part}"));
    let (indent, name) = match hop.hop {
        HopKind::Socket => ("  ", "kernel socket".to_owned()),
        HopKind::Receive => ("  ", "receive".to_owned()),
        HopKind::Member => ("    ", format!("socket {target}")),
        HopKind::Target | HopKind::Sink => ("    ", format!("-> {target}{part}")),
        HopKind::Egress => ("       ", "handed over".to_owned()),
        HopKind::Receiver => ("       ", "receiver's socket".to_owned()),
        HopKind::Poll => ("  ", "polled".to_owned()),
        HopKind::Close => ("  ", "closed".to_owned()),
        HopKind::Analysis => ("  ", "analyzed".to_owned()),
    };

    let mut label = format!("{indent}{name}");
    if label.chars().count() > NAME_COLUMNS {
        put(text, format_args!("{label}\n"));
        label.clear();
    }

    put(
        text,
        format_args!(
            "{label:<NAME_COLUMNS$} in {:>15}  out {:>15}  {:>10}\n",
            grouped(hop.received.count),
            grouped(hop.delivered.count),
            size(hop.delivered.bytes),
        ),
    );

    for (way, amount) in hop.undelivered() {
        write_undelivered(text, indent, hop.accounting, way, amount);
    }
    write_rest(text, indent, hop);
}

fn write_undelivered(
    text: &mut String,
    indent: &str,
    accounting: Accounting,
    way: Way,
    amount: Amount,
) {
    let bound = match accounting {
        Accounting::Exact => "",
        Accounting::AtLeast => " (at least)",
        Accounting::AllSenders => " (of all its senders)",
    };
    let (what, why) = match way {
        Way::Dropped(reason) if reason.is_intended() => ("skip", reason.label()),
        Way::Dropped(reason) => ("lost", reason.label()),
        Way::Rejected(class) => ("rejected", class.label()),
        Way::Uncertain => ("uncertain", "sent, and never answered"),
        Way::Kept => ("kept", "in the spool, for the next start"),
    };
    write_count(text, indent, what, &grouped(amount.count), &format!("  {why}{bound}"));
}

/// Writes what is inside a hop, what is wrong with it, and what a sink counts outside the law.
fn write_rest(text: &mut String, indent: &str, hop: &HopSnapshot) {
    if !hop.in_flight.is_zero() {
        let oldest = hop.gauge(Gauge::OldestAgeMs).filter(|_| hop.hop == HopKind::Sink);
        let oldest = oldest.map_or(String::new(), |age_ms| {
            format!("  the oldest is {} old", short_time(age_ms.saturating_mul(1_000)))
        });
        write_count(text, indent, "inside", &grouped(hop.in_flight.count), &oldest);
    }
    if hop.unaccounted != 0 {
        write_count(text, indent, "UNACCOUNTED", &hop.unaccounted.to_string(), "");
    }

    for (event, what, note) in [
        (Event::Recovered, "recovered", "  were in the spool at the start"),
        (Event::SpoolsUnclosed, "unclosed", "  after a crash: what was not synced may be missing"),
        (Event::PossibleDuplicates, "duplicates", "  at most, of those that went out"),
        (Event::AgentDroppedSamples, "agents", "  samples lost before agents sent them"),
        (Event::CollectorDropped, "collector", "  dropped here before the analysis, see above"),
        (Event::EventsMissed, "events", "  of thresholds that no sink was given"),
        (
            Event::UnwatchedSamples,
            "unwatched",
            "  samples, because too many flows were at a threshold",
        ),
    ] {
        if hop.event(event) > 0 {
            write_count(text, indent, what, &grouped(hop.event(event)), note);
        }
    }

    if let Some(missing) = hop.gauge(Gauge::NetworkMissing).filter(|missing| *missing > 0) {
        let note = "  missing by agents' numbers, lost on the network";
        write_count(text, indent, "network", &grouped(missing), note);
    }

    write_peers(text, indent, &hop.peers);

    if let Some(trouble) = &hop.trouble {
        // They may quote a server's message.
        let (what, fix) = (escaped(&trouble.what), escaped(&trouble.fix));
        put(text, format_args!("{indent}  trouble: {what}\n{indent}  Fix: {fix}\n"));
    }
}

/// Most Weirs at the other end to show.
const PEERS_SHOWN: usize = 10;

/// Writes the other ends of a link, those with the most datagrams first.
fn write_peers(text: &mut String, indent: &str, peers: &[Peer]) {
    let mut peers: Vec<&Peer> = peers.iter().collect();
    peers.sort_by_key(|peer| std::cmp::Reverse(peer.accepted.count));
    for peer in peers.iter().take(PEERS_SHOWN) {
        let (what, note) = match &peer.sender {
            None => ("there", "  accepted by the other Weir, of what is settled".to_owned()),
            Some(PeerSender { key, host, listener }) => {
                ("from", format!("  {key}: {} of {}", escaped(listener), escaped(host)))
            }
        };
        write_count(text, indent, what, &grouped(peer.accepted.count), &note);
        if let Some(Earlier { received, delivered, dropped, uncertain, lost_in_crash }) =
            peer.earlier
        {
            let [delivered, dropped, uncertain, lost] =
                [delivered, dropped, uncertain, lost_in_crash].map(|of| grouped(of.count));
            let note = format!(
                "  by former processes: {delivered} delivered, {dropped} dropped, {lost} lost in a crash, {uncertain} uncertain"
            );
            write_count(text, indent, "earlier", &grouped(received.count), &note);
        }
    }
    if let Some(more) = peers.get(PEERS_SHOWN..).filter(|more| !more.is_empty()) {
        let count = more.iter().map(|peer| peer.accepted.count).sum();
        let note = format!("  {} others", grouped(more.len() as u64));
        write_count(text, indent, "from", &grouped(count), &note);
    }
}

fn write_count(text: &mut String, indent: &str, what: &str, count: &str, note: &str) {
    let width = COUNT_COLUMNS - 1 - what.len();
    put(text, format_args!("{indent}  {what} {count:>width$}{note}\n"));
}

fn put(text: &mut String, args: std::fmt::Arguments<'_>) {
    text.write_fmt(args).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HopBuilder, RejectClass, SinkCounters, Trouble};

    #[test]
    fn names_the_largest_loss_and_what_helps() {
        let amount = |count| Amount { count, bytes: count * 200 };
        let hop = |kind, target| HopBuilder::new(kind, "syslog", target, amount(0));
        let snapshot = Snapshot {
            hops: vec![
                hop(HopKind::Socket, None)
                    .delivered(amount(1_234_000))
                    .dropped(Reason::SocketBuffer, amount(567))
                    .finish(amount(1_234_567)),
                hop(HopKind::Target, Some("old"))
                    .delivered(amount(1_000_000))
                    .dropped(Reason::Sampled, amount(234_000))
                    .finish(amount(1_234_000)),
            ],
            ..Snapshot::default()
        };
        let text = waterfall(&snapshot);
        assert!(text.contains("in       1,234,567  out       1,234,000"), "{text}");
        assert!(text.contains("largest loss: 567 at socket of syslog"), "{text}");
        assert!(text.contains("receive_buffer"), "{text}");
        assert!(text.contains("unaccounted: 0"), "{text}");
    }

    fn one_hop(kind: HopKind, target: Option<&str>, reason: Reason) -> String {
        let one = Amount { count: 1, bytes: 200 };
        let hop = HopBuilder::new(kind, "syslog", target, Amount::default());
        let hops = vec![hop.dropped(reason, one).finish(one)];
        waterfall(&Snapshot { hops, ..Snapshot::default() })
    }

    #[test]
    fn what_the_settings_ask_for_is_told_from_nothing() {
        let text = one_hop(HopKind::Target, Some("old"), Reason::Sampled);
        assert!(text.contains("nothing lost, apart from what your settings drop\n"), "{text}");
        assert!(text.contains("skip               1  sampled"), "{text}");
    }

    #[test]
    fn drain_grace_does_not_help_at_the_socket() {
        let text = one_hop(HopKind::Socket, None, Reason::Shutdown);
        assert!(text.contains("socket activation") && !text.contains("drain_grace"), "{text}");
        let text = one_hop(HopKind::Target, Some("old"), Reason::Shutdown);
        assert!(text.contains("drain_grace"), "{text}");
    }

    #[test]
    fn long_names_do_not_move_the_columns() {
        let columns = |name: &str| {
            let text = one_hop(HopKind::Target, Some(name), Reason::TooBig);
            let line = text.lines().find(|line| line.contains(" in ")).unwrap().to_owned();
            assert!(text.contains(name), "{text}");
            line.find(" in ")
        };
        assert_eq!(columns("udp://collector-17.example.com:5514"), columns("old"));
    }
    fn sink() -> HopBuilder {
        let amount = |count| Amount { count, bytes: count * 200 };
        let counters = SinkCounters::default();
        counters.acknowledge(amount(9_000_000_000));
        counters.drop(Reason::NotInFormat, amount(4_000));
        counters.drop(Reason::Expired, amount(50));
        counters.reject(RejectClass::Schema, amount(7_000));
        counters.uncertain(amount(600));
        counters.keep(amount(45));
        HopBuilder::new(HopKind::Sink, "sockets", Some("store"), amount(0)).left_sink(&counters)
    }

    fn shown(hop: HopSnapshot) -> String {
        waterfall(&Snapshot { hops: vec![hop], ..Snapshot::default() })
    }

    #[test]
    fn a_sink_shows_every_way_out_and_what_is_wrong() {
        let trouble = Trouble {
            what: "broker:9092: refused \u{1b}[2J".to_owned(),
            fix: "start the broker".to_owned(),
        };
        let hop = sink()
            .gauge(Gauge::OldestAgeMs, 3_200)
            .event(Event::Recovered, 61_000)
            .event(Event::SpoolsUnclosed, 1)
            .event(Event::PossibleDuplicates, 20)
            .trouble(Some(trouble))
            .capacity(1_000)
            .finish(Amount { count: 9_000_012_345, bytes: 9_000_012_345 * 200 });
        let expected = r"
    -> store                 in   9,000,012,345  out   9,000,000,000     1.6 TiB
      skip           4,000  not_in_format
      lost              50  expired
      rejected       7,000  schema
      uncertain        600  sent, and never answered
      kept              45  in the spool, for the next start
      inside           650  the oldest is 3.2 s old
      recovered     61,000  were in the spool at the start
      unclosed           1  after a crash: what was not synced may be missing
      duplicates        20  at most, of those that went out
      trouble: broker:9092: refused \u{1b}[2J
      Fix: start the broker

largest loss: 7,000 at sink of sockets -> store: the store's table or schema does not fit the records
";
        let text = shown(hop);
        assert!(format!("\n{text}").starts_with(expected), "{text}");
    }

    #[test]
    fn what_was_never_answered_is_named_as_a_loss() {
        let one = Amount { count: 1, bytes: 1 };
        let hop = HopBuilder::new(HopKind::Sink, "sockets", Some("store"), one);
        let counters = SinkCounters::default();
        counters.uncertain(one);
        let text = shown(hop.left_sink(&counters).finish(one));
        assert!(text.contains("largest loss: 1 at sink of sockets -> store: "), "{text}");
        assert!(text.contains("Fix: look for their run_id"), "{text}");
    }

    #[test]
    fn counts_of_twelve_digits_fit_into_80_columns() {
        let many = Amount { count: 900_000_000_000, bytes: 999 << 30 };
        let hop = sink().delivered(many).finish(Amount { count: 999_999_999_999, ..many });
        for line in shown(hop).lines().take_while(|line| !line.is_empty()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
