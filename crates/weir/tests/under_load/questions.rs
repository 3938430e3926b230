//! What the questions of strangers cost: the worst statements, two at a time, while datagrams are relayed.

use crate::support::{Generator, Place, Weir};
use ledger::{HopKind, HopSnapshot, Snapshot};
use record::{ChunkBuilder, SocketRecord};
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::{TempDir, receiver, say, wait_for};

/// Of `daemon/query.rs`.
const TIME_MAX: Duration = Duration::from_secs(5);
/// How late a question may end.
const LATE_MAX: Duration = Duration::from_secs(1);
/// How much the daemon may grow by them.
const GROWTH_KIB_MAX: u64 = 8 << 10;

const NUMBERS: &str = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)";
const LONG: &str = "(SELECT hex(zeroblob(130000)) AS a, hex(zeroblob(65000)) AS b)";

/// Statements that take as much as they can, each in another way.
fn worst() -> Vec<String> {
    let many = |count: usize, of: &dyn Fn(usize) -> String, between: &str| {
        (0..count).map(of).collect::<Vec<_>>().join(between)
    };
    vec![
        // Aggregates that grow.
        format!("{NUMBERS} SELECT json_group_array(hex(zeroblob(100000)) || x) FROM n"),
        format!("{NUMBERS} SELECT json_group_object(x, hex(zeroblob(100000))) FROM n"),
        format!("{NUMBERS} SELECT json_group_array(hex(zeroblob(100000))), json_group_array(hex(zeroblob(100000))), \
                 json_group_array(hex(zeroblob(100000))), json_group_array(x) FROM n"),
        format!("{NUMBERS} SELECT group_concat(hex(zeroblob(100000))) FROM n"),
        format!("{NUMBERS} SELECT count(DISTINCT x || hex(zeroblob(1000))) FROM n"),
        // One instruction after the other, without a look at the clock.
        format!("SELECT {} FROM {LONG}", many(100, &|at| format!("instr(a, b || {at})"), " + ")),
        format!(
            "SELECT {} FROM {LONG}",
            many(100, &|at| format!("length(replace(a, substr(b, {at}, 60000) || '1', ''))"), " + ")
        ),
        format!("SELECT {} FROM {LONG}", many(100, &|at| format!("(a LIKE '%0%0%0%0%0%0%{at}x%')"), " + ")),
        format!("SELECT {} FROM {LONG}", many(100, &|at| format!("(a GLOB '*0*0*0*0*{at}x*')"), " + ")),
        // Recursion, and what keeps every row.
        format!("{NUMBERS} SELECT max(x) FROM n"),
        format!("{NUMBERS} SELECT x, hex(randomblob(50000)) AS r FROM n ORDER BY r"),
        "WITH RECURSIVE n(x) AS (SELECT '1' UNION SELECT x || hex(randomblob(100)) FROM n) SELECT count(*) FROM n".to_owned(),
        // Joins of everything.
        "SELECT count(*) FROM sockets a, sockets b, sockets c, sockets d".to_owned(),
        "SELECT a.*, b.* FROM sockets a, sockets b, sockets_minute c ORDER BY a.rtt_us * b.rtt_us DESC".to_owned(),
        "SELECT count(*) FROM sockets a NATURAL JOIN sockets b NATURAL JOIN sockets c".to_owned(),
        // Long lists, deep expressions, wide answers.
        format!("{NUMBERS} SELECT count(*) FROM n WHERE x IN ({})", many(1_200, &|at| (at * 7).to_string(), ",")),
        format!("SELECT {}1{}", "abs(".repeat(150), ")".repeat(150)) + &format!(
            " FROM (SELECT 1 FROM sockets a, sockets b, sockets c) WHERE {}",
            many(180, &|at| format!("random() = {at}"), " OR ")
        ),
        format!("{NUMBERS} SELECT {} FROM n", many(100, &|_| "zeroblob(200000)".to_owned(), ", ")),
        format!("{NUMBERS} SELECT printf('%.*c', 250000, 'x') AS p FROM n ORDER BY p || x"),
        // Windows, over rows that are all kept.
        format!("{NUMBERS} SELECT sum(x) OVER (ORDER BY x DESC), ntile(7) OVER (ORDER BY hex(zeroblob(1000)) || x) FROM n"),
        format!("{NUMBERS} SELECT quantile(x, 0.5), sum(length(sketch_merge)) FROM (SELECT x, (SELECT sketch_merge(rtt) FROM sockets_minute) \
                 AS sketch_merge FROM n)"),
        "SELECT max(key) FROM (SELECT * FROM json_tree('[' || replace(hex(zeroblob(60000)), '0', '0,') || '0]') a, json_tree('[1,2,3]') b, \
         json_tree('[1,2,3]') c, json_tree('[1,2,3]') d)".to_owned(),
    ]
}

fn fill(folder: &Path) {
    let options = store::Options {
        folder: folder.to_owned(),
        keep_age: None,
        keep_bytes: None,
        segment_age: Duration::from_secs(3_600),
        keys_max: 100,
    };
    let mut writer = store::Writer::open(options).unwrap();
    let now = sys::clock::realtime_ns();
    for poll in 0..20 {
        let mut builder = ChunkBuilder::new(1, [0; 16]);
        for cookie in 0..500_u64 {
            builder.record(&SocketRecord {
                time_unix_ns: Some(now - poll * 1_000_000_000),
                cookie: Some(cookie),
                dst_address: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, cookie as u8))),
                rtt_us: Some(cookie as u32),
                ..SocketRecord::default()
            });
        }
        let chunk = builder.cut(None).unwrap();
        writer
            .insert(chunk.rows().map(|row| (row.kind, row.bytes)), sys::clock::Now::read())
            .unwrap();
        if poll == 10 {
            writer.seal_all().unwrap();
        }
    }
}

/// An answer, or a refusal.
struct Response {
    status: u16,
    body: String,
    time: Duration,
}

fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b' ' => "+".to_owned(),
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'(' | b')' | b',' | b'*' | b'.' | b'_' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn connect(admin: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!("GET {path} HTTP/1.0\r\nHost: {admin}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Asks, and measures how long the answer took. What this thread and those of the daemon that answer waited for a processor, which they have to
/// share with other tests, does not count.
fn ask_daemon(pid: u32, admin: SocketAddr, path: &str) -> Response {
    let waited = || {
        waited_for_processor(pid) + sys::process::waited_ns(sys::process::thread_id()).unwrap_or(0)
    };
    let before_ns = waited();
    let response = ask(admin, path);
    let waited = Duration::from_nanos(waited().saturating_sub(before_ns));
    Response { time: response.time.saturating_sub(waited), ..response }
}

/// What the threads of a process that answer requests waited for a processor so far, in nanoseconds.
fn waited_for_processor(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let read = |task: &fs::DirEntry, name: &str| {
        fs::read_to_string(task.path().join(name)).unwrap_or_default()
    };
    let answers = |task: &fs::DirEntry| {
        let name = read(task, "comm");
        name.starts_with("admin") || name.starts_with("tokio")
    };
    let waited = |task: fs::DirEntry| {
        let text = read(&task, "schedstat");
        text.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
    };
    tasks.filter(answers).map(waited).sum()
}

fn ask(admin: SocketAddr, path: &str) -> Response {
    let began = Instant::now();
    let mut text = Vec::new();
    connect(admin, path).read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    Response { status, body: body.to_owned(), time: began.elapsed() }
}

fn sql(statement: &str) -> String {
    format!("/query?sql={}", encoded(statement))
}

/// A daemon with a store, and one listener whose datagrams are relayed.
fn start(dir: &TempDir, target: &str) -> Weir {
    fill(&dir.file("history"));
    let text = format!(
        "[sockets]\ninterval = \"60s\"\nnamespaces = \"own\"\n\
         [[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\nring_size = \"1MiB\"\nreceive_buffer = \"64MiB\"\n\
         [[listener.target]]\nname = \"out\"\nto = \"{target}\"\n\
         [[sink]]\nname = \"history\"\nfrom = [\"sockets\"]\nto = \"store:{}\"\n",
        dir.text("history")
    );
    fs::write(dir.file("weir.toml"), text).unwrap();
    Weir::run(&dir.file("weir.toml"))
}

/// Datagrams of the listener that were lost at any hop before the receiver.
fn lost(ledger: &Snapshot) -> u64 {
    let of_relay = |hop: &&HopSnapshot| hop.hop != HopKind::Sink && hop.origin == "in";
    ledger.hops.iter().filter(of_relay).map(|hop| hop.dropped_total().count).sum()
}

fn delivered(weir: &Weir) -> u64 {
    let ledger = weir.ledger();
    ledger.hop(HopKind::Receive, "in", None).map_or(0, |hop| hop.delivered.count)
}

/// Datagrams a second that the relay takes while a generator sends as many as it can.
fn capacity_per_sec(weir: &Weir) -> u64 {
    let time = Duration::from_secs(2);
    let load = ["--rate", "max", "--duration", "2s"];
    let before = delivered(weir);
    Generator::start(&Place::Here, weir.listen(), &load).finish();
    wait_for("the relay to be idle", || {
        weir.ledger().hops.iter().all(|hop| hop.in_flight.is_zero()).then_some(())
    });
    (delivered(weir) - before) / time.as_secs()
}

/// The most memory that a process had, looked at until it is told to end.
fn most_resident_bytes(pid: u32, ends: &AtomicBool) -> u64 {
    let mut most = 0;
    while !ends.load(Ordering::Acquire) {
        let pages = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        most = most.max(pages.unwrap() * 4_096);
        thread::park_timeout(Duration::from_millis(5));
    }
    most
}

/// Ends a thread that looks at a flag, even where its test fails.
struct SetAtDrop<'f>(&'f AtomicBool);

impl Drop for SetAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The refusal says what to do; an answer is one.
fn check(statement: &str, response: &Response) {
    let Response { status, body, time } = response;
    let is_answer = *status == 200 && body.ends_with("}\n");
    assert!(is_answer || body.contains("Fix: "), "{statement}: {status} {body} after {time:?}");
    assert!(*time <= TIME_MAX + LATE_MAX, "{statement}: {time:?}");
}

/// Times are measured: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn the_worst_statements_cost_the_daemon_nothing_and_its_datagrams_neither() {
    let _alone = alone();
    let dir = TempDir::new();
    let (sink, address) = receiver();
    // Its buffer holds what arrives while this thread has no processor.
    sys::socket::set_receive_buffer(sink.as_fd(), 64 << 20).unwrap();
    let reader = Reader::start(sink);
    let weir = start(&dir, &address);
    let half = capacity_per_sec(&weir) / 2;
    // What the flood cost is not what the questions cost.
    assert_eq!(ask(weir.admin, "/query/losses").status, 200);
    let (lost_before, before_kib) = (lost(&weir.ledger()), weir.resident_kib());
    let rate = half.to_string();
    let load = ["--rate", &rate, "--duration", "0s"];
    let generator = Generator::start(&Place::Here, weir.listen(), &load);

    let statements = worst();
    assert!(statements.len() >= 20);
    let ends = AtomicBool::new(false);
    let (pid, admin) = (weir.pid(), weir.admin);
    let most_kib = thread::scope(|scope| {
        let growth = scope.spawn(|| most_resident_bytes(pid, &ends) / 1_024);
        let end = SetAtDrop(&ends);
        for pair in statements.chunks(2) {
            let asked: Vec<_> = pair
                .iter()
                .map(|statement| {
                    (statement, scope.spawn(move || ask_daemon(pid, admin, &sql(statement))))
                })
                .collect();
            // The third asker, when the two have their turns.
            wait_for("both to have a process, or to have ended", || {
                let has_ended = asked.iter().any(|(_, asked)| asked.is_finished());
                (has_ended || children(pid) == asked.len()).then_some(())
            });
            let third = ask_daemon(pid, admin, "/query/losses?since=1h");
            assert!(third.time <= TIME_MAX + LATE_MAX, "{:?} {}", third.time, third.body);
            assert!([200, 503].contains(&third.status), "{}", third.body);
            for (statement, asked) in asked {
                let response = asked.join().unwrap();
                let short: String = statement.chars().take(100).collect();
                say(&format!(
                    "{:?} {} {short}: {}",
                    response.time,
                    response.status,
                    first(&response.body)
                ));
                check(&short, &response);
            }
        }
        drop(end);
        growth.join().unwrap()
    });

    generator.0.signal("TERM");
    let sent = generator.finish();
    wait_for("the rest of the datagrams", || {
        weir.ledger().hops.iter().all(|hop| hop.in_flight.is_zero()).then_some(())
    });
    let grown_kib = most_kib.saturating_sub(before_kib);
    say(&format!(
        "{half} datagrams/s, {} sent; grown by {grown_kib} KiB from {before_kib}",
        sent.all()
    ));
    assert_eq!(lost(&weir.ledger()), lost_before);
    assert!(grown_kib <= GROWTH_KIB_MAX, "{grown_kib} KiB");
    // No process is left behind.
    assert_eq!(children(weir.pid()), 0);
    assert_eq!(weir.stop().code, Some(0));
    assert!(reader.finish() > 0);
}

/// Takes what arrives at a socket.
struct Reader {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Reader {
    fn start(socket: UdpSocket) -> Reader {
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let (mut taken, mut buffer) = (0, [0; 2_048]);
            while !flag.load(Ordering::Acquire) {
                taken += u64::from(socket.recv(&mut buffer).is_ok());
            }
            taken
        });
        Reader { ends, thread }
    }

    fn finish(self) -> u64 {
        self.ends.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

fn first(body: &str) -> String {
    body.chars().take(120).collect::<String>().replace('\n', " ")
}

fn children(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        text.split_whitespace().count()
    };
    tasks.map(|task| of(task.unwrap())).sum()
}

#[test]
fn a_client_that_leaves_frees_its_place_at_once() {
    let _alone = alone();
    let dir = TempDir::new();
    let weir = start(&dir, "null:");
    let endless = sql(&format!("{NUMBERS} SELECT max(x) FROM n"));
    let clients: Vec<_> = (0..2).map(|_| connect(weir.admin, &endless)).collect();
    wait_for("both to have a process", || (children(weir.pid()) == 2).then_some(()));

    let began = Instant::now();
    drop(clients);
    assert_eq!(ask(weir.admin, "/query/losses").status, 200);
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    wait_for("no process to be left", || (children(weir.pid()) == 0).then_some(()));
}

#[test]
fn a_client_that_takes_nothing_does_not_keep_its_place() {
    let _alone = alone();
    let dir = TempDir::new();
    let weir = start(&dir, "null:");
    let large = sql(&format!("{NUMBERS} SELECT hex(zeroblob(50000)) FROM n LIMIT 80"));
    let _clients: Vec<_> = (0..2).map(|_| connect(weir.admin, &large)).collect();
    wait_for("both to have a process", || (children(weir.pid()) == 2).then_some(()));
    // The first of these may be told that it waited in vain.
    wait_for("a place", || (ask(weir.admin, "/query/losses").status == 200).then_some(()));
    wait_for("no process to be left", || (children(weir.pid()) == 0).then_some(()));
}
