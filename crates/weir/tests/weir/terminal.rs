//! The program on a terminal: that it fits, its colors, and what it leaves there after Ctrl-C.

use ledger::{Amount, HopBuilder, HopKind, Reason, Snapshot};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use testkit::{Peer, TempDir, free_port, need_tool, receiver, run, wait_for};

/// A command on a terminal of its own.
pub(crate) struct Terminal {
    pub(crate) size: (u16, u16),
    script: Peer,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    /// Starts `weir ARGS` on a terminal of this size; `None` where there is no tool that makes one.
    pub(crate) fn start(
        size: (u16, u16),
        args: &str,
        variables: &[(&str, &str)],
    ) -> Option<Terminal> {
        if !need_tool("script") {
            return None;
        }
        let weir = env!("CARGO_BIN_EXE_weir");
        let (columns, rows) = size;
        let call = format!("stty cols {columns} rows {rows}; exec {weir} {args}");
        let mut command = Command::new("script");
        command.args(["-qefc", &call, "/dev/null"]).env("TERM", "xterm");
        for name in ["COLUMNS", "NO_COLOR", "WEIR_ADMIN", "WEIR_URL"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = Peer::start(&mut command);

        let keys = script.0.stdin.take().unwrap();
        let mut stdout = script.0.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&shown);
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut piece) {
                *seen.lock().unwrap() += &String::from_utf8_lossy(&piece[..count]);
            }
        });
        Some(Terminal { size, script, keys, shown })
    }

    pub(crate) fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits until this has been written after the first `from` bytes, and returns how many bytes there are then.
    #[track_caller]
    fn wait_for_after(&self, from: usize, mark: &str) -> usize {
        wait_for(
            || format!("{mark:?} on the terminal: {}", self.shown()),
            || {
                let shown = self.shown();
                shown.get(from..).is_some_and(|text| text.contains(mark)).then_some(shown.len())
            },
        )
    }

    /// The command's process: the shell that `script` starts becomes it.
    fn command(&self) -> u32 {
        let script = self.script.0.id();
        let file = format!("/proc/{script}/task/{script}/children");
        let children =
            || std::fs::read_to_string(&file).ok()?.split_whitespace().next()?.parse().ok();
        wait_for("the command", children)
    }

    /// Makes the terminal larger or smaller, which the command is told by a signal.
    pub(crate) fn resize(&mut self, size: (u16, u16)) {
        let (columns, rows) = (size.0.to_string(), size.1.to_string());
        let terminal = format!("/proc/{}/fd/0", self.command());
        let mut stty = Command::new("stty");
        run(stty.args(["-F", &terminal, "cols", &columns, "rows", &rows]));
        self.size = size;
    }

    /// Sends the command a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        run(Command::new("sh")
            .args(["-c", "kill -s \"$0\" \"$1\"", name])
            .arg(self.command().to_string()));
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for the end; returns the exit code and what the terminal got.
    #[track_caller]
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status = wait_for(
            || format!("the end: {}", self.shown.lock().unwrap()),
            || self.script.0.try_wait().unwrap(),
        );
        // What script has written may still be on its way to the thread that reads.
        let shown = &self.shown;
        wait_for("the reader's end", || (Arc::strong_count(shown) == 1).then_some(()));
        (status.code(), self.shown())
    }
}

fn snapshot(targets: u64) -> Snapshot {
    let amount = |count| Amount { count, bytes: count * 200 };
    let hop = |at| {
        let name = format!("udp://collector-{at}.a-rather-long-domain.example.com:20514");
        let hop = HopBuilder::new(HopKind::Target, "syslog", Some(&name), amount(0));
        hop.delivered(amount(900)).dropped(Reason::QueueFull, amount(at)).finish(amount(900 + at))
    };
    let hops = (0..targets).map(hop).collect();
    Snapshot { run_id: "5eed".into(), uptime_ms: 61_000, hops, ..Snapshot::default() }
}

/// Answers every request with this ledger, for as long as the test's process lives. Returns its address.
fn serve(snapshot: &Snapshot) -> String {
    let body = serde_json::to_string(snapshot).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut piece = [0; 1024];
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(count @ 1..) => head.extend_from_slice(&piece[..count]),
                    _ => break,
                }
            }
            let length = body.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    address.to_string()
}

/// How many columns a line takes on a terminal.
fn columns(line: &str) -> usize {
    let mut visible = 0;
    let mut rest = line.trim_end_matches('\r').chars();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' => drop(rest.by_ref().find(char::is_ascii_alphabetic)),
            _ => visible += 1,
        }
    }
    visible
}

#[test]
fn a_watched_ledger_fits_the_terminal_and_ends_with_control_c() {
    let admin = serve(&snapshot(40));
    for size in [(80, 24), (120, 40), (200, 60)] {
        let args = format!("ledger --admin {admin} --watch 50ms");
        let Some(mut terminal) = Terminal::start(size, &args, &[]) else { return };
        let first = terminal.wait_for_after(0, "unaccounted");
        terminal.wait_for_after(first, "unaccounted");
        terminal.press("\x03");
        let (code, text) = terminal.end();
        assert_eq!(code, Some(0), "{text}");

        let screens: Vec<&str> = text.split("\x1b[H\x1b[J").skip(1).collect();
        assert!(screens.len() >= 2, "{text}");
        for screen in screens {
            assert!(screen.lines().count() <= usize::from(size.1), "{screen}");
            assert!(screen.lines().all(|line| columns(line) <= usize::from(size.0)), "{screen}");
            assert!(screen.contains("collector-39") && screen.contains(" hidden: "), "{screen}");
        }
    }
}

#[test]
fn losses_are_red_on_a_terminal_unless_colors_are_unwanted() {
    let admin = serve(&snapshot(3));
    let args = format!("ledger --admin {admin}");
    let Some(terminal) = Terminal::start((80, 24), &args, &[]) else { return };
    let (code, text) = terminal.end();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\x1b[31m      lost               2  queue_full\x1b[0m"), "{text}");
    assert!(text.contains("\x1b[31mlargest loss: 2"), "{text}");
    assert!(text.lines().all(|line| columns(line) <= 80), "{text}");

    for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let (_, text) = Terminal::start((80, 24), &args, &variables).unwrap().end();
        assert!(text.contains("queue_full") && !text.contains('\x1b'), "{text}");
    }

    for (variables, has_color) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let (_, text) = Terminal::start((80, 24), "doctor", variables).unwrap().end();
        assert_eq!(text.contains("\x1b[32mok "), has_color, "{text}");
    }
}

#[test]
fn colors_are_asked_for_or_refused_in_the_same_way_everywhere() {
    let folder = TempDir::new();
    let file = folder.text("weir.toml");
    std::fs::write(&file, "[[listener]]\nlisten = 1\n").unwrap();
    let listen = free_port();
    let run = format!("relay --listen 127.0.0.1:{listen} --to null: --progress off");
    for (args, mark) in [
        (format!("config check {file}"), "\x1b[31mweir: "),
        (run.clone(), "\x1b[32mnothing lost\x1b[0m"),
        ("ledgr".to_owned(), "\x1b[31mweir: unrecognized"),
        ("ledger --help".to_owned(), "\x1b[1m"),
    ] {
        for (more, variables, has_color) in [
            ("", &[][..], true),
            ("", &[("NO_COLOR", "1")], false),
            ("", &[("TERM", "dumb")], false),
            ("--color never", &[], false),
            ("--color always", &[("NO_COLOR", "1")], true),
        ] {
            let args = format!("{args} {more}");
            let Some(mut terminal) = Terminal::start((100, 30), &args, variables) else { return };
            if args.starts_with("relay") {
                terminal.wait_for_after(0, "admin off");
                terminal.press("\x03");
            }
            let (_, text) = terminal.end();
            assert_eq!(text.contains(mark), has_color, "{args} {variables:?}: {text:?}");
            // Ctrl-C clears the row of the cursor where a terminal can.
            let colors = text.replace("\x1b[K", "").contains('\x1b');
            assert_eq!(colors, has_color, "{args} {variables:?}: {text:?}");
        }
    }
}

#[test]
fn live_flows_fit_the_terminal() {
    let listen = free_port();
    for size in [(80, 24), (120, 40), (200, 60)] {
        let args = format!(
            "flows --listen 127.0.0.1:{listen} --interval 100ms --keys src,dst,src_port,dst_port,protocol,ttl,ip_version"
        );
        let Some(mut terminal) = Terminal::start(size, &args, &[]) else { return };
        terminal.wait_for_after(0, "no samples yet");
        let mut agents = Command::new(env!("CARGO_BIN_EXE_weir"));
        agents.args(["gen", "sflow", "--duration", "10m", "--flows", "40", "--to"]);
        let mut agents =
            Peer::start(agents.arg(format!("127.0.0.1:{listen}")).stdout(Stdio::null()));
        terminal.wait_for_after(0, "10.0.0.1");
        agents.0.kill().unwrap();
        terminal.press("\x03");
        let (code, text) = terminal.end();
        assert_eq!(code, Some(0), "{text}");

        for screen in text.split("\x1b[H\x1b[J").skip(1) {
            assert!(screen.lines().all(|line| columns(line) <= usize::from(size.0)), "{screen}");
            // What is said at the end stands below the last one.
            assert!(screen.lines().count() <= usize::from(size.1) + 2, "{screen}");
        }
    }
}

#[test]
fn every_live_view_ends_with_control_c_and_leaves_no_trace_of_it() {
    let (_receiver, to) = receiver();
    let admin = serve(&snapshot(1));
    let [relay, flows, verify] = [free_port(), free_port(), free_port()];
    for (args, mark, code) in [
        (format!("ledger --admin {admin} --watch"), "unaccounted", 0),
        ("sockets --watch 1s".to_owned(), " UTC: ", 0),
        ("sockets --closed 'dport = :1'".to_owned(), "ENDED", 0),
        (format!("flows --listen 127.0.0.1:{flows}"), "\n", 0),
        (format!("gen --to {to} --rate 10 --duration 10m"), " s ", 0),
        // Nobody has said that the load is over: its verdict.
        (format!("verify --listen 127.0.0.1:{verify}"), "listening on", 1),
        (format!("relay --listen 127.0.0.1:{relay} --to {to}"), "0 waiting", 0),
    ] {
        let Some(mut terminal) = Terminal::start((100, 30), &args, &[]) else { return };
        terminal.wait_for_after(0, mark);
        terminal.press("\x03");
        let (ended, text) = terminal.end();
        assert_eq!(ended, Some(code), "{args}: {text:?}");
        for (_, after) in text.match_indices("^C").map(|(at, echo)| text.split_at(at + echo.len()))
        {
            let is_gone = ["\r\x1b[", "\x1b[H\x1b[J"].iter().any(|start| after.starts_with(start));
            assert!(is_gone, "{args}: {text:?}");
        }
    }
}
