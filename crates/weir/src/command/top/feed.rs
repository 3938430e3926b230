//! Asks a daemon on threads of their own, so that a slow answer delays neither keys nor the ledger.

use super::answers::{self, Close, Flows, Past, Sockets, Told, Top};
use super::lines::Stretch;
use super::wanted::{Page, Wanted, encoded};
use crate::ask::{Daemon, Refused, ask_or_hear_why_not};
use crate::command::ledger;
use ::ledger::Snapshot;
use serde_json::Value as Json;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for the answer of a page. The daemon lets a question about sockets wait for up to five seconds.
const TIMEOUT: Duration = Duration::from_secs(8);
/// Most definitions whose heaviest flows are requested.
const DEFINITIONS_MAX: usize = 8;
/// Most flows of each.
const FLOWS_MAX: usize = 50;
/// Time between two questions about the past.
const PAST_EVERY: Duration = Duration::from_secs(10);

/// Something that the daemon said.
pub(super) enum News {
    /// The ledger, or the message about a daemon that does not answer.
    Ledger(Result<Box<Snapshot>, String>),
    Sockets(Wanted, Told<Box<Sockets>>),
    Closes(Told<Vec<Close>>),
    Flows(Told<Flows>),
    Past(Past),
    /// The median and the 99th percentile of round-trip times.
    RoundTrips([Vec<Stretch>; 2]),
}

/// What is said, and where to say what is wanted.
pub(super) struct Feed {
    pub(super) news: Receiver<News>,
    pub(super) wanted: Sender<Wanted>,
}

/// Starts the threads. They end when the feed is dropped.
pub(super) fn start(daemon: &Daemon, interval: Duration) -> Feed {
    let (to, news) = sync_channel(1);
    let (wanted, asked) = channel();
    let (of_ledger, to_ledger) = (daemon.clone(), to.clone());
    thread::spawn(move || go_on_asking(&of_ledger, interval, &to_ledger));
    let daemon = daemon.clone();
    thread::spawn(move || go_on_asking_for_pages(&daemon, interval, &asked, &to));
    Feed { news, wanted }
}

fn go_on_asking(daemon: &Daemon, interval: Duration, to: &SyncSender<News>) {
    loop {
        let ledger = ledger::fetch(daemon).map(Box::new).map_err(|error| format!("{error:#}"));
        if to.send(News::Ledger(ledger)).is_err() {
            return;
        }
        thread::sleep(interval);
    }
}

fn go_on_asking_for_pages(
    daemon: &Daemon,
    interval: Duration,
    asked: &Receiver<Wanted>,
    to: &SyncSender<News>,
) {
    let Ok(mut wanted) = asked.recv() else { return };
    let mut past_due: Option<Instant> = None;
    loop {
        let mut news = Vec::from_iter(page(daemon, &wanted));
        if past_due.is_none_or(|due| Instant::now() >= due) {
            news.extend(past(daemon, wanted.page));
            past_due = Some(Instant::now() + PAST_EVERY);
        }
        if news.into_iter().any(|news| to.send(news).is_err()) {
            return;
        }

        match asked.recv_timeout(interval) {
            Ok(next) => {
                // Only the latest counts.
                let next = asked.try_iter().last().unwrap_or(next);
                if next.page != wanted.page {
                    past_due = None;
                }
                wanted = next;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What a page shows, beyond the ledger; `None` if there is nothing or the daemon does not answer, which the ledger's thread says.
pub(super) fn page(daemon: &Daemon, wanted: &Wanted) -> Option<News> {
    match wanted.page {
        Page::Overview | Page::Sinks => None,
        Page::Tcp => {
            let none = "No socket collector runs here: the configuration has no [sockets].";
            let sockets = told(daemon, &wanted.sockets_page(), none, |text| {
                serde_json::from_str(text).map(Box::new)
            })?;
            Some(News::Sockets(wanted.clone(), sockets))
        }
        Page::Closes => {
            let none = "This daemon keeps no history, so single connections are not shown. Fix: give it a [[sink]] with from = \
                        [\"sockets\"] and to = \"store:/var/lib/weir/history\"";
            let page = "/query/recent-closes?since=1h&limit=200";
            told(daemon, page, none, answers::closes).map(News::Closes)
        }
        Page::Flows => flows(daemon, wanted.group).map(News::Flows),
    }
}

/// What the history says of the time before the start; nothing if there is none, or it is not for us.
pub(super) fn past(daemon: &Daemon, page: Page) -> Option<News> {
    match page {
        Page::Overview | Page::Sinks => {
            let past = told(daemon, "/query/ledger-rates?since=15m", "", answers::past)?;
            past.ok().map(News::Past)
        }
        Page::Tcp => {
            let past = told(daemon, "/query/rtt-heat?since=15m", "", answers::round_trips)?;
            past.ok().map(News::RoundTrips)
        }
        Page::Closes | Page::Flows => None,
    }
}

/// Reads a page. `none` is the sentence for a daemon that does not have it.
fn told<T>(
    daemon: &Daemon,
    page: &str,
    none: &str,
    read: impl FnOnce(&str) -> serde_json::Result<T>,
) -> Option<Told<T>> {
    let answer = ask_or_hear_why_not(daemon, page, TIMEOUT).ok()?;
    Some(match answer {
        Ok(text) => read(&text).map_err(|error| {
            format!("the answer cannot be read ({error}). Fix: ask a daemon of this version")
        }),
        Err(Refused { status: 404, .. }) => Err(none.to_owned()),
        Err(refused) => Err(refused.text),
    })
}

fn flows(daemon: &Daemon, group: &str) -> Option<Told<Flows>> {
    let none = "No sFlow is analyzed here: the configuration has no [flows].";
    let about: Json = match told(daemon, "/flows", none, |text| serde_json::from_str(text))? {
        Ok(about) => about,
        Err(why) => return Some(Err(why)),
    };
    let definitions = about["definitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = definitions.iter().filter_map(|definition| definition["name"].as_str());

    let mut flows = Flows::default();
    for name in names.take(DEFINITIONS_MAX) {
        let page = format!("/flows/top?flow={}&n={FLOWS_MAX}", encoded(name));
        // A definition may have gone since.
        if let Ok(top) = told(daemon, &page, none, |text| serde_json::from_str::<Top>(text))? {
            flows.tops.push(top);
        }
    }
    flows.agents = match told(daemon, "/flows/agents", none, |text| serde_json::from_str(text))? {
        Ok(agents) => agents,
        Err(why) => return Some(Err(why)),
    };
    if group == "hour" {
        let none = "This daemon keeps no history. Fix: give it a [[sink]] with to = \"store:/var/lib/weir/history\"";
        let page = "/query/top-flows?since=1h&limit=200";
        flows.hour = Some(told(daemon, page, none, answers::hour)?);
    }
    Some(Ok(flows))
}
