//! The state of the screen and what keys do to it, without a terminal.

use super::answers::{Close, Flows, Place, Sockets, Told, quantile};
use super::feed::News;
use super::figures::{Row, State, elapsed_ms, rows, totals};
use super::lines::{Line, Stretch};
use super::wanted::{Page, Wanted};
use ledger::Snapshot;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::{HashMap, HashSet};

/// What keys currently do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Rows,
    /// The filter is being typed.
    Filter,
    Help,
    /// The page is explained in words.
    Words,
}

/// Whether what the daemon says is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    Live,
    Paused,
}

/// Whether to continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    GoOn,
    Quit,
}

/// How a page is looked at.
#[derive(Clone, Default)]
pub(super) struct View {
    /// Its place among the page's sorts, and among its groups.
    sort: usize,
    group: usize,
    pub(super) filter: String,
    /// The filter that the daemon is asked with: the typed one once it is complete.
    asked: String,
    /// Rows above the first one shown.
    pub(super) scrolled: usize,
}

/// The time over which figures go into lines, and the figures that are not of one row.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) of_hops: HashMap<Place, Line>,
    pub(super) of_sockets: HashMap<u64, Line>,
    pub(super) arrived: Line,
    pub(super) lost: Line,
    pub(super) median_rtt: Line,
    pub(super) p99_rtt: Line,
}

/// Longest time for which an answer about sockets stands in a line.
const ANSWER_MS_MAX: u64 = 2_000;

/// Everything that a frame is drawn from.
pub(super) struct Model {
    pub(super) admin: String,
    pub(super) ledger: Option<Box<Snapshot>>,
    /// The error of the last request, if it failed.
    pub(super) failure: Option<String>,
    pub(super) page: Page,
    views: [View; Page::ALL.len()],
    pub(super) mode: Mode,
    pub(super) pace: Pace,
    /// Lines above the first one shown of the help or the words.
    pub(super) read: usize,
    pub(super) rows: Vec<Row>,
    pub(super) sockets: Option<(Wanted, Told<Box<Sockets>>)>,
    pub(super) closes: Option<Told<Vec<Close>>>,
    pub(super) flows: Option<Told<Flows>>,
    pub(super) lines: Lines,
}

impl Model {
    pub(super) fn new(admin: &str) -> Model {
        Model {
            admin: admin.to_owned(),
            ledger: None,
            failure: None,
            page: Page::Overview,
            views: Default::default(),
            mode: Mode::Rows,
            pace: Pace::Live,
            read: 0,
            rows: Vec::new(),
            sockets: None,
            closes: None,
            flows: None,
            lines: Lines::default(),
        }
    }

    /// Takes what the daemon says. While the screen is paused, only its failures are shown.
    pub(super) fn take(&mut self, news: News) {
        match news {
            News::Ledger(Err(failure)) => self.failure = Some(failure),
            News::Ledger(Ok(ledger)) => {
                self.failure = None;
                if self.pace == Pace::Live {
                    self.take_ledger(ledger);
                }
            }
            _ if self.pace == Pace::Paused => {}
            News::Sockets(wanted, sockets) => self.take_sockets(wanted, sockets),
            News::Closes(closes) => self.closes = Some(closes),
            News::Flows(flows) => self.flows = Some(flows),
            News::Past(past) => {
                self.lines.arrived.recall(past.arrived);
                self.lines.lost.recall(past.lost);
                for (place, stored) in past.delivered {
                    self.lines.of_hops.entry(place).or_default().recall(stored);
                }
            }
            // The history has those of all sockets.
            News::RoundTrips(_) if !self.wanted().filter.is_empty() => {}
            News::RoundTrips([median, p99]) => {
                self.lines.median_rtt.recall(median);
                self.lines.p99_rtt.recall(p99);
            }
        }
    }

    fn take_ledger(&mut self, ledger: Box<Snapshot>) {
        let before = self.ledger.as_deref();
        let elapsed_ms = elapsed_ms(before, &ledger);
        self.rows = rows(before, &ledger);

        if let Some(before) = before.filter(|_| elapsed_ms > 0) {
            let end_ms = ledger.taken_at_unix_ms;
            let stretch =
                |value| Stretch { begin_ms: end_ms.saturating_sub(elapsed_ms), end_ms, value };
            for row in &self.rows {
                let Some(rate) = row.delivered else { continue };
                self.lines.of_hops.entry(row.place.clone()).or_default().see(stretch(rate));
            }
            let lines = [&mut self.lines.arrived, &mut self.lines.lost];
            for ((line, before), now) in lines.into_iter().zip(totals(before)).zip(totals(&ledger))
            {
                let grown = now.saturating_sub(before) as f64;
                line.see(stretch(grown * 1e3 / elapsed_ms as f64));
            }
        }
        let there: HashSet<&Place> = self.rows.iter().map(|row| &row.place).collect();
        self.lines.of_hops.retain(|place, _| there.contains(place));
        self.ledger = Some(ledger);
    }

    fn take_sockets(&mut self, wanted: Wanted, sockets: Told<Box<Sockets>>) {
        // An answer to what is no longer asked is late.
        if wanted != self.wanted() {
            return;
        }
        if self.sockets.as_ref().is_some_and(|(asked, _)| asked.filter != wanted.filter) {
            // Other sockets have other round-trip times.
            self.lines.median_rtt = Line::default();
            self.lines.p99_rtt = Line::default();
        }
        if let Ok(sockets) = &sockets {
            self.see_round_trips(sockets);
        }
        self.sockets = Some((wanted, sockets));
    }

    fn see_round_trips(&mut self, sockets: &Sockets) {
        let end_ms = sockets.time_unix_ns.parse::<u64>().unwrap_or(0) / 1_000_000;
        let before = self.sockets.as_ref().and_then(|(_, told)| told.as_ref().ok());
        let before = before.and_then(|one| one.time_unix_ns.parse::<u64>().ok());
        let latest_ms = before.unwrap_or(0) / 1_000_000;
        let begin_ms = latest_ms.max(end_ms.saturating_sub(ANSWER_MS_MAX));
        let stretch = |us: u64| Stretch { begin_ms, end_ms, value: us as f64 };

        let lines = [&mut self.lines.median_rtt, &mut self.lines.p99_rtt];
        for (line, share) in lines.into_iter().zip([0.5, 0.99]) {
            if let Some(us) = quantile(&sockets.rtt_us, share) {
                line.see(stretch(us));
            }
        }
        let mut of_sockets = std::mem::take(&mut self.lines.of_sockets);
        for socket in &sockets.sockets {
            let Some((cookie, us)) = socket.cookie.zip(socket.rtt_us) else { continue };
            let mut line = of_sockets.remove(&cookie).unwrap_or_default();
            line.see(stretch(us));
            self.lines.of_sockets.insert(cookie, line);
        }
    }

    pub(super) fn view(&self) -> &View {
        &self.views[self.page.number()]
    }

    fn view_mut(&mut self) -> &mut View {
        &mut self.views[self.page.number()]
    }

    /// How the page is sorted, and by what it is grouped; the words on the screen.
    pub(super) fn sort(&self) -> &'static str {
        self.page.sorts()[self.view().sort].0
    }

    /// The group that the daemon knows; empty for none.
    pub(super) fn group(&self) -> &'static str {
        self.page.groups()[self.view().group].1
    }

    /// The word for it; `None` for no group.
    pub(super) fn group_word(&self) -> Option<&'static str> {
        let chosen = self.view().group;
        (chosen > 0).then(|| self.page.groups()[chosen].0)
    }

    /// What the daemon is asked for.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            page: self.page,
            sort: self.page.sorts()[self.view().sort].1,
            group: self.group(),
            filter: self.view().asked.clone(),
        }
    }

    /// The worst state of a page's rows.
    pub(super) fn worst(&self, page: Page) -> State {
        let of_page = |row: &&Row| match page {
            Page::Overview => true,
            Page::Sinks => row.is_of_sinks(),
            Page::Tcp | Page::Closes | Page::Flows => false,
        };
        self.rows.iter().filter(of_page).map(|row| row.state).max().unwrap_or(State::Ok)
    }

    /// The time at the end of all lines.
    pub(super) fn now_ms(&self) -> u64 {
        self.ledger.as_ref().map_or(0, |ledger| ledger.taken_at_unix_ms)
    }

    pub(super) fn turn_to(&mut self, page: Page) {
        self.page = page;
    }

    /// Handles a key. `shown` has the number of all rows, and of those on the screen.
    pub(super) fn key(&mut self, key: KeyEvent, shown: (usize, usize)) -> Next {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Next::Quit;
        }
        match self.mode {
            Mode::Rows => return self.key_of_rows(key.code, shown),
            Mode::Help | Mode::Words => self.key_of_words(key.code),
            Mode::Filter => self.key_of_filter(key.code),
        }
        Next::GoOn
    }

    fn key_of_rows(&mut self, code: KeyCode, shown: (usize, usize)) -> Next {
        match code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('?' | 'h') => self.read_words(Mode::Help),
            KeyCode::Char('e') => self.read_words(Mode::Words),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => self.sort_by_next(1),
            KeyCode::Char('S') => self.sort_by_next(self.page.sorts().len() - 1),
            KeyCode::Char('g') => {
                let count = self.page.groups().len();
                let view = self.view_mut();
                view.group = (view.group + 1) % count;
                view.scrolled = 0;
            }
            KeyCode::Char('p') => {
                self.pace = if self.pace == Pace::Live { Pace::Paused } else { Pace::Live };
            }
            KeyCode::Char(digit @ '1'..='5') => {
                self.turn_to(Page::ALL[(digit as usize - '1' as usize).min(4)]);
            }
            KeyCode::Tab => self.turn_to(self.page.further(1)),
            KeyCode::BackTab => self.turn_to(self.page.further(Page::ALL.len() - 1)),
            KeyCode::Esc => self.clear_filter(),
            code => self.scroll(code, shown),
        }
        Next::GoOn
    }

    fn scroll(&mut self, code: KeyCode, (all, page): (usize, usize)) {
        let last = all.saturating_sub(page);
        let scrolled = &mut self.view_mut().scrolled;
        *scrolled = match code {
            KeyCode::Up => scrolled.saturating_sub(1),
            KeyCode::Down => *scrolled + 1,
            KeyCode::PageUp => scrolled.saturating_sub(page),
            KeyCode::PageDown => *scrolled + page,
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => *scrolled,
        };
        *scrolled = (*scrolled).min(last);
    }

    fn sort_by_next(&mut self, by: usize) {
        let count = self.page.sorts().len();
        let view = self.view_mut();
        view.sort = (view.sort + by) % count;
        view.scrolled = 0;
    }

    fn read_words(&mut self, mode: Mode) {
        self.mode = mode;
        self.read = 0;
    }

    fn key_of_words(&mut self, code: KeyCode) {
        match code {
            KeyCode::Up => self.read = self.read.saturating_sub(1),
            KeyCode::Down => self.read += 1,
            _ => self.mode = Mode::Rows,
        }
    }

    fn key_of_filter(&mut self, code: KeyCode) {
        let view = self.view_mut();
        view.scrolled = 0;
        match code {
            KeyCode::Enter => {
                view.asked.clone_from(&view.filter);
                self.mode = Mode::Rows;
            }
            KeyCode::Esc => self.clear_filter(),
            KeyCode::Backspace => drop(view.filter.pop()),
            KeyCode::Char(typed) => view.filter.push(typed),
            _ => {}
        }
    }

    fn clear_filter(&mut self) {
        let view = self.view_mut();
        view.filter.clear();
        view.asked.clear();
        self.mode = Mode::Rows;
    }
}

#[cfg(test)]
mod tests;
