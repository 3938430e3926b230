//! The ledgers of several Weirs as one: each with its hops, whether both ends of each link agree, and what was lost on the
//! whole path.

use super::fetch;
use crate::ask::Daemon;
use crate::exit::{self, Failure};
use ledger::{HopKind, HopSnapshot, Peer, Snapshot, waterfall};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use text::{escaped, grouped};

/// Time between two looks at all daemons.
const PAUSE: Duration = Duration::from_millis(400);

/// Most looks before a disagreement is reported: the first looks may straddle a restart.
const LOOKS_MAX: usize = 8;

/// Most losses that are named.
const LOSSES_SHOWN: usize = 10;

/// One Weir's ledger.
struct Place {
    url: String,
    snapshot: Snapshot,
}

/// Shows the ledgers of these daemons, in the order of the path.
pub(super) fn run(daemons: &[Daemon], fails_on_loss: bool, json: bool) -> anyhow::Result<ExitCode> {
    // Two ends may differ if they are read at different moments, so compare one end's count with two readings of the other, one
    // before and one after.
    let mut looks = [look(daemons)?, pause_and_look(daemons)?, pause_and_look(daemons)?];
    for _ in looks.len()..LOOKS_MAX {
        if compare(&looks).iter().all(Link::is_well) {
            break;
        }
        looks.rotate_left(1);
        looks[2] = pause_and_look(daemons)?;
    }
    let (places, links) = (&looks[2], compare(&looks));

    let text = match json {
        true => {
            let all: Vec<&Snapshot> = places.iter().map(|place| &place.snapshot).collect();
            serde_json::to_string(&all)? + "\n"
        }
        false => super::for_people(&page(places, &links)),
    };
    exit::print_and_end(&text, verdict(places, &links, fails_on_loss))
}

fn look(daemons: &[Daemon]) -> anyhow::Result<Vec<Place>> {
    let place = |daemon: &Daemon| Ok(Place { url: daemon.admin.clone(), snapshot: fetch(daemon)? });
    daemons.iter().map(place).collect()
}

fn pause_and_look(daemons: &[Daemon]) -> anyhow::Result<Vec<Place>> {
    thread::sleep(PAUSE);
    look(daemons)
}

/// A target that is another Weir, and what the two ends report.
struct Link<'a> {
    place: &'a Place,
    target: &'a HopSnapshot,
    state: LinkState<'a>,
}

enum LinkState<'a> {
    /// The other end was found, and it has accepted this much of what this end sent.
    Joined { other: &'a Place, listener: &'a HopSnapshot, accepted: u64, is_well: bool },
    /// The other end has restarted since this end last heard from it.
    StartedAnew,
    /// None of these Weirs knows the run, or none has answered yet.
    Elsewhere,
}

impl Link<'_> {
    fn is_well(&self) -> bool {
        !matches!(self.state, LinkState::Joined { is_well: false, .. })
    }
}

/// Every link that ends at one of them: what the target says in the newest look, compared with what the other end said before.
fn compare([before, now, after]: &[Vec<Place>; 3]) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    for place in after {
        let targets = place.snapshot.hops.iter().filter(|hop| hop.hop == HopKind::Target);
        for target in targets {
            for here in &target.peers {
                let earlier =
                    before.iter().find_map(|place| peer_of(&place.snapshot, target, here));
                let state = join(now, target, here, earlier);
                links.push(Link { place, target, state });
            }
        }
    }
    links
}

/// What this target said about the same other end in another look.
fn peer_of<'a>(snapshot: &'a Snapshot, of: &HopSnapshot, here: &Peer) -> Option<&'a Peer> {
    let hop = snapshot.hop(of.hop, &of.origin, of.target.as_deref())?;
    hop.peers.iter().find(|peer| peer.run == here.run && peer.life == here.life)
}

fn join<'a>(
    places: &'a [Place],
    target: &HopSnapshot,
    here: &Peer,
    earlier: Option<&Peer>,
) -> LinkState<'a> {
    let mut state = LinkState::Elsewhere;
    for other in places {
        for listener in other.snapshot.hops.iter().filter(|hop| hop.hop == HopKind::Receive) {
            match listener.peers.iter().find(|peer| peer.run == here.run) {
                Some(there) if there.life == here.life => {
                    // Datagrams that are not settled may have been accepted or not.
                    let accepted = there.accepted.count;
                    let least = earlier.map_or(0, |earlier| earlier.accepted.count);
                    let most = here.accepted.count + target.in_flight.count;
                    let is_well = (least..=most).contains(&accepted);
                    return LinkState::Joined { other, listener, accepted, is_well };
                }
                Some(_) => state = LinkState::StartedAnew,
                None => {}
            }
        }
    }
    state
}

fn verdict(places: &[Place], links: &[Link<'_>], fails_on_loss: bool) -> ExitCode {
    let is_balanced = places.iter().all(|place| place.snapshot.is_balanced());
    let has_lost = || places.iter().any(|place| !place.snapshot.unintended_losses().is_empty());
    if !is_balanced || !links.iter().all(Link::is_well) {
        Failure::Accounting.code()
    } else if fails_on_loss && has_lost() {
        Failure::CheckFailed.code()
    } else {
        ExitCode::SUCCESS
    }
}

fn page(places: &[Place], links: &[Link<'_>]) -> String {
    let mut text = String::new();
    for place in places {
        put(&mut text, format_args!("== {}\n{}\n", place.url, waterfall(&place.snapshot)));
    }

    text.push_str("== between them\n");
    if links.is_empty() {
        text.push_str("no link from one to another\n");
    }
    for link in links {
        write_link(&mut text, link);
    }

    let mut lost: Vec<_> = places
        .iter()
        .flat_map(|place| {
            place.snapshot.unintended_losses().into_iter().map(move |loss| (place, loss))
        })
        .collect();
    lost.sort_by_key(|(_, loss)| std::cmp::Reverse(loss.amount.count));
    text.push_str(if lost.is_empty() {
        "\n== lost on the whole way: nothing\n"
    } else {
        "\n== lost on the whole way\n"
    });
    for (place, loss) in lost.iter().take(LOSSES_SHOWN) {
        let count = grouped(loss.amount.count);
        let (hop, at) = (loss.hop.hop.label(), name(loss.hop));
        put(
            &mut text,
            format_args!("{count:>15}  {hop} of {at} at {}: {}\n", place.url, loss.way.cause()),
        );
    }
    if lost.len() > LOSSES_SHOWN {
        put(&mut text, format_args!("{:>15}  more rows\n", lost.len() - LOSSES_SHOWN));
    }
    text
}

fn write_link(text: &mut String, link: &Link<'_>) {
    let Link { place, target, state } = link;
    let (from, open) = (name(target), target.in_flight.count);
    put(text, format_args!("{from} at {}\n", place.url));
    match state {
        LinkState::Joined { other, listener, accepted, is_well } => {
            let (to, accepted) = (escaped(&listener.origin), grouped(*accepted));
            put(text, format_args!("  to {to} at {}: {accepted} accepted there\n", other.url));
            let said = match (is_well, open) {
                (true, 0) => "both ends say the same".to_owned(),
                (true, open) => {
                    format!("both ends say the same, with {} not settled", grouped(open))
                }
                (false, _) => "THE ENDS DISAGREE: please report this".to_owned(),
            };
            put(text, format_args!("  {said}\n"));
        }
        LinkState::StartedAnew => {
            text.push_str("  the other end has started anew and was not heard of since\n");
        }
        LinkState::Elsewhere => text.push_str("  none of the others knows of it\n"),
    }
}

fn name(hop: &HopSnapshot) -> String {
    match &hop.target {
        Some(target) => format!("{} -> {}", escaped(&hop.origin), escaped(target)),
        None => escaped(&hop.origin).to_string(),
    }
}

fn put(text: &mut String, args: std::fmt::Arguments<'_>) {
    text.write_fmt(args).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Amount, HopBuilder, PeerSender};

    fn amount(count: u64) -> Amount {
        Amount { count, bytes: count * 100 }
    }

    fn peer(life: &str, accepted: u64, sender: Option<PeerSender>) -> Peer {
        let accepted = amount(accepted);
        Peer { run: "r".to_owned(), life: life.to_owned(), accepted, sender, earlier: None }
    }

    /// A target that took 100 datagrams, of which `delivered` were delivered, and the listener that it sends to.
    fn look(delivered: u64, life: &str, accepted: u64) -> Vec<Place> {
        let target = HopBuilder::new(HopKind::Target, "in", Some("far"), Amount::default())
            .delivered(amount(delivered))
            .peers(vec![peer("l", delivered, None)])
            .finish(amount(100));
        let (key, host, listener) = ("k".to_owned(), "h".to_owned(), "in".to_owned());
        let sender = Some(PeerSender { key, host, listener });
        let listener = HopBuilder::new(HopKind::Receive, "hop", None, Amount::default())
            .delivered(amount(accepted))
            .peers(vec![peer(life, accepted, sender)])
            .finish(amount(accepted));
        [("a", target), ("b", listener)]
            .map(|(url, hop)| {
                let snapshot = Snapshot { hops: vec![hop], ..Snapshot::default() };
                Place { url: url.to_owned(), snapshot }
            })
            .into()
    }

    fn said(before: u64, now: (&str, u64), after: u64) -> (String, ExitCode) {
        let looks = [look(before, "l", 0), look(0, now.0, now.1), look(after, "l", 0)];
        let links = compare(&looks);
        (page(&looks[2], &links), verdict(&looks[2], &links, true))
    }

    #[test]
    fn both_ends_say_the_same_where_one_is_between_two_looks_at_the_other() {
        let (text, code) = said(100, ("l", 100), 100);
        assert!(
            text.contains("to hop at b: 100 accepted there\n  both ends say the same\n"),
            "{text}"
        );
        assert!(text.contains("lost on the whole way: nothing"), "{text}");
        assert_eq!(code, ExitCode::SUCCESS);
        let (text, _) = said(10, ("l", 50), 40);
        assert!(text.contains("both ends say the same, with 60 not settled"), "{text}");
    }

    #[test]
    fn one_more_or_less_is_a_disagreement() {
        for (before, accepted, after) in [(51, 50, 60), (100, 99, 100), (90, 101, 100)] {
            let (text, code) = said(before, ("l", accepted), after);
            assert!(text.contains("THE ENDS DISAGREE"), "{accepted}: {text}");
            assert_eq!(code, Failure::Accounting.code());
        }
    }

    #[test]
    fn another_life_and_another_place_are_told() {
        let (text, code) = said(100, ("m", 3), 100);
        assert!(text.contains("started anew"), "{text}");
        assert_eq!(code, ExitCode::SUCCESS);
        let alone = [0; 3].map(|_| look(100, "l", 100).into_iter().take(1).collect());
        let links = compare(&alone);
        assert!(page(&alone[2], &links).contains("none of the others knows of it"));
    }
}
