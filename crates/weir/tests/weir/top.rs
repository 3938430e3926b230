//! `weir top` on a terminal, with a daemon.

use crate::support::Weir;
use crate::terminal::Terminal;
use std::process::{Command, Stdio};
use testkit::{Peer, free_port, receiver, wait_for};

impl Terminal {
    /// Waits until this is on the screen.
    #[track_caller]
    fn wait_for(&self, mark: &str) {
        let is_there = || screen(&self.shown(), self.size).contains(mark).then_some(());
        wait_for(
            || format!("{mark:?} on the screen: {}", screen(&self.shown(), self.size)),
            is_there,
        );
    }
}

/// What a terminal of this size shows that got this text, as far as crossterm's sequences go.
fn screen(text: &str, (columns, rows): (u16, u16)) -> String {
    let empty = vec![vec![' '; columns.into()]; rows.into()];
    let (mut cells, mut row, mut column) = (empty.clone(), 0_usize, 0_usize);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' if rest.next_if_eq(&'[').is_some() => {
                let mut parameters = String::new();
                let end = loop {
                    match rest.next() {
                        Some(c) if c.is_ascii_alphabetic() => break c,
                        Some(c) => parameters.push(c),
                        None => break ' ',
                    }
                };
                let at = |which: usize| {
                    let number =
                        parameters.split(';').nth(which).and_then(|text| text.parse().ok());
                    number.unwrap_or(1_usize).saturating_sub(1)
                };
                match end {
                    'H' => (row, column) = (at(0), at(1)),
                    'J' => cells.clone_from(&empty),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            c if c.is_control() => {}
            c => {
                if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = c;
                }
                column += 1;
            }
        }
    }
    cells.into_iter().map(|row| row.into_iter().collect::<String>() + "\n").collect()
}

#[test]
fn top_shows_a_daemon_that_goes_and_comes_back() {
    let (_receiver, to) = receiver();
    let admin = format!("127.0.0.1:{}", free_port());
    let args = format!("top --interval 50ms --admin {admin}");
    let Some(mut top) = Terminal::start((80, 24), &args, &[]) else { return };
    top.wait_for("trying again: no daemon answers");

    let daemon = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["relay", "--progress", "off", "--admin", &admin]);
        command.args(["--listen", "127.0.0.1:0?name=in", "--to", &to]);
        Peer::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
    };
    let mut first = daemon();
    let port = to.rsplit_once(':').unwrap().1;
    top.wait_for(&format!(":{port} "));
    top.wait_for("q quit");
    top.wait_for("nothing lost");
    first.terminate();
    top.wait_for("trying again: no daemon answers");
    top.wait_for(&format!(":{port} "));
    let _second = daemon();
    top.wait_for("q quit");

    top.press("\t");
    top.wait_for("[sinks 0]");
    top.press("\t\t/nothing like it\r");
    top.wait_for("filter: nothing like it");
    top.press("?");
    top.wait_for("Shift-Tab");
    top.press("xq");
    let (code, text) = top.end();
    assert_eq!(code, Some(0), "{text:?}");
    for sequence in ["\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"] {
        assert!(text.contains(sequence), "{sequence:?}: {text:?}");
    }
}

#[test]
fn top_gives_the_terminal_back_when_it_is_told_to_end() {
    let Some(mut top) = Terminal::start((80, 24), "top --admin 127.0.0.1:1", &[]) else { return };
    top.wait_for("trying again");
    top.press("\x03");
    let (code, text) = top.end();
    assert_eq!(code, Some(0), "{text:?}");
    assert!(text.contains("\x1b[?1049l") && !text.contains("^C"), "{text:?}");
}

#[test]
fn top_once_prints_a_frame_and_without_a_terminal_top_says_so() {
    let (_receiver, to) = receiver();
    let weir = Weir::relay(&["--listen", "127.0.0.1:0?name=in", "--to", &to]);
    let run = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().unwrap();

    let once = run(&["top", "--once", "--interval", "50ms", "--admin", &weir.url()]);
    let text = String::from_utf8(once.stdout).unwrap();
    assert_eq!(once.status.code(), Some(0), "{text}");
    assert!(text.contains("ok") && text.contains(&format!("in → udp://{to}")), "{text}");

    let live = run(&["top", "--admin", &weir.url()]);
    assert_eq!(live.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&live.stderr).contains("--once"));
}
