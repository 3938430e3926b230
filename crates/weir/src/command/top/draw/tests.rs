use super::*;
use crate::command::top::example::{self, model};
use crate::command::top::feed::News;
use crate::command::top::width::width;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;

const SIZES: [(u16, u16); 5] = [(80, 24), (120, 40), (200, 60), (60, 15), (400, 100)];

fn frame(model: &Model, ink: Ink, (columns, rows): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(model, ink, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

/// The text of a buffer, one line per row, without trailing spaces. The cell behind a character of two columns has none.
fn lines(buffer: &Buffer) -> Vec<String> {
    let columns = usize::from(buffer.area.width);
    let row = |cells: &[ratatui::buffer::Cell]| {
        let mut line = String::new();
        let mut skipped = 0;
        for cell in cells {
            if skipped > 0 {
                skipped -= 1;
                continue;
            }
            line.push_str(cell.symbol());
            skipped = width(cell.symbol()).saturating_sub(1);
        }
        line.trim_end().to_owned()
    };
    buffer.content.chunks(columns.max(1)).map(row).collect()
}

fn press(model: &mut Model, keys: &str) {
    for key in keys.chars() {
        let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
        model.key(code.into(), (200, 10));
    }
}

/// Shows the sockets that are asked for.
fn answer(model: &mut Model, count: u64) {
    model.take(example::sockets(&model.wanted(), count, 10_000));
}

/// Every page, and what the screen says otherwise, one below the other.
fn screens(size: (u16, u16)) -> String {
    let mut model = model();
    let mut text = String::new();
    let mut add = |model: &Model, name: &str| {
        let lines = lines(&frame(model, Ink::Plain, size));
        for line in &lines {
            assert!(width(line) <= size.0.into(), "{name} at {size:?}: {line}");
            assert!(!line.contains(['\x1b', '\u{202e}']), "{name}: {line}");
        }
        text.push_str(&format!("== {name}\n{}\n", lines.join("\n")));
    };

    add(&model, "overview");
    press(&mut model, "2");
    add(&model, "sockets, before the answer");
    answer(&mut model, 60);
    add(&model, "sockets");
    press(&mut model, "g");
    answer(&mut model, 0);
    add(&model, "sockets in groups");
    press(&mut model, "/rtt > 1 apple\n");
    let mistake = "filter: `apple` is not a word here\n  rtt > 1 apple\n          ^^^^^";
    model.take(News::Sockets(model.wanted(), Err(mistake.to_owned())));
    add(&model, "a mistake in the filter");
    press(&mut model, "3");
    add(&model, "closes");
    press(&mut model, "g");
    add(&model, "ends");
    press(&mut model, "4");
    add(&model, "flows");
    press(&mut model, "g");
    add(&model, "agents");
    press(&mut model, "g");
    add(&model, "the last hour");
    press(&mut model, "5");
    add(&model, "sinks");
    press(&mut model, "e");
    add(&model, "the page in words");
    press(&mut model, "x2?");
    add(&model, "help");
    press(&mut model, "x1/col");
    add(&model, "a filter");
    press(&mut model, "\np");
    add(&model, "paused");
    let away = "no daemon answers at http://127.0.0.1:9464: connection refused";
    model.take(News::Ledger(Err(away.to_owned())));
    add(&model, "the daemon is away");
    text
}

#[test]
fn generated_screens() {
    for size in SIZES {
        let (columns, rows) = size;
        let path = format!("crates/weir/tests/weir/screens/top-{columns}x{rows}.txt");
        testkit::generated(&path, &screens(size));
    }
}

#[test]
fn no_port_is_ever_cut() {
    let mut model = model();
    press(&mut model, "2");
    answer(&mut model, 5);
    let mut closes = self::model();
    press(&mut closes, "3");
    for columns in 60..200 {
        for (model, ports) in [(&model, [":65535 ", ":60004 "]), (&closes, [":65535 ", ":60443 "])]
        {
            let text = lines(&frame(model, Ink::Plain, (columns, 24))).join(" \n");
            for port in ports {
                assert!(text.contains(port), "{port} at {columns} columns: {text}");
            }
        }
        let text = lines(&frame(&self::model(), Ink::Plain, (columns, 24))).join("\n");
        assert!(text.contains(":5514 "), "at {columns} columns: {text}");
    }
}

#[test]
fn any_size_is_drawn() {
    for size in [(1, 1), (3, 2), (20, 5), (10, 100), (500, 3)] {
        for page in Page::ALL {
            let mut model = model();
            model.turn_to(page);
            frame(&model, Ink::Color, size);
            press(&mut model, "e");
            frame(&model, Ink::Color, size);
        }
    }
}

#[test]
fn losses_are_red_unless_colors_are_unwanted() {
    let red = |ink| {
        let buffer = frame(&model(), ink, (80, 24));
        buffer.content.iter().filter(|cell| cell.fg == Color::Red).count()
    };
    assert!(red(Ink::Color) > 100, "the stuck and the losing target");
    assert_eq!(red(Ink::Plain), 0);
}

#[test]
fn lines_are_full_from_the_first_second_where_there_is_a_history() {
    let mut model = Model::new("");
    model.take(example::past());
    model.take(example::ledger(1));
    model.take(example::ledger(2));
    let text = lines(&frame(&model, Ink::Plain, (80, 24)));
    let arrived = text.iter().find(|line| line.starts_with("arrived")).unwrap();
    assert!(arrived.matches(|c| ('▁'..='█').contains(&c)).count() > 40, "{arrived}");

    let mut model = Model::new("");
    model.take(example::ledger(1));
    model.take(example::ledger(2));
    let text = lines(&frame(&model, Ink::Plain, (80, 24)));
    let arrived = text.iter().find(|line| line.starts_with("arrived")).unwrap();
    assert!(arrived.matches(|c| ('▁'..='█').contains(&c)).count() < 5, "{arrived}");
}

#[test]
fn frames_as_text_have_every_row_of_every_page() {
    let mut model = model();
    model.turn_to(Page::Tcp);
    answer(&mut model, 3);
    let text = frames(&mut model, 120);
    for shown in ["STUCK", "kafka", "talkers", ":60001", "✕ timed out", "largest loss: "] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert!(!text.contains("q quit"), "{text}");
}
