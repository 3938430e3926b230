use crate::{Accounting, HopKind, HopSnapshot, Reason, Snapshot};
use std::fmt::Write;
use text::{grouped, size};

/// The snapshot as text: in to out for each origin and target, then the largest loss in words.
pub fn waterfall(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for hop in &snapshot.hops {
        write_hop(&mut text, hop);
    }
    if snapshot.hops.is_empty() {
        text.push_str("nothing is counted yet: no listener is open\n");
    }

    text.push('\n');
    match snapshot.unintended_losses().first() {
        None if snapshot.losses().is_empty() => text.push_str("nothing lost\n"),
        None => text.push_str("nothing lost but what the settings ask for\n"),
        Some(loss) => {
            let place = match &loss.hop.target {
                Some(target) => format!("{} -> {target}", loss.hop.origin),
                None => loss.hop.origin.clone(),
            };
            let (cause, advice) = match (loss.hop.hop, loss.reason) {
                (HopKind::Socket, Reason::Shutdown) => REFUSED_AT_STOP,
                (_, reason) => (reason.cause(), reason.advice()),
            };
            put(
                &mut text,
                format_args!(
                    "largest loss: {} at {} of {place}: {}\n  what helps: {}\n",
                    grouped(loss.amount.count),
                    loss.hop.hop.label(),
                    cause,
                    advice,
                ),
            );
        }
    }

    let in_flight: u64 = snapshot.hops.iter().map(|hop| hop.in_flight.count).sum();
    let broken: i64 = snapshot.hops.iter().map(|hop| hop.unaccounted.abs()).sum();
    put(
        &mut text,
        format_args!(
            "in flight: {}   unaccounted: {broken}   law broken at: {} moments\n",
            grouped(in_flight),
            snapshot.violations,
        ),
    );
    text
}

/// Cause and advice for what still arrives once the relay has begun to stop.
const REFUSED_AT_STOP: (&str, &str) = (
    "it arrived after the relay had begun to stop",
    "stop the senders first, or use socket activation, which keeps the socket open between two relays",
);

/// Columns of the names before the numbers.
const NAME_COLUMNS: usize = 34;

fn write_hop(text: &mut String, hop: &HopSnapshot) {
    let (indent, name) = match hop.hop {
        HopKind::Socket => {
            put(text, format_args!("{}\n", hop.origin));
            ("  ", "kernel socket".to_owned())
        }
        HopKind::Receive => ("  ", "receive".to_owned()),
        HopKind::Target => ("    ", format!("-> {}", hop.target.as_deref().unwrap_or("?"))),
        HopKind::Egress => ("       ", "handed over".to_owned()),
        HopKind::Receiver => ("       ", "receiver's socket".to_owned()),
        HopKind::Poll => {
            put(text, format_args!("{}\n", hop.origin));
            ("  ", "polled".to_owned())
        }
        HopKind::Close => ("  ", "closed".to_owned()),
        HopKind::Sink => ("    ", format!("-> {}", hop.target.as_deref().unwrap_or("?"))),
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

    for drop in &hop.dropped {
        let bound = match hop.accounting {
            Accounting::Exact => "",
            Accounting::AtLeast => " (at least)",
            Accounting::AllSenders => " (of all its senders)",
        };
        let what = if drop.reason.is_intended() { "skip" } else { "lost" };
        put(
            text,
            format_args!(
                "{indent}  {what} {:>15}  {}{bound}\n",
                grouped(drop.amount.count),
                drop.reason.label(),
            ),
        );
    }

    if !hop.in_flight.is_zero() {
        put(text, format_args!("{indent}  inside {:>13}\n", grouped(hop.in_flight.count)));
    }
    if hop.unaccounted != 0 {
        put(text, format_args!("{indent}  UNACCOUNTED {:>8}\n", hop.unaccounted));
    }
}

fn put(text: &mut String, args: std::fmt::Arguments<'_>) {
    text.write_fmt(args).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Amount, HopBuilder};

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
        assert!(text.contains("nothing lost but what the settings ask for\n"), "{text}");
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
}
