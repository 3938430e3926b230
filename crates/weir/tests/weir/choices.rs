//! What filters say of sockets and of connections that have ended, by the daemon and by the command: the same table that the
//! collector is held to.

#[path = "../../../sockets/tests/sockets/choices/cases.rs"]
mod cases;
#[path = "../../../sockets/tests/sockets/choices/scene.rs"]
mod scene;
use crate::support::{WEIR, Weir, hop};
use cases::{BY_NAMESPACE, CASES};
use ledger::{HopKind, Reason};
use scene::{Ends, SUBJECTS, Subject};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use sys::namespace::{Home, OpenNamespace};
use testkit::{Netns, Peer, TempDir, need_root_netns, signal, wait_for};

/// Filters that are tried at once: a process each.
const BATCH: usize = 20;
/// Clients of a scene in two namespaces.
const CLIENTS: usize = 2 * SUBJECTS.len();

/// A filter and its answers in the own namespace and in the other.
struct Case {
    filter: String,
    answers: [&'static str; 2],
}

/// Two namespaces of a batch, with a listener in each.
struct Spaces {
    netns: [Netns; 2],
    listeners: [TcpListener; 2],
}

fn inside<R: Send>(netns: &Netns, f: impl FnOnce() -> R + Send) -> R {
    let open = OpenNamespace::open(format!("/run/netns/{}", netns.name).as_ref()).unwrap();
    Home::remember().unwrap().enter(&open, f).unwrap()
}

impl Spaces {
    fn new() -> Spaces {
        let netns = [Netns::new(), Netns::new()];
        let listeners = [0, 1].map(|at| inside(&netns[at], scene::listen));
        Spaces { netns, listeners }
    }

    fn home(&self) -> &Netns {
        &self.netns[0]
    }

    fn open(&self, subjects: [Subject; 2]) -> Vec<Ends> {
        let of = |subject| {
            let places = self.netns.iter().zip(&self.listeners);
            places.map(move |(netns, listener)| inside(netns, || Ends::open(subject, listener)))
        };
        subjects.into_iter().flat_map(of).collect()
    }

    /// `weir sockets --closed` in the own namespace.
    fn follow(&self, filter: &str, kept: &str) -> Peer {
        let mut args = vec!["--closed", filter];
        args.extend((kept == "keep").then_some("--undecided"));
        inside(self.home(), || Peer::start(&mut sockets(self, &args)))
    }

    /// Cases in which names stand for those of this batch.
    fn fill_in(&self, cases: &[(&str, [&'static str; 2])]) -> Vec<Case> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let cgroup = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
        let fill =
            |text: &str| text.replace("{home}", &self.home().name).replace("{cgroup}", cgroup);
        cases.iter().map(|(text, answers)| Case { filter: fill(text), answers: *answers }).collect()
    }

    /// Whether there is a record of this kind of the client at the subject's port, in each namespace.
    fn has(&self, records: &[Value], kind: &str, subject: Subject) -> [bool; 2] {
        [0, 1].map(|at| {
            records.iter().any(|record| {
                record["record_kind"] == kind
                    && record["src_port"] == subject.port()
                    && record["netns_name"] == self.netns[at].name.as_str()
            })
        })
    }
}

/// All cases, in parts that are tried at once.
fn batches() -> Vec<Vec<(&'static str, [&'static str; 2])>> {
    let alike = CASES.iter().map(|&(filter, answers)| (filter, [answers, answers]));
    let own = BY_NAMESPACE.iter().map(|&(filter, own, other)| (filter, [own, other]));
    let all: Vec<_> = alike.chain(own).collect();
    all.chunks(BATCH).map(<[_]>::to_vec).collect()
}

/// Notes where the records differ from the answers; of what is undecided there are some if it is `kept`.
fn compare(
    spaces: &Spaces,
    case: &Case,
    columns: &[(usize, &str, Subject)],
    records: &[Value],
    kept: &str,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (column, kind, subject) in columns {
        for (at, found) in spaces.has(records, kind, *subject).into_iter().enumerate() {
            let answer = case.answers[at].as_bytes()[*column] as char;
            let expected = answer == 'Y' || (answer == '?' && kept == "keep");
            if found != expected {
                let Case { filter, .. } = case;
                wrong.push(format!(
                    "`{filter}` ({kept}) {subject:?} {kind} {at}: {found}, not {answer}"
                ));
            }
        }
    }
    wrong
}

const CLOSES: [(usize, &str, Subject); 4] = [
    (1, "close", Subject::PolledClose),
    (2, "close", Subject::PolledAbort),
    (3, "close", Subject::Close),
    (4, "close", Subject::Abort),
];
const POLLED: (usize, &str, Subject) = (0, "poll", Subject::PolledClose);

/// Each filter is tried with one of the two settings: those beside it have the other.
fn kept(at: usize, batch: usize) -> &'static str {
    if (at + batch).is_multiple_of(2) { "drop" } else { "keep" }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_daemon_tells_of_what_its_filter_lets_through() {
    if !need_root_netns() {
        return;
    }
    let mut wrong = Vec::new();
    for (number, batch) in batches().into_iter().enumerate() {
        let spaces = Spaces::new();
        let cases = spaces.fill_in(&batch);
        let polled = spaces.open([Subject::PolledClose, Subject::PolledAbort]);
        let home = spaces.home();
        let mut all = spaces.follow("", "drop");
        let runs: Vec<_> = (0..cases.len())
            .map(|at| {
                let dir = TempDir::new();
                let config = configuration(&spaces, &dir, &cases[at].filter, kept(at, number));
                (inside(home, || Weir::run(&config)), dir)
            })
            .collect();
        // Nobody asks them for a ledger: the end of a question's connection is an event too.
        runs.iter().map(|(weir, _)| weir.pid()).chain([all.0.id()]).for_each(wait_for_poll);
        polled.into_iter().for_each(Ends::close);
        spaces.open([Subject::Close, Subject::Abort]).into_iter().for_each(Ends::close);
        wait_for_clients(&mut all);
        for (at, (weir, dir)) in runs.into_iter().enumerate() {
            let ended = weir.stop();
            assert_eq!(ended.code, Some(0), "{}", ended.said);
            let closes = hop(&ended.ledger, HopKind::Close, "");
            let undecided = closes.dropped_for(Reason::Undecided).count;
            assert!(undecided == 0 || kept(at, number) == "drop", "{}", cases[at].filter);
            let records = lines(&fs::read_to_string(dir.file("out.jsonl")).unwrap());
            let columns = [&[POLLED][..], &CLOSES].concat();
            wrong.extend(compare(&spaces, &cases[at], &columns, &records, kept(at, number)));
        }
    }
    assert!(wrong.is_empty(), "{} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// One poll, at once.
fn configuration(spaces: &Spaces, dir: &TempDir, filter: &str, kept: &str) -> std::path::PathBuf {
    let [home, other] = &spaces.netns;
    let filter = if filter.is_empty() { String::new() } else { format!("filter = \"{filter}\"\n") };
    let text = format!(
        "[sockets]\ninterval = \"1h\"\nnamespaces = [\"{}\", \"{}\"]\nstates = [\"all\"]\n{filter}\
         closes_undecided = \"{kept}\"\n[[sink]]\nfrom = [\"sockets\"]\nname = \"disk\"\nto = \"file:{}\"\n",
        home.name,
        other.name,
        dir.text("out.jsonl")
    );
    let path = dir.file("weir.toml");
    fs::write(&path, text).unwrap();
    path
}

/// `weir sockets` in the own namespace of a batch, about both.
fn sockets(spaces: &Spaces, args: &[&str]) -> Command {
    let mut command = Command::new(WEIR);
    command.args(["sockets", "--format", "jsonl"]).args(args).stdin(Stdio::null());
    for netns in &spaces.netns {
        command.args(["--namespace", &netns.name]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn the_command_lists_and_follows_what_its_filter_lets_through() {
    if !need_root_netns() {
        return;
    }
    let mut wrong = Vec::new();
    for (number, batch) in batches().into_iter().enumerate() {
        let spaces = Spaces::new();
        let cases = spaces.fill_in(&batch);
        let polled = spaces.open([Subject::PolledClose, Subject::PolledAbort]);
        for case in &cases {
            wrong.extend(list(&spaces, case));
        }
        let mut all = spaces.follow("", "drop");
        let closed: Vec<_> = cases
            .iter()
            .enumerate()
            .map(|(at, case)| spaces.follow(&case.filter, kept(at, number)))
            .collect();
        closed.iter().chain([&all]).for_each(|peer| wait_for_poll(peer.0.id()));
        polled.into_iter().for_each(Ends::close);
        spaces.open([Subject::Close, Subject::Abort]).into_iter().for_each(Ends::close);
        wait_for_clients(&mut all);
        for (at, (case, mut peer)) in cases.iter().zip(closed).enumerate() {
            signal(&peer.0, "INT");
            let (mut text, mut said) = (String::new(), String::new());
            peer.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
            peer.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(peer.0.wait().unwrap().code(), Some(0), "{}: {said}", case.filter);
            let kept = kept(at, number);
            wrong.extend(compare(&spaces, case, &CLOSES, &lines(&text), kept));
            // Those of servers may be undecided where those of clients are not.
            let is_undecided = case.answers.iter().any(|answers| answers[1..].contains('?'));
            let is_said = said.contains("--undecided");
            assert!(is_said || !is_undecided || kept == "keep", "{}: {said}", case.filter);
            assert!(!is_said || kept == "drop", "{}: {said}", case.filter);
        }
    }
    assert!(wrong.is_empty(), "{} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// What one list says; it remembers nothing, and refuses `age`.
fn list(spaces: &Spaces, case: &Case) -> Vec<String> {
    let output = inside(spaces.home(), || sockets(spaces, &[&case.filter]).output().unwrap());
    let said = String::from_utf8_lossy(&output.stderr);
    if case.filter.contains("age ") {
        assert_eq!(output.status.code(), Some(64), "{}: {said}", case.filter);
        assert!(said.contains("^^^") && said.contains("--watch"), "{said}");
        return Vec::new();
    }
    assert_eq!(output.status.code(), Some(0), "{}: {said}", case.filter);
    let records = lines(&String::from_utf8(output.stdout).unwrap());
    compare(spaces, case, &[POLLED], &records, "drop")
}

/// Waits until this one, which has no filter and began to listen before all others, has shown the end of every client. The kernel
/// tells of a close whoever began to listen last first (`sk_add_bind_node`), so that all have heard of it then; and they take what
/// has come before they stop.
fn wait_for_clients(all: &mut Peer) {
    let shown = BufReader::new(all.0.stdout.take().unwrap()).lines();
    let records = shown.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let ports = SUBJECTS.map(Subject::port);
    let of_clients = records.filter(|record| ports.iter().any(|port| record["src_port"] == *port));
    assert_eq!(of_clients.take(CLIENTS).count(), CLIENTS);
}

/// Waits until the collector of a process waits for events, which it does after its first poll only.
fn wait_for_poll(pid: u32) {
    // `poll`, `ppoll`: where there is no other, the C library calls that.
    const CALLS: &[&str] = if cfg!(target_arch = "x86_64") { &["7", "271"] } else { &["73"] };
    let is_waiting = |task: &std::path::Path| {
        let is_it = fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "sockets\n");
        let call = fs::read_to_string(task.join("syscall")).unwrap_or_default();
        is_it && CALLS.contains(&call.split(' ').next().unwrap_or_default())
    };
    wait_for(
        || format!("process {pid} does not wait for events"),
        || {
            let mut tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
            tasks.any(|task| is_waiting(&task.path())).then_some(())
        },
    );
}
