//! Draws a frame of `weir top`.

use super::figures::{Row, State, Tab};
use super::model::{Mode, Model};
use ledger::verdict_lines;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use text::{Ink, cut, cut_middle, grouped, short_count, short_time};

/// Rows outside the table: head, tabs, titles, and the keys at the bottom.
const FRAME_ROWS: usize = 4;
/// Screens with fewer rows have no room for the ledger's verdict.
const VERDICT_FROM_ROWS: usize = 14;
/// Most columns for a name.
const NAME_MAX: usize = 60;
/// Least and most columns of a sparkline; each is one second.
const SPARK: [usize; 2] = [6, 60];

const KEYS: &str = "q quit  / filter  s sort  Tab next table  ↑ ↓ PgUp PgDn scroll  ? help";

const HELP: &[&str] = &[
    "q, Ctrl-C          quit",
    "/                  filter by name, kind, state or reason; Enter keeps it, Esc clears it",
    "s                  sort by the next of trouble, name, in, out, lost, inside, oldest",
    "Tab, Shift-Tab     listeners and targets, sinks, flows",
    "↑ ↓ PgUp PgDn      scroll; Home and End go to the first and the last row",
    "?                  this help; any key leaves it",
    "",
    "STUCK     it has something, takes no more, and lets nothing go",
    "DOWN      it does not take all that it is given",
    "LOSING    something was lost since the last look",
    "trouble   it says what is wrong: see weir ledger",
    "lost      something was lost earlier, and nothing since the last look",
    "",
    "in/s, out/s, lost/s are of the last interval, lost is since the start, reason is that of the largest loss,",
    "inside is what was received and has not left, oldest is its age, and the line is out/s over the last minute.",
];

/// Rows of the table on a screen of this height.
pub(super) fn page_rows(model: &Model, height: usize) -> usize {
    height.saturating_sub(FRAME_ROWS + verdict(model, height).len()).max(1)
}

/// Draws the frame.
pub(super) fn draw(model: &Model, ink: Ink, area: Rect, buffer: &mut Buffer) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut put = |row: usize, text: &str, style: Style| {
        if row < height {
            let y = area.y.saturating_add(u16::try_from(row).unwrap_or(u16::MAX));
            buffer.set_stringn(area.x, y, cut(text, width), width, style);
        }
    };

    put(0, &head(model), Style::new().add_modifier(Modifier::BOLD));
    put(1, &tabs(model), Style::new());

    let page = page_rows(model, height);
    if model.mode == Mode::Help {
        let help = text::folded(&HELP.join("\n"), width);
        for (at, line) in help.lines().take(page + 1).enumerate() {
            put(2 + at, line, Style::new());
        }
    } else {
        let places = Places::of(width);
        put(2, &places.titles(), Style::new().add_modifier(Modifier::REVERSED));
        for (at, row) in model.shown().into_iter().skip(model.scrolled).take(page).enumerate() {
            put(3 + at, &places.row(row, &model.history(row)), style(row.state, ink));
        }
    }

    let verdict = verdict(model, height);
    let below = height.saturating_sub(1 + verdict.len());
    for (at, line) in verdict.iter().enumerate() {
        put(below + at, line, Style::new());
    }
    let (line, style) = last_line(model, page, ink);
    put(height.saturating_sub(1), &line, style);
}

fn head(model: &Model) -> String {
    match &model.latest {
        Some(answer) => {
            let ledger = &answer.ledger;
            let up = short_time(ledger.uptime_ms.saturating_mul(1_000));
            format!("weir top  {}  up {up}  run {}", model.admin, ledger.run_id)
        }
        None => format!("weir top  {}", model.admin),
    }
}

fn tabs(model: &Model) -> String {
    let tab = |tab: Tab, name: &str| {
        let count = grouped(model.count(tab) as u64);
        let mark = if model.worst(tab) >= State::Losing { "!" } else { "" };
        match model.tab == tab {
            true => format!("[{name} {count}{mark}]"),
            false => format!(" {name} {count}{mark} "),
        }
    };
    let all = [(Tab::Listeners, "listeners"), (Tab::Sinks, "sinks"), (Tab::Flows, "flows")];
    let all = all.map(|(of, name)| tab(of, name)).join(" ");
    let filter = match (&*model.filter, model.mode) {
        ("", Mode::Rows | Mode::Help) => String::new(),
        (filter, _) => format!("   filter: {filter}"),
    };
    format!("{all}   sort: {}{filter}", model.sort.label())
}

/// The ledger's verdict, if there is room for it.
fn verdict(model: &Model, height: usize) -> Vec<String> {
    match &model.latest {
        Some(answer) if height >= VERDICT_FROM_ROWS => {
            verdict_lines(&answer.ledger).lines().map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

fn last_line(model: &Model, page: usize, ink: Ink) -> (String, Style) {
    if model.mode == Mode::Filter {
        return (format!("/{}▏ Enter keeps it, Esc clears it", model.filter), Style::new());
    }
    if let Some(failure) = &model.failure {
        return (format!("trying again: {failure}"), style(State::Down, ink));
    }
    if model.latest.is_none() {
        return ("waiting for the first answer".to_owned(), Style::new());
    }
    let hidden = model.shown().len().saturating_sub(page);
    let rest = if hidden > 0 { format!("{hidden} rows hidden  ") } else { String::new() };
    (format!("{rest}{KEYS}"), Style::new().add_modifier(Modifier::DIM))
}

fn style(state: State, ink: Ink) -> Style {
    let color = match (ink, state) {
        (Ink::Plain, _) | (_, State::Ok) => None,
        (Ink::Color, State::Lost | State::Trouble) => Some(Color::Yellow),
        (Ink::Color, State::Losing | State::Down | State::Stuck) => Some(Color::Red),
    };
    color.map_or(Style::new(), |color| Style::new().fg(color))
}

/// The columns of a row's cells on a line of a given width.
struct Places {
    between: &'static str,
    name: usize,
    /// Columns of the reason; 0 if there is no room for it.
    reason: usize,
    has_lost_rate: HasLostRate,
    spark: usize,
}

/// Whether the loss rate is shown next to the number of losses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HasLostRate {
    Yes,
    No,
}

/// Columns of the cells shown at any width: state, in, out, lost, inside, oldest.
const CELLS: [usize; 6] = [7, 5, 5, 5, 6, 6];
const LOST_RATE: usize = 6;

impl Places {
    fn of(width: usize) -> Places {
        let cells: usize = CELLS.iter().sum();
        let (between, reason, has_lost_rate, gaps) = match width {
            ..80 => ("  ", 0, HasLostRate::No, 6),
            80..120 => (" ", 12, HasLostRate::No, 8),
            _ => ("  ", 17, HasLostRate::Yes, 9),
        };
        let lost_rate = if has_lost_rate == HasLostRate::Yes { LOST_RATE } else { 0 };
        let rest = width.saturating_sub(cells + reason + lost_rate + gaps * between.len());
        let [spark_min, spark_max] = if reason > 0 { SPARK } else { [0, 0] };
        let name = rest.saturating_sub((rest / 4).max(spark_min)).min(NAME_MAX);
        let name = if reason > 0 { name } else { rest };
        let spark = rest.saturating_sub(name).min(spark_max);
        Places { between, name, reason, has_lost_rate, spark }
    }

    fn titles(&self) -> String {
        let texts =
            ["state", "name", "in/s", "out/s", "lost/s", "lost", "reason", "inside", "oldest"];
        self.line(texts.map(str::to_owned), "minute")
    }

    fn row(&self, row: &Row, history: &[u64]) -> String {
        let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), short_count);
        let count = |count: Option<u64>| rate(count.map(|count| count as f64));
        let oldest = row.oldest_ms.map(|ms| short_time(ms.saturating_mul(1_000)).replace(' ', ""));
        let name = match row.what {
            "listener" | "target" | "sink" => row.name.clone(),
            what => format!("{what} {}", row.name),
        };
        let cells = [
            row.state.label().to_owned(),
            cut_middle(&name, self.name),
            rate(row.received),
            rate(row.delivered),
            rate(row.lost),
            count(Some(row.lost_total)),
            row.reason.clone(),
            count(row.inside),
            oldest.unwrap_or("-".to_owned()),
        ];
        self.line(cells, &sparkline(history, self.spark))
    }

    fn line(&self, cells: [String; 9], spark: &str) -> String {
        let [state, name, received, delivered, lost_rate, lost, reason, inside, oldest] = cells;
        let [state_width, in_width, out_width, lost_width, inside_width, oldest_width] = CELLS;
        let mut parts = vec![
            format!("{state:<state_width$}"),
            format!("{:<width$}", cut(&name, self.name), width = self.name),
            format!("{received:>in_width$}"),
            format!("{delivered:>out_width$}"),
        ];
        if self.has_lost_rate == HasLostRate::Yes {
            parts.push(format!("{lost_rate:>LOST_RATE$}"));
        }
        parts.push(format!("{lost:>lost_width$}"));
        if self.reason > 0 {
            parts.push(format!("{:<width$}", cut(&reason, self.reason), width = self.reason));
        }
        parts.push(format!("{inside:>inside_width$}"));
        parts.push(format!("{oldest:>oldest_width$}"));
        if self.spark > 0 {
            parts.push(cut(spark, self.spark));
        }
        parts.join(self.between)
    }
}

/// Values as bars in steps of an eighth, newest on the right. Several values share a bar if there is not enough room.
fn sparkline(values: &[u64], columns: usize) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if columns == 0 {
        return String::new();
    }
    let each = values.len().div_ceil(columns).max(1);
    let bars: Vec<u64> =
        values.rchunks(each).map(|chunk| chunk.iter().copied().max().unwrap_or(0)).collect();
    let most = bars.iter().copied().max().unwrap_or(0).max(1);

    let bar = |value: u64| {
        let eighths = (u128::from(value) * 8).div_ceil(u128::from(most));
        BARS[usize::try_from(eighths).unwrap_or(8).min(8)]
    };
    let empty = std::iter::repeat_n(' ', columns.saturating_sub(bars.len()));
    empty.chain(bars.iter().rev().map(|&value| bar(value))).collect()
}

/// All non-empty tables as text, one below the other, for `--once`.
pub(super) fn frames(model: &mut Model, columns: usize) -> String {
    let tabs = [Tab::Listeners, Tab::Sinks, Tab::Flows];
    let mut text = head(model) + "\n";
    let places = Places::of(columns);
    for tab in tabs.into_iter().filter(|&tab| model.count(tab) > 0).collect::<Vec<_>>() {
        model.tab = tab;
        text.push_str(&format!("\n{}\n", places.titles().trim_end()));
        for row in model.shown() {
            text.push_str(places.row(row, &model.history(row)).trim_end());
            text.push('\n');
        }
    }
    if let Some(answer) = &model.latest {
        text.push_str(&format!("\n{}", text::folded(&verdict_lines(&answer.ledger), columns)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::top::figures::tests::answer;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    /// The text of a buffer, one line per row, without trailing spaces.
    fn lines(buffer: &Buffer) -> Vec<String> {
        let width = usize::from(buffer.area.width.max(1));
        let row = |row: &[ratatui::buffer::Cell]| {
            row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
        };
        buffer.content.chunks(width).map(row).collect()
    }

    fn model() -> Model {
        let mut model = Model::new("127.0.0.1:9464");
        for second in [1, 2, 3, 4, 6, 8, 9] {
            model.take(Ok(answer(second)));
        }
        model
    }

    fn frame(model: &Model, ink: Ink, (columns, rows): (u16, u16)) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(model, ink, frame.area(), frame.buffer_mut())).unwrap();
        terminal.backend().buffer().clone()
    }

    /// The tables, the help, and an unreachable daemon, one below the other.
    fn screens(size: (u16, u16)) -> String {
        let mut model = model();
        let mut text = String::new();
        let mut add = |model: &Model, name: &str| {
            let lines = lines(&frame(model, Ink::Plain, size)).join("\n");
            text.push_str(&format!("== {name}\n{lines}\n"));
        };
        add(&model, "listeners");
        model.key(KeyCode::Tab.into(), 1);
        add(&model, "sinks");
        model.key(KeyCode::Tab.into(), 1);
        add(&model, "flows");
        model.key(KeyCode::Char('?').into(), 1);
        add(&model, "help");
        model.key(KeyCode::Char('?').into(), 1);
        model.key(KeyCode::Char('/').into(), 1);
        model.key(KeyCode::Char('a').into(), 1);
        add(&model, "a filter");
        model.key(KeyCode::Esc.into(), 1);
        model
            .take(Err("no daemon answers at http://127.0.0.1:9464: connection refused".to_owned()));
        add(&model, "the daemon is away");
        text
    }

    #[test]
    fn generated_screens() {
        for size in [(80, 24), (120, 40), (200, 60), (60, 15)] {
            let (columns, rows) = size;
            let path = format!("crates/weir/tests/weir/screens/top-{columns}x{rows}.txt");
            testkit::generated(&path, &screens(size));
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
    fn ports_stay_whole_and_any_size_is_drawn() {
        for size in [(80, 24), (120, 40), (60, 15)] {
            let lines = lines(&frame(&model(), Ink::Plain, size));
            assert!(lines.iter().any(|line| line.contains(":5514")), "{lines:?}");
        }
        for size in [(1, 1), (3, 2), (20, 5), (400, 100)] {
            frame(&model(), Ink::Color, size);
        }
    }

    #[test]
    fn sparklines_share_bars_and_end_with_the_newest() {
        assert_eq!(sparkline(&[0, 1, 4, 8], 6), "   ▁▄█");
        assert_eq!(sparkline(&[8, 0, 4, 0], 2), "█▄");
        assert_eq!(sparkline(&[0, 0], 2), "  ");
        assert_eq!(sparkline(&[u64::MAX], 1), "█");
    }

    #[test]
    fn frames_as_text_have_every_row_of_every_table() {
        let text = frames(&mut model(), 120);
        for shown in ["STUCK", "kafka", "talkers", "192.0.2.1/0", "largest loss: "] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        assert!(!text.contains("q quit"), "{text}");
    }
}
