//! The verdicts of filters on sockets and on ended connections, in the own and in another namespace.

mod cases;
pub(crate) mod scene;
use crate::support::{Keep, OWN_CGROUP, RARELY, Run, Told, options};
use cases::{BY_NAMESPACE, CASES};
use ledger::Event;
use record::RecordKind;
use scene::{Ends, SUBJECTS, Subject};
use sockets::filter::Filter;
use sockets::{Options, Scope, Served, Undecided};
use std::fs;
use std::sync::PoisonError;
use std::time::Duration;
use testkit::{Netns, need_root_netns, within};

/// Number of events with which the connections of a scene end, in two namespaces.
const EVENTS: u64 = 2 * 2 * SUBJECTS.len() as u64;

/// A filter and its answers in the own namespace and in the other one.
struct Case {
    filter: String,
    own: &'static str,
    other: &'static str,
}

fn cases(home: &Netns) -> Vec<Case> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let cgroup = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let alike = CASES.iter().map(|&(filter, answers)| (filter, answers, answers));
    let all = alike.chain(BY_NAMESPACE.iter().copied());
    let fill_in = |text: &str| text.replace("{home}", &home.name).replace("{cgroup}", cgroup);
    all.map(|(filter, own, other)| Case { filter: fill_in(filter), own, other }).collect()
}

/// Whether there is a record of this kind for the client at the subject's port.
fn has(told: &Told, kind: RecordKind, netns: &Netns, subject: Subject) -> bool {
    let is_it = |row: &&crate::support::Row| {
        row.kind == kind
            && row.src_port == subject.port()
            && row.netns_name.as_ref() == Some(&netns.name)
    };
    let count = told.rows.iter().filter(is_it).count();
    assert!(count <= 1, "{count} records of {subject:?}");
    count == 1
}

/// The answers of two collectors: one that drops undecided closes, and one that keeps them.
fn answers(dropping: &Told, keeping: &Told, netns: &Netns) -> String {
    let polled = has(dropping, RecordKind::POLL, netns, Subject::PolledClose);
    assert_eq!(polled, has(keeping, RecordKind::POLL, netns, Subject::PolledClose));
    let mut answers = String::from(if polled { "Y" } else { "N" });
    for subject in SUBJECTS {
        let told = [dropping, keeping].map(|told| has(told, RecordKind::CLOSE, netns, subject));
        answers.push(match told {
            [true, true] => 'Y',
            [false, false] => 'N',
            [false, true] => '?',
            [true, false] => panic!("{subject:?} is dropped because it is kept"),
        });
    }
    answers
}

fn start(home: &Netns, other: &Netns, filter: &str, closes_undecided: Undecided) -> Run {
    let scope = Scope::Named(vec![home.name.clone(), other.name.clone()]);
    let filter = (!filter.is_empty()).then(|| Filter::parse(filter).unwrap());
    let options = Options {
        filter,
        closes_undecided,
        event_buffer_bytes: 1 << 20,
        served: Served::default(),
        table_entries_max: 1_000,
        ..options(RARELY, scope)
    };
    Run::start(home, options, Keep::default())
}

#[test]
fn every_filter_says_of_polls_closes_and_aborts_what_can_be_known() {
    if !need_root_netns() {
        return;
    }
    let _stays = OWN_CGROUP.lock().unwrap_or_else(PoisonError::into_inner);
    let (home, other) = (Netns::new(), Netns::new());
    let spaces = [&home, &other];
    let listeners = spaces.map(|netns| netns.inside(scene::listen));
    let open = |subject| {
        let of = spaces.iter().zip(&listeners);
        of.map(move |(netns, listener)| netns.inside(|| Ends::open(subject, listener)))
    };
    let polled: Vec<_> =
        [Subject::PolledClose, Subject::PolledAbort].into_iter().flat_map(open).collect();
    let cases = cases(&home);
    let runs: Vec<_> = cases
        .iter()
        .map(|case| {
            [Undecided::Drop, Undecided::Keep]
                .map(|undecided| start(&home, &other, &case.filter, undecided))
        })
        .collect();
    polled.into_iter().for_each(Ends::close);
    for subject in [Subject::Close, Subject::Abort] {
        open(subject).for_each(Ends::close);
    }
    // Only these two namespaces have an id in the collectors' namespace, so closes in others are not heard.
    for run in runs.iter().flatten() {
        assert!(within(Duration::from_secs(20), || run.closed() == EVENTS), "{}", run.closed());
    }
    let mut wrong = Vec::new();
    for (case, [dropping, keeping]) in cases.iter().zip(runs) {
        let [hop, kept] = [&dropping, &keeping].map(Run::close_hop);
        assert_eq!(
            hop.events.get(&Event::Undecided),
            kept.events.get(&Event::Undecided),
            "{}",
            case.filter
        );
        let (dropping, keeping) = (dropping.stop(), keeping.stop());
        for (netns, expected) in spaces.iter().zip([case.own, case.other]) {
            let found = answers(&dropping, &keeping, netns);
            if found != expected {
                let place = if netns.name == home.name { "own" } else { "other" };
                wrong.push(format!("{:45} {place:5} {found} is not {expected}", case.filter));
            }
        }
        let told = dropping.emitted + dropping.filtered + dropping.undecided;
        assert_eq!((told, dropping.observed), (EVENTS, EVENTS), "{}", case.filter);
        assert_eq!((keeping.undecided, keeping.observed), (0, EVENTS), "{}", case.filter);
        if case.filter.is_empty() {
            assert_eq!(dropping.filtered, 0, "there is no filter");
        }
    }
    assert!(wrong.is_empty(), "{} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
