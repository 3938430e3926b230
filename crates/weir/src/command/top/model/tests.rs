use super::*;
use crate::command::top::example::{self, ledger, snapshot};
use crate::command::top::pages::content;

fn model() -> Model {
    let mut model = Model::new("127.0.0.1:9464");
    (1..4).for_each(|second| model.take(ledger(second)));
    model
}

fn press(model: &mut Model, codes: &[KeyCode]) -> Next {
    let shown = (content(model).grid.entries.len(), 2);
    let mut keys = codes.iter().map(|&code| model.key(code.into(), shown));
    keys.find(|&next| next == Next::Quit).unwrap_or(Next::GoOn)
}

fn typed(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
}

/// The cells of a column.
fn cells(model: &Model, title: &str) -> Vec<String> {
    let grid = content(model).grid;
    let at = grid.columns.iter().position(|column| column.title == title).unwrap();
    grid.entries.iter().map(|entry| entry.cells[at].clone()).collect()
}

#[test]
fn trouble_comes_first_and_s_turns_to_the_next_order() {
    let mut model = model();
    let states = ["STUCK", "LOSING", "DOWN", "lost", "ok"];
    let mut found = cells(&model, "state");
    found.dedup();
    found.sort_by_key(|state| states.iter().position(|one| one == state));
    assert_eq!(cells(&model, "state")[0], "STUCK");
    assert_eq!(found, states);
    press(&mut model, &typed("s"));
    assert_eq!((model.sort(), cells(&model, "name")[1].as_str()), ("name", "closes sockets"));
    press(&mut model, &typed("S"));
    assert_eq!(model.sort(), "trouble");
}

#[test]
fn a_filter_is_typed_kept_and_cleared() {
    let mut model = model();
    let all = cells(&model, "name").len();
    press(&mut model, &typed("/Qux"));
    assert!(cells(&model, "name").is_empty() && model.mode == Mode::Filter);
    press(&mut model, &[KeyCode::Backspace, KeyCode::Char('e'), KeyCode::Enter]);
    assert_eq!(
        (cells(&model, "name").len(), model.mode),
        (1, Mode::Rows),
        "queue_full is a reason"
    );
    press(&mut model, &[KeyCode::Esc]);
    assert_eq!(cells(&model, "name").len(), all);
}

#[test]
fn the_daemon_filters_sockets_once_the_filter_is_complete() {
    let mut model = model();
    press(&mut model, &typed("2/rtt > 1ms"));
    assert_eq!(model.wanted().filter, "");
    press(&mut model, &[KeyCode::Enter]);
    assert_eq!(model.wanted().filter, "rtt > 1ms");
    model.take(example::sockets(&model.wanted(), 3, 10));
    assert_eq!(cells(&model, "peer").len(), 3);

    let late = model.wanted();
    press(&mut model, &typed("sg"));
    let wanted = model.wanted();
    assert_eq!((wanted.sort, wanted.group), ("-rtt_ratio", "dst_network"));
    model.take(example::sockets(&late, 1, 1));
    assert!(content(&model).said[0].0.starts_with("asking again"), "a late answer is not shown");
    model.take(example::sockets(&wanted, 0, 10));
    let sockets: Vec<u64> =
        cells(&model, "sockets").iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(sockets, [5, 5, 5], "two groups, and the others");
}

#[test]
fn another_filter_has_round_trip_times_of_its_own() {
    let mut model = model();
    press(&mut model, &typed("2"));
    let stored = Stretch { begin_ms: 1, end_ms: 2, value: 3.0 };
    model.take(News::RoundTrips([vec![stored], Vec::new()]));
    model.take(example::sockets(&model.wanted(), 3, 10));
    assert_eq!(model.lines.median_rtt.begin_ms(), Some(1));
    press(&mut model, &typed("/rtt > 1ms"));
    press(&mut model, &[KeyCode::Enter]);
    model.take(News::RoundTrips([vec![stored], Vec::new()]));
    model.take(example::sockets(&model.wanted(), 3, 10));
    assert!(model.lines.median_rtt.begin_ms() > Some(1), "the history has all sockets");
    assert_eq!(model.lines.median_rtt.latest(), Some(64.0));
}

#[test]
fn a_refusal_is_shown_as_the_daemon_says_it() {
    let mut model = model();
    press(&mut model, &typed("2"));
    let why = "filter: `x` is not a word\n  x\n  ^";
    model.take(News::Sockets(model.wanted(), Err(why.to_owned())));
    let said: Vec<String> = content(&model).said.into_iter().map(|(line, _)| line).collect();
    assert_eq!(said, ["filter: `x` is not a word", "  x", "  ^"]);
}

#[test]
fn scrolling_ends_at_both_ends_and_each_page_keeps_its_place() {
    let mut model = model();
    press(&mut model, &[KeyCode::PageDown, KeyCode::Down, KeyCode::Up]);
    assert_eq!(model.view().scrolled, 2);
    press(&mut model, &[KeyCode::End, KeyCode::Down]);
    assert_eq!(model.view().scrolled, cells(&model, "name").len() - 2);
    press(&mut model, &typed("5"));
    assert_eq!((model.page, model.view().scrolled), (Page::Sinks, 0));
    press(&mut model, &[KeyCode::Tab]);
    assert_eq!((model.page, model.view().scrolled > 0), (Page::Overview, true));
    press(&mut model, &[KeyCode::BackTab, KeyCode::BackTab]);
    assert_eq!(model.page, Page::Flows);
}

#[test]
fn q_quits_but_not_while_it_is_typed_and_control_c_always_does() {
    let mut model = model();
    assert_eq!(press(&mut model, &typed("/q")), Next::GoOn);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(model.key(control_c, (0, 0)), Next::Quit);
    assert_eq!(press(&mut model, &[KeyCode::Enter, KeyCode::Char('q')]), Next::Quit);
}

#[test]
fn a_daemon_that_is_away_leaves_its_figures_and_a_pause_keeps_them() {
    let mut model = model();
    let rows = cells(&model, "received");
    model.take(News::Ledger(Err("no daemon answers".to_owned())));
    assert_eq!(model.failure.as_deref(), Some("no daemon answers"));
    assert_eq!(cells(&model, "received"), rows);
    press(&mut model, &typed("p"));
    model.take(ledger(9));
    assert_eq!((model.failure.as_deref(), cells(&model, "received")), (None, rows.clone()));
    press(&mut model, &typed("p"));
    model.take(ledger(10));
    assert_ne!(cells(&model, "received"), rows);
}

#[test]
fn another_life_of_the_daemon_has_no_rate_across_the_two() {
    let mut model = model();
    let mut other = snapshot(100);
    other.run_id = "another".into();
    model.take(News::Ledger(Ok(Box::new(other))));
    assert!(cells(&model, "out/s").iter().all(|rate| rate == "-"));
}

#[test]
fn every_count_is_the_ledger_s_digit_by_digit() {
    let mut model = model();
    let ledger = snapshot(3);
    let digits = |text: &String| text.replace(',', "").parse::<u64>().unwrap();
    for page in [Page::Overview, Page::Sinks] {
        model.turn_to(page);
        let names = cells(&model, "name");
        let counts = ["received", "delivered", "lost", "inside"].map(|title| cells(&model, title));
        let at = names.iter().position(|name| name == "sockets → kafka").unwrap();
        let hop = ledger.hop(ledger::HopKind::Sink, "sockets", Some("kafka")).unwrap();
        let wanted = [hop.received.count, hop.delivered.count, 0, hop.in_flight.count];
        assert_eq!(counts.each_ref().map(|column| digits(&column[at])), wanted, "{page:?}");
    }
}
