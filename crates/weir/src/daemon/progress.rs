//! Progress on the screen: a line for each target, and the rates for the service manager.

use crate::command::ledger::tint;
use crate::log::{self, Form};
use crate::progress::{ProgressMode, rewrites_lines};
use crate::screen::Room;
use ledger::{Event, HopKind, Snapshot};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};
use text::{cut, cut_middle};

/// Most target lines; the rest is one line with their number.
const LINES_MAX: usize = 12;
const TERMINAL_INTERVAL: Duration = Duration::from_secs(1);
const LINES_INTERVAL: Duration = Duration::from_secs(10);

/// Shows progress while the daemon runs.
pub(crate) struct Progress {
    style: Style,
    due: Instant,
    earlier: Earlier,
    /// Lines of the last block, which the next one overwrites.
    lines: usize,
    /// Log lines written when the last block was shown. A log line that came since is below the block and must not be
    /// overwritten.
    logged: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// A block that is overwritten in place.
    Block,
    /// Lines at an interval.
    Lines(Duration),
    Off,
}

/// Totals at an earlier look.
struct Earlier {
    at: Instant,
    targets: HashMap<(String, String), Counts>,
}

/// What a target's line says.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    delivered: u64,
    dropped: u64,
    waiting: u64,
}

/// A target's line.
struct Line {
    text: String,
    /// Whether it says something that the line before did not.
    is_news: bool,
}

impl Progress {
    pub(crate) fn new(mode: ProgressMode) -> Progress {
        // In another log form, overwritten lines would garble the log's lines.
        let on_terminal = rewrites_lines(&io::stderr()) && Form::now() == Form::Text;
        let style = match mode {
            ProgressMode::Off => Style::Off,
            ProgressMode::Lines => Style::Lines(TERMINAL_INTERVAL),
            ProgressMode::Auto if on_terminal => Style::Block,
            ProgressMode::Auto => Style::Lines(LINES_INTERVAL),
        };
        let at = Instant::now();
        let earlier = Earlier { at, targets: HashMap::new() };
        let mut progress = Progress { style, due: at, earlier, lines: 0, logged: 0 };
        progress.due += progress.interval();
        progress
    }

    fn interval(&self) -> Duration {
        match self.style {
            Style::Block => TERMINAL_INTERVAL,
            Style::Lines(interval) => interval,
            Style::Off => LINES_INTERVAL,
        }
    }

    /// Shows the state when it is due.
    pub(crate) fn show(&mut self, now: Instant, snapshot: &Snapshot) {
        if self.style == Style::Off || now < self.due {
            return;
        }
        self.due = now + self.interval();

        let room = match self.style {
            Style::Block => Room::of(&io::stderr()),
            Style::Lines(_) | Style::Off => Room::default(),
        };
        let mut lines = self.earlier.lines(now, snapshot, room);
        if let Style::Lines(_) = self.style {
            // They stay in a file or a journal.
            lines.retain(|line| line.is_news);
        }
        let lines = fitted(lines, room);
        if lines.is_empty() {
            return;
        }
        let mut text = String::new();

        let logged = log::lines_written();
        let is_undisturbed = logged == self.logged;
        self.logged = logged;

        if self.style == Style::Block && self.lines > 0 && is_undisturbed {
            // Move up to the first line of the last block, and clear from there.
            put(&mut text, format_args!("\r\x1b[{}A\x1b[J", self.lines));
        }

        for line in &lines {
            put(&mut text, format_args!("{line}\n"));
        }

        self.lines = lines.len();
        say(&text);
    }
}

impl Earlier {
    /// A line for each target. Overwritten lines must fit the terminal's width: a wrapped line would leave a copy behind each
    /// time.
    fn lines(&mut self, now: Instant, snapshot: &Snapshot, room: Room) -> Vec<Line> {
        let columns = room.columns.unwrap_or(usize::MAX);

        let seconds = now.saturating_duration_since(self.at).as_secs_f64().max(0.001);
        self.at = now;

        let mut lines = Vec::new();
        for hop in snapshot.hops.iter().filter(|hop| hop.hop == HopKind::Target) {
            let Some(egress) = snapshot.hop(HopKind::Egress, &hop.origin, hop.target.as_deref())
            else {
                continue;
            };

            let key = (hop.origin.clone(), hop.target.clone().unwrap_or_default());
            // Drops that a setting asks for are not losses.
            let drops = hop.dropped.iter().chain(&egress.dropped);
            let drops = drops.filter(|drop| !drop.reason.is_intended());
            let now = Counts {
                delivered: egress.delivered.count,
                dropped: drops.map(|drop| drop.amount.count).sum(),
                waiting: hop.in_flight.count,
            };
            let before = self.targets.insert(key.clone(), now).unwrap_or_default();
            let Counts { delivered, dropped, waiting } = now;
            let rate = delivered.saturating_sub(before.delivered) as f64 / seconds;
            let figures = format!(
                ": {rate:.0}/s, {delivered} delivered, {dropped} dropped, {waiting} waiting"
            );
            let name = format!("{} -> {}", key.0, key.1);
            let name = cut_middle(&name, columns.saturating_sub(figures.chars().count()));
            let text = cut(&(name + &figures), columns);
            lines.push(Line { text, is_news: now != before });
        }
        lines
    }
}

/// As many lines as there is room for, and one about the rest.
fn fitted(lines: Vec<Line>, room: Room) -> Vec<String> {
    // Leave rows for the line about the rest and for the cursor.
    let lines_max = room.rows.map_or(LINES_MAX, |rows| rows.saturating_sub(2).min(LINES_MAX));
    let more = lines.len().saturating_sub(lines_max);
    let mut fitted: Vec<String> = lines.into_iter().take(lines_max).map(|line| line.text).collect();
    if more > 0 {
        let columns = room.columns.unwrap_or(usize::MAX);
        fitted.push(cut(&format!("… and {more} more targets: weir ledger shows all"), columns));
    }
    fitted
}

/// The rates since the last status line, for the service manager.
#[derive(Default)]
pub(crate) struct Rates {
    at: Option<Instant>,
    received: u64,
    sent: u64,
}

impl Rates {
    pub(crate) fn line(&mut self, now: Instant, snapshot: &Snapshot) -> String {
        let received = snapshot.received_at(HopKind::Receive).count;
        let sent = snapshot.received_at(HopKind::Egress).count;
        let lost: u64 = snapshot.unintended_losses().iter().map(|loss| loss.amount.count).sum();

        let seconds = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        let rate = |total: u64, before: u64| match seconds > 0.0 {
            true => total.saturating_sub(before) as f64 / seconds,
            false => 0.0,
        };
        let mut line = format!(
            "{:.0}/s in, {:.0}/s out, {received} received, {lost} lost",
            rate(received, self.received),
            rate(sent, self.sent)
        );

        if let Some(polled) = snapshot.hops.iter().find(|hop| hop.hop == HopKind::Poll) {
            let polls = polled.event(Event::Polls);
            put(
                &mut line,
                format_args!(", {} sockets listed in {polls} polls", polled.received.count),
            );
        }

        (self.at, self.received, self.sent) = (Some(now), received, sent);
        line
    }
}

fn put(text: &mut String, args: std::fmt::Arguments<'_>) {
    text.write_fmt(args).expect("writing to a string cannot fail");
}

/// Writes to standard error, at info level.
pub(crate) fn say(text: &str) {
    log::say(tracing::Level::INFO, text);
}

/// Like [`say`], folded to the terminal's width and with the ledger's colors.
pub(crate) fn say_folded(text: &str) {
    log::say_to_people(tracing::Level::INFO, text, tint);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Amount, HopBuilder};

    #[test]
    fn lines_fit_the_terminal_and_keep_their_figures() {
        let hops = (0..20).flat_map(|at| {
            let name = format!("udp://collector-{at:02}.a-rather-long-domain.example.com:20514");
            [HopKind::Target, HopKind::Egress].map(|kind| {
                let hop =
                    HopBuilder::new(kind, "udp://127.0.0.1:514", Some(&name), Amount::default());
                hop.finish(Amount::one(1))
            })
        });
        let snapshot = Snapshot { hops: hops.collect(), ..Snapshot::default() };
        let now = Instant::now();

        for (columns, rows, count) in [(80, 24, 13), (40, 9, 8), (20, 2, 1), (200, 60, 13)] {
            let mut earlier = Earlier { at: now, targets: HashMap::new() };
            let room = Room { columns: Some(columns), rows: Some(rows) };
            let lines = earlier.lines(now + Duration::from_secs(1), &snapshot, room);
            assert!(lines.iter().all(|line| line.is_news));
            let again = earlier.lines(now + Duration::from_secs(2), &snapshot, room);
            assert!(again.iter().all(|line| !line.is_news), "nothing has happened");
            let lines = fitted(lines, room);
            assert_eq!(lines.len(), count, "{lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= columns), "{lines:?}");
            if columns >= 80 {
                assert!(
                    lines[0].ends_with(":20514: 0/s, 0 delivered, 0 dropped, 1 waiting"),
                    "{lines:?}"
                );
            }
        }
    }
}
