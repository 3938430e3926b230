//! The help, and a page in words.

use super::model::Model;
use super::wanted::Page;
use ledger::Snapshot;
use text::{escaped, grouped};

pub(super) const KEYS: &str =
    "q quit  ? help  Tab page  / filter  s sort  g group  e words  p pause";

const HELP: &[&str] = &[
    "q, Ctrl-C          quit",
    "Tab, Shift-Tab     next and previous page; 1 to 5: that page",
    "/                  filter; Enter keeps it, Esc clears it",
    "s, S               sort by the next, by the previous",
    "g                  group by the next",
    "e                  the page in words: what was lost and why, and the command that prints it",
    "p                  pause, and go on",
    "↑ ↓ PgUp PgDn      scroll; Home and End go to the first and the last row",
    "?                  this help; any other key leaves it",
    "",
    "STUCK     it has something, takes no more, and lets nothing go",
    "DOWN      it does not take all that it is given",
    "LOSING    something was lost since the last look",
    "was down  it refused something before, and takes all that it is given now",
    "trouble   it says what is wrong",
    "lost      something was lost earlier, and nothing since the last look",
    "",
    "in/s, out/s and lost/s are of the last interval, counts are since the start, reason is that of the largest loss, inside is what \
     was received and has not left, oldest is its age, and the line is out/s over the time that is at the top.",
    "",
];

pub(super) fn help(page: Page) -> String {
    let of_page = match page {
        Page::Tcp => {
            "The filter is that of weir sockets, such as dport = :443 and rtt > 100ms: the daemon filters and sorts, and shows the first 200. \
             RTT is the smoothed round-trip time, ± its deviation, and held up the larger of the peer's window (rwnd) and our buffer (sndbuf), \
             with its share of the time with data to send. The median and the 99th percentile are lower bounds of bands of an octave's half."
        }
        Page::Closes => {
            "✕ is an end that is not in order. Single connections are from the daemon's history; g shows the counts of all ends."
        }
        Page::Flows => {
            "Rates are estimates from samples, with the interval that has the true one in 95 of 100 cases. other has the samples of all \
             flows that are not shown. g shows the agents, and the last hour from the daemon's history. ✕ is traffic that the network dropped."
        }
        Page::Overview | Page::Sinks => "The filter is a text in any cell of a row.",
    };
    format!("{}{of_page}\n", HELP.join("\n"))
}

/// The page in words, and the command that prints what it shows.
pub(super) fn words(model: &Model) -> String {
    let command = match model.page {
        Page::Overview | Page::Sinks => "weir ledger".to_owned(),
        Page::Tcp => match model.wanted().filter.trim() {
            "" => "weir sockets".to_owned(),
            filter => format!("weir sockets {}", quoted(&escaped(filter))),
        },
        Page::Closes => "weir query recent-closes".to_owned(),
        Page::Flows => "weir query top-flows".to_owned(),
    };
    let mut words = format!("The same as text: {command}\n\n");
    if let Some(ledger) = &model.ledger {
        words.push_str(&losses(ledger));
    }
    let troubled = model.rows.iter().filter_map(|row| Some((row, row.trouble.as_ref()?)));
    for (row, trouble) in troubled {
        words.push_str(&format!("{} {}: {trouble}\n", row.what, row.name));
    }
    words
}

/// Every loss with its cause and what helps, the largest first.
fn losses(ledger: &Snapshot) -> String {
    let losses = ledger.unintended_losses();
    if losses.is_empty() {
        return "Nothing was lost that no setting asked for.\n".to_owned();
    }
    let line = |loss: &ledger::Loss<'_>| {
        let place = match &loss.hop.target {
            Some(target) => format!("{} → {target}", loss.hop.origin),
            None => loss.hop.origin.clone(),
        };
        format!(
            "✕ {} {} at {} of {}: {}. Fix: {}\n",
            grouped(loss.amount.count),
            loss.way,
            loss.hop.hop.label(),
            escaped(&place),
            loss.way.cause(),
            loss.way.advice()
        )
    };
    losses.iter().map(line).collect()
}

/// An argument as a shell takes it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
