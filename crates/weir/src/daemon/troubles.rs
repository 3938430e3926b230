//! Logs failures along the way: once when one begins, and once when it is over. The ledger counts them.

use ledger::{Event, Gauge, HopKind, HopSnapshot, Reason, Snapshot, Way};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};
use text::escaped;

/// How long nothing may fail before a failure counts as over: a network reports its losses only now and then.
const QUIET: Duration = Duration::from_secs(10);
/// The upper limit of that time for repeated failures: each one that begins again within a minute doubles it.
const QUIET_MAX: Duration = Duration::from_secs(300);
/// A failure that begins within this time of the last one's end is a repetition.
const AGAIN: Duration = Duration::from_secs(60);

/// Follows listeners, targets and sinks, and the collector's input from the kernel.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    /// By what fails, and the names of its listener and target.
    states: BTreeMap<(Place, String, String), State>,
}

/// What fails: one or two hops of the ledger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    /// Before the ring.
    Listener,
    /// Behind the ring: the target's reader, the fate of what it handed over, and the socket of a receiver on this host.
    Target,
    Close,
    Analysis,
    Sink,
}

impl Place {
    fn of(hop: HopKind) -> Option<Place> {
        match hop {
            HopKind::Socket | HopKind::Receive => Some(Place::Listener),
            HopKind::Target | HopKind::Egress | HopKind::Receiver => Some(Place::Target),
            HopKind::Poll | HopKind::Member => None,
            HopKind::Close => Some(Place::Close),
            HopKind::Analysis => Some(Place::Analysis),
            HopKind::Sink => Some(Place::Sink),
        }
    }

    /// The unit of what is lost there.
    fn things(self) -> &'static str {
        match self {
            Place::Listener | Place::Target | Place::Analysis => "datagrams",
            Place::Close => "close events",
            Place::Sink => "records",
        }
    }
}

/// What was known at the last look.
#[derive(Debug, Default)]
struct State {
    errors: u64,
    lost: BTreeMap<(HopKind, Way), u64>,
    /// The current failure; `None` if all is well.
    trouble: Option<Trouble>,
    /// When the last failure was over, and how long a quiet time that took.
    last: Option<(Instant, Duration)>,
}

#[derive(Debug)]
struct Trouble {
    begun: Instant,
    failed: Instant,
    quiet: Duration,
    lost_before: BTreeMap<(HopKind, Way), u64>,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Begins(String),
    Over(String),
}

impl Line {
    pub(crate) fn log(&self) {
        match self {
            Line::Begins(text) => tracing::warn!("{text}"),
            Line::Over(text) => tracing::info!("{text}"),
        }
    }
}

impl Troubles {
    /// Log lines for the time since the last look.
    pub(crate) fn look(&mut self, now: Instant, snapshot: &Snapshot) -> Vec<Line> {
        let mut by_place: BTreeMap<_, Vec<&HopSnapshot>> = BTreeMap::new();
        for hop in &snapshot.hops {
            if let Some(place) = Place::of(hop.hop) {
                let target = hop.target.clone().unwrap_or_default();
                by_place.entry((place, hop.origin.clone(), target)).or_default().push(hop);
            }
        }

        // What a reload removed cannot fail any more.
        self.states.retain(|key, _| by_place.contains_key(key));

        let mut lines = Vec::new();
        for (key, hops) in by_place {
            let place = key.0;
            lines.extend(self.states.entry(key).or_default().look(now, place, &hops));
        }
        lines
    }

    /// The components that are losing something now: `listener/NAME`, `target/LISTENER/NAME` and `sink/ORIGIN/NAME`.
    pub(crate) fn losing(&self) -> BTreeSet<String> {
        let losing = self.states.iter().filter(|(_, state)| state.trouble.is_some());
        let component = |(place, listener, target): &(Place, String, String)| match place {
            Place::Listener => Some(format!("listener/{listener}")),
            Place::Target => Some(format!("target/{listener}/{target}")),
            Place::Sink => Some(format!("sink/{listener}/{target}")),
            Place::Close | Place::Analysis => None,
        };
        losing.filter_map(|(key, _)| component(key)).collect()
    }
}

impl State {
    fn look(&mut self, now: Instant, place: Place, hops: &[&HopSnapshot]) -> Option<Line> {
        let before = self.lost.clone();
        let errno = self.new_error(hops);
        let way = self.new_loss(hops);
        let is_failing = errno.is_some() || way.is_some();

        match &mut self.trouble {
            None if is_failing => {
                let quiet = match self.last {
                    Some((over, quiet)) if now.saturating_duration_since(over) < AGAIN => {
                        (quiet * 2).min(QUIET_MAX)
                    }
                    _ => QUIET,
                };
                self.trouble =
                    Some(Trouble { begun: now, failed: now, quiet, lost_before: before });
                Some(Line::Begins(begins(place, hops[0], errno.flatten(), way)))
            }
            Some(trouble) if is_failing => {
                trouble.failed = now;
                None
            }
            Some(trouble) if now.saturating_duration_since(trouble.failed) >= trouble.quiet => {
                let line = over(place, hops[0], trouble, &self.lost);
                self.last = Some((now, trouble.quiet));
                self.trouble = None;
                Some(Line::Over(line))
            }
            _ => None,
        }
    }

    /// `Some` if there are more errors than at the last look, with the number of the last error if known.
    fn new_error(&mut self, hops: &[&HopSnapshot]) -> Option<Option<u64>> {
        let errors = hops.iter().map(|hop| hop.event(Event::Errors)).sum();
        let has_error = errors > self.errors;
        self.errors = errors;
        let errno = || hops.iter().find_map(|hop| hop.gauge(Gauge::LastErrno));
        has_error.then(errno)
    }

    /// The reason for most of the losses since the last look.
    fn new_loss(&mut self, hops: &[&HopSnapshot]) -> Option<Way> {
        let mut worst = None;
        for hop in hops {
            for (way, amount) in hop.undelivered().filter(|(way, _)| is_trouble(*way)) {
                let before = self.lost.entry((hop.hop, way)).or_default();
                let more = amount.count.saturating_sub(*before);
                // A receiver's drops count can decrease, because drops beyond what we sent are subtracted as not ours.
                *before = (*before).max(amount.count);
                // On a tie the last hop wins, which is the one closest to the destination.
                if more > 0 && worst.is_none_or(|(most, _)| more >= most) {
                    worst = Some((more, way));
                }
            }
        }

        worst.map(|(_, way)| way)
    }
}

/// Whether a loss is a failure to log here. Unresolved names are logged at the lookup, and what a stop leaves behind at its
/// end.
fn is_trouble(way: Way) -> bool {
    let is_told_elsewhere =
        matches!(way, Way::Dropped(Reason::TargetUnresolved | Reason::Shutdown));
    !way.is_intended() && !is_told_elsewhere
}

fn begins(place: Place, hop: &HopSnapshot, errno: Option<u64>, way: Option<Way>) -> String {
    let cause = match (&hop.trouble, errno.and_then(|errno| i32::try_from(errno).ok())) {
        (Some(trouble), _) => escaped(&trouble.what),
        (None, Some(errno)) => io::Error::from_raw_os_error(errno).to_string(),
        (None, None) => way.map_or("records are lost", Way::cause).to_owned(),
    };
    let fate = match way {
        Some(way) => format!("what is lost is counted as {way}"),
        None => "records wait, and are tried again".to_owned(),
    };
    let fix = match &hop.trouble {
        Some(trouble) => format!(". Fix: {}", escaped(&trouble.fix)),
        None => way.map_or(String::new(), |way| format!(". Fix: {}", way.advice())),
    };
    format!("{}: {cause}; {fate}{fix}", name(place, hop))
}

fn over(
    place: Place,
    hop: &HopSnapshot,
    trouble: &Trouble,
    lost: &BTreeMap<(HopKind, Way), u64>,
) -> String {
    let more = |(key, count): (&(HopKind, Way), &u64)| {
        let before = trouble.lost_before.get(key).copied().unwrap_or_default();
        let more = count.saturating_sub(before);
        (more > 0).then_some((key.1, more))
    };

    let lost: Vec<_> = lost.iter().filter_map(more).collect();
    let total: u64 = lost.iter().map(|(_, count)| count).sum();
    let by_reason: Vec<_> = lost.iter().map(|(way, count)| format!("{way} {count}")).collect();

    let by_reason = match &by_reason[..] {
        [] => String::new(),
        parts => format!(" ({})", parts.join(", ")),
    };

    format!(
        "{}: nothing has failed for {} s; {total} {} were lost in {} s{by_reason}",
        name(place, hop),
        trouble.quiet.as_secs(),
        place.things(),
        (trouble.failed - trouble.begun).as_secs().max(1),
    )
}

fn name(place: Place, hop: &HopSnapshot) -> String {
    let target = hop.target.as_deref().unwrap_or_default();
    match place {
        Place::Listener => format!("listener {}", hop.origin),
        Place::Target => format!("target {target} of listener {}", hop.origin),
        Place::Close | Place::Analysis => hop.origin.clone(),
        Place::Sink => format!("sink {target}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Amount, HopBuilder, RejectClass, SinkCounters, Trouble as Told};

    /// A sink at one moment: errors so far, and records dropped, by reason.
    fn sink(errors: u64, dropped: &[(Reason, u64)]) -> Snapshot {
        let amount = |count| Amount { count, bytes: 0 };
        let total = amount(dropped.iter().map(|(_, count)| count).sum());
        let hop = HopBuilder::new(HopKind::Sink, "sockets", Some("s"), total)
            .event(Event::Errors, errors);
        let hop = if errors > 0 { hop.gauge(Gauge::LastErrno, 28) } else { hop };
        let hop =
            dropped.iter().fold(hop, |hop, (reason, count)| hop.dropped(*reason, amount(*count)));
        Snapshot { hops: vec![hop.finish(total)], ..Snapshot::default() }
    }

    #[test]
    fn it_is_said_once_and_again_when_it_is_over() {
        let (mut troubles, start) = (Troubles::default(), Instant::now());
        let mut look = |second, snapshot: Snapshot| {
            troubles.look(start + Duration::from_secs(second), &snapshot)
        };
        assert_eq!(look(0, sink(0, &[])), []);
        let begins =
            "sink s: No space left on device (os error 28); records wait, and are tried again";
        assert_eq!(look(1, sink(1, &[])), [Line::Begins(begins.to_owned())]);
        assert_eq!(look(2, sink(9, &[(Reason::WriteError, 70)])), []);
        assert_eq!(look(11, sink(9, &[(Reason::WriteError, 70)])), []);
        let over =
            "sink s: nothing has failed for 10 s; 70 records were lost in 1 s (write_error 70)";
        assert_eq!(look(12, sink(9, &[(Reason::WriteError, 70)])), [Line::Over(over.to_owned())]);
        assert_eq!(look(30, sink(9, &[(Reason::WriteError, 70)])), []);
        let again = look(31, sink(9, &[(Reason::WriteError, 70), (Reason::QueueFull, 5)]));
        let [Line::Begins(text)] = &again[..] else { panic!("{again:?}") };
        assert!(text.contains("counted as queue_full") && text.contains("queue_size"), "{text}");
    }

    #[test]
    fn what_a_sink_says_of_its_destination_is_the_cause() {
        let counters = SinkCounters::default();
        let look = |state: &mut Troubles, trouble: Option<Told>| {
            let hop = HopBuilder::new(HopKind::Sink, "sockets", Some("s"), Amount::default());
            let hop = hop.left_sink(&counters).trouble(trouble).event(Event::Errors, 1);
            let hops = vec![hop.finish(Amount { count: 9, bytes: 9 })];
            state.look(Instant::now(), &Snapshot { hops, ..Snapshot::default() })
        };
        let told = Told { what: "broker:9092 refused".into(), fix: "start the broker".into() };
        let begins =
            "sink s: broker:9092 refused; records wait, and are tried again. Fix: start the broker";
        let lines = look(&mut Troubles::default(), Some(told));
        assert_eq!(lines, [Line::Begins(begins.to_owned())]);

        counters.reject(RejectClass::Schema, Amount { count: 9, bytes: 9 });
        let lines = look(&mut Troubles::default(), None);
        let [Line::Begins(text)] = &lines[..] else { panic!("{lines:?}") };
        assert!(
            text.contains(
                "does not fit the records; what is lost is counted as rejected (schema). Fix: "
            ),
            "{text}"
        );
    }

    #[test]
    fn a_sink_whose_store_refuses_records_is_losing() {
        let counters = SinkCounters::default();
        let mut troubles = Troubles::default();
        let mut look = || {
            let hop = HopBuilder::new(HopKind::Sink, "sockets", Some("s"), Amount::default());
            let hops = vec![hop.left_sink(&counters).finish(Amount { count: 9, bytes: 9 })];
            troubles.look(Instant::now(), &Snapshot { hops, ..Snapshot::default() });
            troubles.losing().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(look(), Vec::<String>::new());
        counters.reject(RejectClass::TooLarge, Amount::one(9));
        assert_eq!(look(), ["sink/sockets/s"]);
    }

    #[test]
    fn what_was_asked_for_is_no_trouble() {
        let mut troubles = Troubles::default();
        let filtered = sink(0, &[(Reason::Filtered, 7), (Reason::Sampled, 3)]);
        assert_eq!(troubles.look(Instant::now(), &filtered), []);
    }

    /// A target at one moment: what it lost before and after the kernel took it.
    fn target(queue_full: u64, refused: u64) -> Snapshot {
        let amount = |count| Amount { count, bytes: 0 };
        let hop = |kind, reason, count| {
            let hop = HopBuilder::new(kind, "in", Some("out"), amount(count));
            hop.dropped(reason, amount(count)).finish(amount(count))
        };
        let hops = vec![
            hop(HopKind::Target, Reason::QueueFull, queue_full),
            hop(HopKind::Egress, Reason::Refused, refused),
        ];
        Snapshot { hops, ..Snapshot::default() }
    }

    #[test]
    fn a_target_has_one_line_whatever_becomes_of_its_datagrams() {
        let (mut troubles, start) = (Troubles::default(), Instant::now());
        let mut look = |second, snapshot: Snapshot| {
            let lines = troubles.look(start + Duration::from_secs(second), &snapshot);
            (lines, troubles.losing().into_iter().collect::<Vec<_>>())
        };
        assert_eq!(look(0, target(0, 0)), (vec![], vec![]));
        let begins = "target out of listener in: nobody listens at the target; what is lost is counted as refused. \
                      Fix: start the receiver, or correct the target's address";
        let losing = vec!["target/in/out".to_owned()];
        assert_eq!(look(1, target(0, 5)), (vec![Line::Begins(begins.to_owned())], losing.clone()));
        assert_eq!(look(2, target(7, 9)), (vec![], losing.clone()));
        assert_eq!(look(3, target(7, 10)), (vec![], losing.clone()));
        assert_eq!(look(12, target(7, 10)), (vec![], losing));
        let over = "target out of listener in: nothing has failed for 10 s; 17 datagrams were lost in 2 s \
                    (queue_full 7, refused 10)";
        assert_eq!(look(13, target(7, 10)), (vec![Line::Over(over.to_owned())], vec![]));
    }

    #[test]
    fn what_fails_now_and_then_is_not_told_each_time() {
        let (mut troubles, start) = (Troubles::default(), Instant::now());
        // One is refused every 15 s, for an hour.
        let lines: Vec<_> = (0..3_600)
            .flat_map(|second| {
                let at = start + Duration::from_secs(second);
                troubles.look(at, &target(0, 1 + second / 15))
            })
            .collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
    }
}
