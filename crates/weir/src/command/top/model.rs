//! The state of the screen and what keys do to it, without a terminal.

use super::feed::Answer;
use super::figures::{Row, State, Tab, rows};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet, VecDeque};

/// Rates kept for each row: one minute of them at one per second.
const HISTORY: usize = 60;

/// The sort orders of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sort {
    Trouble,
    Name,
    In,
    Out,
    Lost,
    Inside,
    Oldest,
}

impl Sort {
    const ALL: [Sort; 7] =
        [Sort::Trouble, Sort::Name, Sort::In, Sort::Out, Sort::Lost, Sort::Inside, Sort::Oldest];

    pub(super) fn label(self) -> &'static str {
        match self {
            Sort::Trouble => "trouble",
            Sort::Name => "name",
            Sort::In => "in",
            Sort::Out => "out",
            Sort::Lost => "lost",
            Sort::Inside => "inside",
            Sort::Oldest => "oldest",
        }
    }

    fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|&sort| sort == self).unwrap_or_default();
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }
}

/// What keys currently do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Rows,
    /// The filter is being typed.
    Filter,
    Help,
}

/// Whether to continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    GoOn,
    Quit,
}

type Key = (&'static str, String);

/// Everything that a frame is drawn from.
pub(super) struct Model {
    pub(super) admin: String,
    pub(super) latest: Option<Answer>,
    /// The error of the last request, if it failed.
    pub(super) failure: Option<String>,
    pub(super) tab: Tab,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// Rows above the first one shown.
    pub(super) scrolled: usize,
    rows: Vec<Row>,
    history: HashMap<Key, VecDeque<u64>>,
}

impl Model {
    pub(super) fn new(admin: &str) -> Model {
        Model {
            admin: admin.to_owned(),
            latest: None,
            failure: None,
            tab: Tab::Listeners,
            sort: Sort::Trouble,
            filter: String::new(),
            mode: Mode::Rows,
            scrolled: 0,
            rows: Vec::new(),
            history: HashMap::new(),
        }
    }

    /// Takes an answer or an error. After an error the figures stay as they are until the daemon is back.
    pub(super) fn take(&mut self, answer: Result<Answer, String>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => return self.failure = Some(failure),
        };
        self.failure = None;
        self.rows = rows(self.latest.as_ref(), &answer);
        self.latest = Some(answer);

        for row in &self.rows {
            let Some(rate) = row.delivered.or(row.received) else { continue };
            let history = self.history.entry((row.what, row.name.clone())).or_default();
            history.push_back(rate as u64);
            if history.len() > HISTORY {
                history.pop_front();
            }
        }
        let there: HashSet<_> = self.rows.iter().map(|row| (row.what, &*row.name)).collect();
        self.history.retain(|(what, name), _| there.contains(&(*what, &**name)));
    }

    /// Rates of the last minute, newest last.
    pub(super) fn history(&self, row: &Row) -> Vec<u64> {
        let of = self.history.get(&(row.what, row.name.clone()));
        of.into_iter().flatten().copied().collect()
    }

    /// The number of rows in a tab.
    pub(super) fn count(&self, tab: Tab) -> usize {
        self.rows.iter().filter(|row| row.tab == tab).count()
    }

    /// The worst state in a tab.
    pub(super) fn worst(&self, tab: Tab) -> State {
        let states = self.rows.iter().filter(|row| row.tab == tab).map(|row| row.state);
        states.max().unwrap_or(State::Ok)
    }

    /// The rows of the current tab that pass the filter, in sort order.
    pub(super) fn shown(&self) -> Vec<&Row> {
        let wanted = self.filter.to_lowercase();
        let passes = |row: &&Row| {
            let texts = [&*row.name, row.what, row.state.label(), &*row.reason];
            row.tab == self.tab && texts.iter().any(|text| text.to_lowercase().contains(&wanted))
        };
        let mut shown: Vec<&Row> = self.rows.iter().filter(passes).collect();
        shown.sort_by(|a, b| order(self.sort, a, b));
        shown
    }

    /// Handles a key. `page` is the number of rows on the screen.
    pub(super) fn key(&mut self, key: KeyEvent, page: usize) -> Next {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Next::Quit;
        }
        match self.mode {
            Mode::Rows => return self.key_of_rows(key.code, page),
            Mode::Help => self.mode = Mode::Rows,
            Mode::Filter => self.key_of_filter(key.code),
        }
        Next::GoOn
    }

    fn key_of_rows(&mut self, code: KeyCode, page: usize) -> Next {
        let last = self.shown().len().saturating_sub(page);
        let scrolled = self.scrolled;
        match code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('?') | KeyCode::Char('h') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Tab => self.turn_to([Tab::Sinks, Tab::Flows, Tab::Listeners]),
            KeyCode::BackTab => self.turn_to([Tab::Flows, Tab::Listeners, Tab::Sinks]),
            KeyCode::Up => self.scrolled = scrolled.saturating_sub(1),
            KeyCode::Down => self.scrolled = (scrolled + 1).min(last),
            KeyCode::PageUp => self.scrolled = scrolled.saturating_sub(page),
            KeyCode::PageDown => self.scrolled = (scrolled + page).min(last),
            KeyCode::Home => self.scrolled = 0,
            KeyCode::End => self.scrolled = last,
            _ => {}
        }
        Next::GoOn
    }

    /// Switches to another tab. `after` has the tabs that follow listeners, sinks and flows.
    fn turn_to(&mut self, after: [Tab; 3]) {
        self.tab = match self.tab {
            Tab::Listeners => after[0],
            Tab::Sinks => after[1],
            Tab::Flows => after[2],
        };
        self.scrolled = 0;
    }

    fn key_of_filter(&mut self, code: KeyCode) {
        self.scrolled = 0;
        match code {
            KeyCode::Enter => self.mode = Mode::Rows,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Rows;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(typed) => self.filter.push(typed),
            _ => {}
        }
    }
}

/// Largest first, except for names; equal rows stay in the daemon's order.
fn order(sort: Sort, a: &Row, b: &Row) -> Ordering {
    let rate = |of: Option<f64>| of.unwrap_or(-1.0);
    match sort {
        Sort::Name => a.name.cmp(&b.name),
        Sort::Trouble => (b.state.cmp(&a.state))
            .then(rate(b.lost).total_cmp(&rate(a.lost)))
            .then(b.lost_total.cmp(&a.lost_total)),
        Sort::In => rate(b.received).total_cmp(&rate(a.received)),
        Sort::Out => rate(b.delivered).total_cmp(&rate(a.delivered)),
        Sort::Lost => b.lost_total.cmp(&a.lost_total),
        Sort::Inside => b.inside.cmp(&a.inside),
        Sort::Oldest => b.oldest_ms.cmp(&a.oldest_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::top::figures::tests::answer;

    fn model() -> Model {
        let mut model = Model::new("127.0.0.1:9464");
        for second in 1..4 {
            model.take(Ok(answer(second)));
        }
        model
    }

    fn press(model: &mut Model, codes: &[KeyCode]) -> Next {
        let mut keys = codes.iter().map(|&code| model.key(code.into(), 2));
        keys.find(|&next| next == Next::Quit).unwrap_or(Next::GoOn)
    }

    fn names(model: &Model) -> Vec<&str> {
        model.shown().iter().map(|row| &*row.name).collect()
    }

    #[test]
    fn trouble_comes_first_and_s_turns_to_the_next_order() {
        let mut model = model();
        let states: Vec<State> = model.shown().iter().map(|row| row.state).collect();
        assert_eq!(states, [State::Stuck, State::Losing, State::Lost, State::Ok]);
        press(&mut model, &[KeyCode::Char('s')]);
        assert_eq!(model.sort, Sort::Name);
        assert_eq!(names(&model)[0], "syslog");
        press(&mut model, &[KeyCode::Char('s'); 6]);
        assert_eq!(model.sort, Sort::Trouble);
    }

    #[test]
    fn a_filter_is_typed_kept_and_cleared() {
        let mut model = model();
        let typed =
            [KeyCode::Char('/'), KeyCode::Char('Q'), KeyCode::Char('u'), KeyCode::Char('x')];
        press(&mut model, &typed);
        assert!(names(&model).is_empty() && model.mode == Mode::Filter);
        press(&mut model, &[KeyCode::Backspace, KeyCode::Char('e'), KeyCode::Enter]);
        assert_eq!((names(&model).len(), model.mode), (1, Mode::Rows), "queue_full is a reason");
        press(&mut model, &[KeyCode::Esc]);
        assert_eq!(names(&model).len(), 4);
    }

    #[test]
    fn scrolling_ends_at_both_ends_and_another_tab_begins_at_its_top() {
        let mut model = model();
        press(&mut model, &[KeyCode::PageDown, KeyCode::PageDown, KeyCode::Down]);
        assert_eq!(model.scrolled, 2, "two of four rows are below");
        press(&mut model, &[KeyCode::Up]);
        assert_eq!(model.scrolled, 1);
        press(&mut model, &[KeyCode::Tab]);
        assert_eq!(
            (model.tab, model.scrolled, names(&model)),
            (Tab::Sinks, 0, vec!["syslog → kafka"])
        );
        press(&mut model, &[KeyCode::Tab, KeyCode::Tab, KeyCode::BackTab]);
        assert_eq!(model.tab, Tab::Flows);
    }

    #[test]
    fn q_quits_but_not_while_it_is_typed_and_control_c_always_does() {
        let mut model = model();
        assert_eq!(press(&mut model, &[KeyCode::Char('/'), KeyCode::Char('q')]), Next::GoOn);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(model.key(control_c, 2), Next::Quit);
        assert_eq!(press(&mut model, &[KeyCode::Enter, KeyCode::Char('q')]), Next::Quit);
    }

    #[test]
    fn a_daemon_that_is_away_leaves_its_figures() {
        let mut model = model();
        model.take(Err("no daemon answers".to_owned()));
        assert_eq!((model.failure.as_deref(), names(&model).len()), (Some("no daemon answers"), 4));
        model.take(Ok(answer(9)));
        assert_eq!(model.failure, None);
    }

    #[test]
    fn the_history_is_a_minute() {
        let mut model = Model::new("");
        (1..100).for_each(|second| model.take(Ok(answer(second))));
        assert_eq!(model.history(model.shown()[3]), [1_000; 60]);
    }
}
