//! `weir top` on a terminal, with a daemon.

use crate::support::{WEIR, Weir, generate};
use crate::terminal::Terminal;
use ledger::{HopKind, HopSnapshot};
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use testkit::{Peer, TempDir, free_port, listen, need_tool, receiver, wait_for};
use text::grouped;

impl Terminal {
    /// The row of the screen that has all of these.
    fn row(&self, marks: &[&str]) -> Option<String> {
        let screen = screen(&self.shown(), self.size);
        let row = screen.lines().find(|row| marks.iter().all(|mark| row.contains(mark)));
        row.map(str::to_owned)
    }

    /// Waits until the row that has these is as wanted.
    #[track_caller]
    fn wait_for_row(&self, marks: &[&str], is_wanted: impl Fn(&str) -> bool) -> String {
        let describe = || format!("a row with {marks:?}: {}", screen(&self.shown(), self.size));
        wait_for(describe, || self.row(marks).filter(|row| is_wanted(row)))
    }

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

    top.press("5");
    top.wait_for("[5 Sinks]");
    top.press("\t/nothing like it\r");
    top.wait_for("filter: nothing");
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
    for by_signal in ["", "TERM", "INT"] {
        let args = "top --admin 127.0.0.1:1";
        let Some(mut top) = Terminal::start((80, 24), args, &[]) else { return };
        top.wait_for("trying again");
        match by_signal {
            "" => top.press("\x03"),
            name => top.signal(name),
        }
        let (code, text) = top.end();
        assert_eq!(code, Some(0), "{by_signal}: {text:?}");
        for sequence in ["\x1b[?1049l", "\x1b[?25h"] {
            assert!(text.contains(sequence), "{by_signal}: {sequence:?}: {text:?}");
        }
        assert!(!text.contains("^C"), "{text:?}");
    }
}

/// A daemon that relays, collects the sockets of one port, analyzes sFlow and keeps a history.
fn configuration(dir: &TempDir, to: &str, port: u16) -> PathBuf {
    let text = format!(
        "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n\
         [[listener.target]]\nname = \"out\"\nto = \"{to}\"\n\
         [[listener]]\nname = \"sflow\"\nlisten = \"127.0.0.1:0\"\n\
         [flows]\nfrom = [\"sflow\"]\n[[flow]]\nname = \"pairs\"\nkeys = [\"src\", \"dst\"]\n\
         [sockets]\ninterval = \"200ms\"\nnamespaces = \"own\"\nfilter = \"sport = :{port} or dport = :{port}\"\n\
         [[sink]]\nname = \"history\"\nfrom = [\"sockets\"]\nto = \"store:{}\"\nbatch_age = \"50ms\"\n",
        dir.text("history")
    );
    let path = dir.file("weir.toml");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn every_page_of_top_shows_what_the_daemon_says_at_any_size() {
    let (_receiver, to) = receiver();
    let (dir, near) = (TempDir::new(), listen(([127, 0, 0, 1], 0).into()));
    let port = near.local_addr().unwrap().port();
    let weir = Weir::run(&configuration(&dir, &to, port));
    let args = format!("top --interval 50ms --admin {}", weir.admin);
    let Some(mut top) = Terminal::start((80, 24), &args, &[]) else { return };
    let far = TcpStream::connect(near.local_addr().unwrap()).unwrap();
    let accepted = near.accept().unwrap();
    let from = far.local_addr().unwrap().port();

    top.wait_for("[1 Overview]");
    top.press("2/rtt > 1 apple\r");
    top.wait_for("filter: `1` lacks its unit");
    top.wait_for("        ^ ");
    top.press("\x1b");
    top.wait_for("sockets pass");
    top.press(&format!("/dport = :{port}\r"));
    top.wait_for_row(&[&format!(":{from} "), &format!(":{port} ")], |_| true);
    top.press("ggg");
    top.wait_for("counted by port of the peer");
    top.wait_for_row(&[&format!("{port}   ")], |row| row.starts_with(&port.to_string()));

    top.press("3");
    top.wait_for("ended since the start");
    drop((far, accepted));
    top.wait_for_row(&[&format!(":{from} "), &format!(":{port} "), "close"], |_| true);
    top.press("g");
    top.wait_for("this host closed it in order");
    top.press("\t");
    top.wait_for("[4 Flows]");
    top.wait_for("0 agents");
    top.press("g");
    top.wait_for("lost inside");
    top.press("\tp");
    top.wait_for("PAUSED");
    for size in [(60, 15), (200, 60), (120, 40)] {
        top.resize(size);
        let rows = usize::from(size.1);
        let at_the_end = |screen: &str| screen.lines().nth(rows - 1).unwrap().contains("q quit");
        let describe = || format!("the keys in row {rows}: {}", screen(&top.shown(), top.size));
        wait_for(describe, || at_the_end(&screen(&top.shown(), top.size)).then_some(()));
    }
    top.press("pe");
    top.wait_for("The same as text: weir ledger");
    top.press("xq");
    assert_eq!(top.end().0, Some(0));
}

#[test]
fn every_count_of_top_is_that_of_the_ledger_and_its_sockets_are_those_of_weir_sockets() {
    let (_receiver, to) = receiver();
    let (dir, near) = (TempDir::new(), listen(([127, 0, 0, 1], 0).into()));
    let port = near.local_addr().unwrap().port();
    let weir = Weir::run(&configuration(&dir, &to, port));
    let sent = generate(&["--to", weir.listen(), "--count", "12345"]);
    weir.wait_for(|ledger| {
        let target = ledger.hop(HopKind::Target, "in", Some("out")).unwrap();
        target.received.count == sent.all() && target.in_flight.count == 0
    });
    let args = format!("top --interval 50ms --admin {}", weir.admin);
    let Some(mut top) = Terminal::start((200, 60), &args, &[]) else { return };

    // Records are made all the time, so the row is compared with a ledger of the same moment.
    for (kind, origin, target) in [
        (HopKind::Socket, "in", None),
        (HopKind::Target, "in", Some("out")),
        (HopKind::Sink, "sockets", Some("history")),
    ] {
        let name = target.map_or(" in ".to_owned(), |target| format!(" {origin} → {target} "));
        for page in if kind == HopKind::Sink { &["1", "5"][..] } else { &["1"] } {
            top.press(page);
            top.wait_for(&format!("[{page} "));
            let is_equal = |row: &str| {
                let ledger = weir.ledger();
                let hop = ledger.hop(kind, origin, target).unwrap();
                counts(hop).iter().all(|count| row.contains(count.as_str()))
            };
            top.wait_for_row(&[&name], is_equal);
        }
    }

    let far = TcpStream::connect(near.local_addr().unwrap()).unwrap();
    let _accepted = near.accept().unwrap();
    // Another connection of this machine may have one of the two ports.
    let filter = format!("sport = :{} and dport = :{port}", far.local_addr().unwrap().port());
    top.press(&format!("2/{filter}\r"));
    top.wait_for("1 socket passes");
    let row = top.wait_for_row(&[&format!(":{port} "), "ESTAB"], |_| true);
    let table = sockets(&filter);
    let cells = table.lines().find(|line| line.contains(&format!(":{port}"))).unwrap();
    for cell in cells.split("  ").map(str::trim).filter(|cell| !cell.is_empty()) {
        assert!(row.contains(cell), "{cell:?} of {cells:?} in {row:?}");
    }
    if need_tool("ss") {
        let ss = Command::new("ss").args(["-tinH", &filter]).output().unwrap();
        let ss = String::from_utf8(ss.stdout).unwrap();
        for word in ss.split_whitespace().filter(|word| word.starts_with("127.0.0.1:")) {
            assert!(row.contains(&format!(" {word} ")), "{word} of {ss} in {row:?}");
        }
    }
    top.press("q");
    assert_eq!(top.end().0, Some(0));
}

/// The counts of a hop that does not lose, with all their digits.
fn counts(hop: &HopSnapshot) -> [String; 3] {
    let counts = [hop.received, hop.delivered, hop.in_flight];
    counts.map(|amount| format!(" {} ", grouped(amount.count)))
}

/// What `weir sockets` says of the sockets that pass.
fn sockets(filter: &str) -> String {
    let columns = "state,local,peer,rtt,min_rtt,cwnd";
    let output =
        Command::new(WEIR).args(["sockets", "--columns", columns, filter]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn top_finds_the_token_of_the_run_and_refuses_a_terminal_that_cannot_show_it() {
    if !testkit::need_root("a runtime folder of this system") {
        return;
    }
    let dir = TempDir::new();
    let path = dir.file("weir.toml");
    let text = "[sockets]\nnamespaces = \"all\"\n[[sink]]\nname = \"none\"\nfrom = [\"sockets\"]\nto = \"null:\"\n";
    fs::write(&path, text).unwrap();
    let weir = Weir::run(&path);
    let args = format!("top --interval 50ms --admin {}", weir.admin);
    let Some(mut top) = Terminal::start((120, 40), &args, &[("NO_COLOR", "1")]) else { return };
    top.wait_for("[1 Overview]");
    top.press("2");
    top.wait_for(" sockets pass in ");
    top.press("q");
    let (_, text) = top.end();
    assert!(!text.contains("\x1b[31m") && !text.contains("\x1b[38;5;1m"), "{text:?}");

    let (code, text) = Terminal::start((80, 24), &args, &[("TERM", "dumb")]).unwrap().end();
    assert_eq!(code, Some(64), "{text}");
    assert!(text.contains("weir top --once") && !text.contains('\x1b'), "{text}");
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
    assert!(text.contains("\nOverview\n"), "{text}");

    let live = run(&["top", "--admin", &weir.url()]);
    assert_eq!(live.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&live.stderr).contains("--once"));
}
