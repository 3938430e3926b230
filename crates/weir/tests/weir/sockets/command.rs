//! The table, the filter, and what is said when something is wrong.

use super::rig::{Connection, connect, connect_to, output, said, sockets, text};
use crate::support::WEIR;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};
use testkit::need_tool;

fn lines(args: &[&str]) -> Vec<String> {
    text(sockets(args)).lines().map(str::to_owned).collect()
}

/// The cells of a table's line: columns are two spaces apart at least.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[track_caller]
fn fails(args: &[&str], code: i32, says: &[&str]) -> Output {
    let output = output(sockets(args));
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    for text in says {
        assert!(said(&output).contains(text), "no {text:?} in: {}", said(&output));
    }
    assert!(output.stdout.is_empty());
    output
}

#[track_caller]
fn shows(connection: &Connection, near: &str, far: &str) {
    let lines = lines(&[&connection.filter(), "--columns", "state,local,peer"]);
    let wanted = [["ESTAB", near, far], ["ESTAB", far, near]];
    assert_eq!(cells(&lines[0]), ["STATE", "LOCAL", "PEER"]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in wanted {
        assert!(lines.iter().any(|found| cells(found) == line), "no {line:?} in {lines:?}");
    }
}

#[test]
fn connections_of_both_families_and_of_one_listener_for_both() {
    let v4 = connect("127.0.0.1:0");
    shows(&v4, &v4.near_address().to_string(), &v4.far_address().to_string());
    let v6 = connect("[::1]:0");
    shows(&v6, &v6.near_address().to_string(), &v6.far_address().to_string());
    let both = TcpListener::bind("[::]:0").unwrap();
    let port = both.local_addr().unwrap().port();
    let mapped = connect_to(&both, SocketAddr::from(([127, 0, 0, 1], port)));
    let lines = lines(&[&mapped.filter(), "--columns", "local,peer"]);
    // The client's socket is of IPv4, the accepted one of IPv6.
    let near = mapped.near_address();
    assert!(
        lines
            .iter()
            .any(|line| cells(line) == [near.to_string(), mapped.far_address().to_string()])
    );
    let accepted =
        [format!("[::ffff:127.0.0.1]:{port}"), format!("[::ffff:127.0.0.1]:{}", near.port())];
    assert!(lines.iter().any(|line| cells(line) == accepted), "{lines:?}");
}

#[test]
fn queues_and_processes_are_those_of_this_test() {
    let mut connection = connect("127.0.0.1:0");
    connection.near.write_all(&[0; 5_000]).unwrap();
    let at = connection.far_address().port().to_string();
    let filter = format!("sport = :{at}");
    let output = output(sockets(&[
        "state",
        "established",
        &filter,
        "-p",
        "--columns",
        "recv_q,send_q,process",
    ]));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let pid = std::process::id();
    let line = text.lines().nth(1).unwrap();
    assert!(line.contains("4.9 KiB") && line.contains(&format!("({pid})")), "{text}");
    assert!(said(&output).contains("1 socket"), "{}", said(&output));
}

#[test]
fn listeners_and_how_many_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let waiting = std::net::TcpStream::connect(at).unwrap();
    let port = format!("sport = :{}", at.port());
    let listed = lines(&["--listening", &port]);
    assert_eq!(cells(&listed[0])[..3], ["LOCAL", "WAITING", "BACKLOG"], "{listed:?}");
    assert_eq!(cells(&listed[1])[..2], [at.to_string(), "1".to_owned()], "{listed:?}");
    assert_eq!(listed.len(), 2, "{listed:?}");
    // Without --listening it is not shown, with --all it is.
    assert_eq!(
        lines(&[&format!("src {at} and not dst {}", waiting.local_addr().unwrap())]).len(),
        1
    );
    assert!(lines(&["--all", &port]).iter().any(|line| line.starts_with("LISTEN")));
    let v6 = TcpListener::bind("[::]:0").unwrap();
    let port = v6.local_addr().unwrap().port();
    assert!(lines(&["-l", &format!("sport = :{port}")])[1].starts_with(&format!("*:{port} ")));
}

#[test]
fn rows_are_sorted_as_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let _held: Vec<_> = (0..5).map(|_| connect_to(&listener, at)).collect();
    let filter = format!("dport = :{}", at.port());
    let ports = |sort: &str| -> Vec<u16> {
        let rows = lines(&[&filter, "--columns", "src_port", "--sort", sort]);
        rows.iter().skip(1).map(|line| line.trim().parse().unwrap()).collect()
    };
    let up = ports("local");
    assert!(up.len() == 5 && up.is_sorted(), "{up:?}");
    let mut down = ports("src_port,desc");
    down.reverse();
    assert_eq!(up, down);
}

#[test]
fn lines_fit_the_width_and_say_what_had_no_room() {
    let connection = connect("[::1]:0");
    let mut command = sockets(&[&connection.filter()]);
    let output = output_of(command.env("COLUMNS", "60"));
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(table.lines().count() == 3, "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 60), "{table}");
    for address in [connection.near_address(), connection.far_address()] {
        assert!(table.contains(&format!(":{} ", address.port())), "{table}");
    }
    assert!(said(&output).contains("no room for"), "{}", said(&output));
}

fn output_of(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn an_unknown_word_gets_a_caret_and_the_nearest_one() {
    fails(
        &["state", "established", "dprt", "=", ":443"],
        64,
        &["  state established dprt = :443\n", "\n                    ^^^^", "`dport`"],
    );
    fails(&["( dport = :443"], 64, &["( dport = :443", "^"]);
    fails(&["dev nosuchdevice"], 64, &["nosuchdevice", "^"]);
}

#[test]
fn a_word_that_nobody_can_answer_here_gets_a_caret() {
    fails(&["age > 1s"], 64, &["  age > 1s\n  ^^^", "--watch"]);
    fails(&["dport = :443 or not age < 1s"], 64, &["\n                      ^^^\n"]);
    fails(&["--listening", "age > 1s"], 64, &["^^^"]);
    fails(&["--closed", "process = sh"], 64, &["^^^^^^^", "without --closed"]);
    let words = ["netns", "unit", "pod", "container", "process", "age > 1s and dev"];
    for filter in words.map(|word| format!("{word} = lo")) {
        // The filter is read before the file.
        fails(&["--read", "/nonexistent/file", &filter], 64, &["^^^", "not"]);
    }
    fails(&["--read", "/nonexistent/file", "cgroup = *"], 64, &["^^^^^^", "capture"]);
    fails(
        &["--read", "/nonexistent/file", "uid = 0 and rtt > 1s and dev = 2"],
        66,
        &["nonexistent"],
    );
}

#[test]
fn other_mistakes_say_what_would_be_right() {
    fails(&["--columns", "local,retran"], 64, &["`retran`", "`retrans`"]);
    fails(&["--format", "xml"], 64, &["jsonl"]);
    fails(&["--sort", "rtt,down"], 64, &["desc"]);
    fails(&["--sort", "rtt", "--json"], 64, &["--sort"]);
    fails(&["--watch", "5"], 64, &["5s"]);
    fails(&["--count", "5"], 64, &["--watch"]);
    fails(&["--closed", "--listening"], 64, &["--listening"]);
    fails(&["--read", "/nonexistent/file"], 66, &["/nonexistent/file"]);
    fails(&["--read", WEIR], 66, &["not a capture"]);
    fails(&["--receive", "127.0.0.1:0", "dport = :1"], 64, &["filter"]);
    fails(&["--helper", "/nonexistent/helper.sock"], 69, &["/nonexistent/helper.sock"]);
}

#[test]
fn explain_says_which_part_runs_where() {
    let lines = lines(&["--explain", "state established and dport = :443 and rtt > 100ms"]);
    assert!(
        lines.iter().any(|line| line.starts_with("kernel") && line.contains("dport = :443")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("weir") && line.contains("rtt > 100ms")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("kernel") && line.contains("established")),
        "{lines:?}"
    );
}

#[test]
fn what_the_filter_leaves_out_here_is_counted() {
    let connection = connect("127.0.0.1:0");
    let filter = format!("( {} ) and rtt > 1h", connection.filter());
    let output = output(sockets(&[&filter]));
    assert!(
        said(&output).contains("0 sockets, 2 more left out by the filter here"),
        "{}",
        said(&output)
    );
}

#[test]
fn columns_help_lists_columns_and_fields() {
    let help = text(sockets(&["--columns", "help"]));
    for name in
        ["local", "limited", "retrans/s", "rtt_us", "delivery_rate_bytes_per_sec", "cgroup_path"]
    {
        assert!(help.lines().any(|line| line.starts_with(&format!("  {name} "))), "{name}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for args in [
        &["--all", "--format", "jsonl"][..],
        &["--watch", "10ms"],
        &["--closed"],
        &["--columns", "help"],
    ] {
        let mut command = sockets(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        if args == ["--closed"] {
            // It notices with the next close; without one, with the signal.
            drop(connect("127.0.0.1:0"));
        }
        let mut status = None;
        for _ in 0..600 {
            status = child.try_wait().unwrap();
            if status.is_some() {
                break;
            }
            drop(connect("127.0.0.1:0"));
            std::thread::park_timeout(std::time::Duration::from_millis(100));
        }
        child.kill().ok();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(status.and_then(|status| status.code()), Some(0), "{args:?}: {said}");
        assert!(!said.contains("Broken pipe") && !said.contains("panicked"), "{said}");
    }
}

/// Runs it with a terminal as standard output, and returns what the terminal got.
fn on_terminal(args: &str, variables: &[(&str, &str)]) -> Option<(i32, String)> {
    if !need_tool("script") {
        return None;
    }
    let mut command = Command::new("script");
    command.args(["-qec", &format!("stty cols 200 rows 10; {WEIR} sockets {args}"), "/dev/null"]);
    command.env_remove("COLUMNS").env_remove("NO_COLOR").env("TERM", "xterm");
    let output = command.envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap();
    Some((output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap()))
}

#[test]
fn a_terminal_gets_colors_and_no_binary() {
    let Some((code, text)) = on_terminal("-l", &[]) else { return };
    assert!(code == 0 && text.contains("\x1b[1mLOCAL"), "{text}");
    for (args, variables) in
        [("-l", [("NO_COLOR", "1")]), ("-l", [("TERM", "dumb")]), ("-l --color never", [("A", "")])]
    {
        let (_, text) = on_terminal(args, &variables).unwrap();
        assert!(text.contains("LOCAL") && !text.contains('\x1b'), "{text}");
    }
    assert!(lines(&["-l", "--color", "always"])[0].contains("\x1b[1m"));
    for format in ["protobuf", "msgpack"] {
        let (code, text) = on_terminal(&format!("--format {format}"), &[]).unwrap();
        assert!(code == 64 && text.contains("is not text"), "{code}: {text}");
    }
}

#[test]
fn on_a_terminal_watch_draws_over_what_was_there_and_fits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let _held: Vec<_> = (0..20).map(|_| connect_to(&listener, at)).collect();
    let args = format!("--watch 50ms --count 3 'dport = :{}'", at.port());
    let Some((code, text)) = on_terminal(&args, &[]) else { return };
    assert_eq!(code, 0, "{text}");
    let screens: Vec<_> = text.split("\x1b[H\x1b[J").skip(1).collect();
    assert_eq!(screens.len(), 3, "{text}");
    for screen in screens {
        assert!(
            screen.lines().count() <= 9 && screen.contains("20 sockets; 13 more do not fit"),
            "{screen}"
        );
    }
}
