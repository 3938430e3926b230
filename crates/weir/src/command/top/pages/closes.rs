//! The page of closes: how connections ended, and those that ended last.

use super::super::answers::Close;
use super::super::grid::{Column, Entry, Kind, column};
use super::super::model::Model;
use super::{Content, bytes, entry, or_dash};
use ledger::{Event, HopKind};
use std::cmp::Reverse;
use text::{Tint, escaped, grouped, short_time, time_of_day};

const RECENT: &[Column] = &[
    column("ended UTC", Kind::Word, 1),
    column("how", Kind::Word, 0),
    column("local", Kind::Name(13), 0),
    column("peer", Kind::Name(13), 0),
    column("lived ≥", Kind::Figure, 3),
    column("RTT", Kind::Figure, 2),
    column("retrans", Kind::Figure, 4),
    column("sent", Kind::Figure, 5),
    column("received", Kind::Figure, 6),
    column("whose", Kind::Name(12), 7),
];

const ENDS: &[Column] = &[
    column("how", Kind::Word, 0),
    column("connections", Kind::Figure, 0),
    column("what happened", Kind::Text(12), 1),
];

/// How connections end: the bad ends first.
const MEANINGS: [(&str, &str, Tint); 7] = [
    ("timed_out", "the peer did not answer any more", Tint::Notice),
    ("refused", "nobody listened", Tint::Notice),
    ("our_reset", "this host broke it off", Tint::Notice),
    ("peer_reset", "the peer broke it off", Tint::Notice),
    ("unknown", "no poll had seen it, and the event does not say", Tint::Plain),
    ("our_close", "this host closed it in order", Tint::Plain),
    ("peer_close", "the peer closed it in order", Tint::Plain),
];

pub(super) fn content(model: &Model) -> Content<'_> {
    let ends = ends(model);
    let mut content = match &model.closes {
        Some(Ok(closes)) if model.group().is_empty() => {
            Content::of(model, RECENT, recent(model.sort(), closes)).filtered(model)
        }
        _ => Content::of(model, ENDS, by_end(&ends)).filtered(model),
    };

    let Some(ends) = ends else {
        content
            .say("No socket collector runs here: the configuration has no [sockets].", Tint::Plain);
        return content;
    };
    let all: u64 = ends.iter().map(|(_, count)| count).sum();
    let bad = MEANINGS.iter().filter(|(.., tint)| *tint == Tint::Notice);
    let bad = bad.filter_map(|(end, ..)| {
        let (_, count) = ends.iter().find(|(one, count)| one == end && *count > 0)?;
        Some(format!("✕ {} {}", grouped(*count), end.replace('_', " ")))
    });
    let bad: Vec<String> = bad.collect();
    let bad = if bad.is_empty() { "none badly".to_owned() } else { bad.join("  ") };
    content.say(format!("{} ended since the start: {bad}", grouped(all)), Tint::Plain);
    match &model.closes {
        None => content.say("asking for the last ones", Tint::Dim),
        Some(Err(why)) => content.refuse(why),
        Some(Ok(_)) => {}
    }
    content
}

/// Connections by how they ended, from the ledger; `None` without a collector.
fn ends(model: &Model) -> Option<Vec<(String, u64)>> {
    let ledger = model.ledger.as_ref()?;
    let hop = ledger.hops.iter().find(|hop| hop.hop == HopKind::Close)?;
    let ended = hop.events.iter().filter_map(|(event, count)| match event {
        Event::Ended(end) => Some((end.label().to_owned(), *count)),
        _ => None,
    });
    Some(ended.collect())
}

fn by_end(ends: &Option<Vec<(String, u64)>>) -> Vec<Entry<'static>> {
    let Some(ends) = ends else { return Vec::new() };
    let row = |&(end, meaning, tint): &(&str, &str, Tint)| {
        let count = ends.iter().find(|(one, _)| one == end).map_or(0, |(_, count)| *count);
        let tint = if count > 0 { tint } else { Tint::Plain };
        entry([words(end), grouped(count), meaning.to_owned()], tint)
    };
    MEANINGS.iter().map(row).collect()
}

/// The end in words; a bad one has a cross.
fn words(end: &str) -> String {
    let is_bad = MEANINGS.iter().any(|&(one, _, tint)| one == end && tint == Tint::Notice);
    format!("{}{}", if is_bad { "✕ " } else { "" }, escaped(&end.replace('_', " ")))
}

fn recent(sort: &str, closes: &[Close]) -> Vec<Entry<'static>> {
    let mut sorted: Vec<&Close> = closes.iter().collect();
    let place = |close: &Close| MEANINGS.iter().position(|(end, ..)| *end == close.end);
    match sort {
        "how" => sorted.sort_by_key(|close| place(close).unwrap_or(MEANINGS.len())),
        "RTT" => sorted.sort_by_key(|close| Reverse(close.rtt_us)),
        "retransmitted" => sorted.sort_by_key(|close| Reverse(close.retransmitted)),
        "sent" => sorted.sort_by_key(|close| Reverse(close.bytes_sent)),
        // As the daemon has them: the newest first.
        _ => {}
    }
    let row = |close: &&Close| {
        let end = words(&close.end);
        let tint = if end.starts_with('✕') { Tint::Notice } else { Tint::Plain };
        let cells = [
            time_of_day(close.time_unix_ns),
            end,
            escaped(&close.local),
            escaped(&close.peer),
            or_dash(close.seen_us, short_time),
            or_dash(close.rtt_us, short_time),
            or_dash(close.retransmitted, grouped),
            or_dash(close.bytes_sent, bytes),
            or_dash(close.bytes_received, bytes),
            escaped(&close.whose),
        ];
        entry(cells, tint)
    };
    sorted.iter().map(row).collect()
}
