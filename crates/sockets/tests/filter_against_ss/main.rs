//! Compares the filter language with `ss` itself: on a fixed set of sockets, every expression must select the same ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;
mod scene;

use scene::{Scene, need_root_and_ss};
use sockets::filter::{Facts, Filter, SystemNames, Target};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;
use sys::netlink::{DUMP_BUFFER_BYTES, Protocol, Socket};
use wire::inet_diag::bytecode::Operations;
use wire::inet_diag::{Extensions, Family, Kind, Request, SocketMessage, State, States, decode};
use wire::netlink::{Messages, NLMSG_DONE, NLMSG_ERROR, done_status, error_of};

type Cookies = BTreeSet<u64>;

#[test]
fn every_expression_gives_the_sockets_that_ss_gives() {
    if !need_root_and_ss() {
        return;
    }
    let scene = Scene::new();
    let mut cases: Vec<String> = cases::SAME.iter().map(|case| scene.fill_in(case)).collect();
    // A program of 9 kB: `yes` jumps at most 252 bytes, so this one needs far jumps.
    let many: Vec<String> =
        (1..=250).map(|last| format!("src 127.0.0.{last} or dst [::{last:x}]")).collect();
    cases.push(format!("( {} ) and sport > :8001", many.join(" or ")));
    cases.push(format!("not ( {} ) and sport > :8001", many.join(" or ")));
    assert!(cases.len() >= 60, "{} expressions", cases.len());
    let mut wrong = Vec::new();
    let (mut some, mut in_kernel) = (0, 0);
    for expression in &cases {
        let theirs = scene.ss(expression, true);
        let (ours, left) = ours(&scene, expression, Operations::ALL);
        some += usize::from(!theirs.is_empty());
        in_kernel += usize::from(left.is_empty());
        if ours != theirs {
            wrong.push(scene.difference(expression, &ours, &theirs));
        }
        let (basic, _) = self::ours(
            &scene,
            expression,
            Operations { cgroup: true, mark: true, ..Operations::BASIC },
        );
        assert_eq!(basic, ours, "{expression} without port equality");
        // Interface names are resolved by `compile`, and only the kernel knows who chose a port.
        let filter = Filter::parse(expression).unwrap();
        if !filter.depends_on_namespace() && !expression.contains("autobound") {
            assert_eq!(whole(&scene, &filter), ours, "{expression} evaluated here");
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    assert!(
        some * 10 >= cases.len() * 8,
        "only {some} of {} expressions give any socket",
        cases.len()
    );
    assert!(
        in_kernel >= cases.len() - 2,
        "only {in_kernel} of {} ran in the kernel alone",
        cases.len()
    );
}

#[test]
fn without_states_the_same_ones_are_shown() {
    if !need_root_and_ss() {
        return;
    }
    let scene = Scene::new();
    for expression in ["", "src 127.0.0.0/8", "sport >= :8001", "state bucket", "state listening"] {
        let theirs = scene.ss(expression, false);
        let ours =
            scene.inside(|| dump(&Filter::parse(expression).unwrap(), &Target::new(&SystemNames)));
        assert_eq!(ours, theirs, "{expression}");
        assert!(!ours.is_empty(), "{expression}");
    }
}

/// Known differences between `ss` and us, with what is right. The third column says why.
#[test]
fn differences_from_ss_are_known() {
    if !need_root_and_ss() {
        return;
    }
    let scene = Scene::new();
    for (expression, means, reason) in cases::DIFFERENT {
        let (expression, means) = (scene.fill_in(expression), scene.fill_in(means));
        let theirs = scene.ss(&expression, true);
        let (found, _) = ours(&scene, &expression, Operations::ALL);
        assert_ne!(found, theirs, "{expression}: no difference any more ({reason})");
        assert_eq!(found, ours(&scene, &means, Operations::ALL).0, "{expression}: {reason}");
        assert!(!found.is_empty(), "{expression}");
    }
}

/// Our own words do not change the meaning of the kernel's part: the split filter selects what the whole one does.
#[test]
fn the_split_gives_what_the_whole_gives() {
    if !need_root_and_ss() {
        return;
    }
    let scene = Scene::new();
    for expression in cases::OWN {
        let filter = Filter::parse(expression).unwrap();
        let split = scene.inside(|| dump(&filter, &target(Operations::ALL)));
        let all = whole(&scene, &filter);
        assert_eq!(split, all, "{expression}");
        assert!(!split.is_empty(), "{expression}");
    }
}

/// The sockets that pass when no part of the filter is in the request.
fn whole(scene: &Scene, filter: &Filter) -> Cookies {
    let states = States::ALL - State::BoundInactive.into();
    scene.inside(|| collect(states, &[], &|message| filter.matches(message, &Facts::default())))
}

/// A target with all the operations that this process has the privilege for.
fn target(operations: Operations) -> Target<'static> {
    // `ss` of iproute2 6.1 does not know bound sockets.
    let default_states = States::ALL - State::BoundInactive.into();
    Target { operations, default_states, ..Target::new(&SystemNames) }
}

fn ours(scene: &Scene, expression: &str, operations: Operations) -> (Cookies, String) {
    let filter = Filter::parse(expression).unwrap_or_else(|error| panic!("{error}"));
    scene.inside(|| {
        let target = target(operations);
        let left = filter.compile(&target).rest.map_or(String::new(), |rest| rest.to_string());
        (dump(&filter, &target), left)
    })
}

fn dump(filter: &Filter, target: &Target<'_>) -> Cookies {
    let compiled = filter.compile(target);
    // In later versions of ss than the one at hand, the names of its groups include bound sockets.
    let states = compiled.states - State::BoundInactive.into();
    collect(states, &compiled.bytecode, &|message| compiled.matches(message, &Facts::default()))
}

/// One walk for both families and one walk per family must list the same sockets, each once.
fn collect(states: States, bytecode: &[u8], keep: &dyn Fn(&SocketMessage<'_>) -> bool) -> Cookies {
    let both = walk(&[Kind::Both], states, bytecode, keep);
    let each =
        walk(&[Kind::Family(Family::Inet), Kind::Family(Family::Inet6)], states, bytecode, keep);
    assert_eq!(both, each);
    both
}

fn walk(
    kinds: &[Kind],
    states: States,
    bytecode: &[u8],
    keep: &dyn Fn(&SocketMessage<'_>) -> bool,
) -> Cookies {
    let mut found = Cookies::new();
    for kind in kinds {
        let socket = Socket::open(Protocol::SockDiag).unwrap();
        socket.set_receive_timeout(Duration::from_secs(10)).unwrap();
        let mut request = Vec::new();
        let extensions = Extensions::ALL;
        Request { kind: *kind, states, extensions, bytecode, ..Request::dump(7) }
            .encode(&mut request);
        socket.send(&request).unwrap();
        let mut buffer = vec![0; DUMP_BUFFER_BYTES];
        let mut ended = false;
        while !ended {
            let datagram = socket.receive(&mut buffer).unwrap();
            assert!(datagram.is_whole_and_from_the_kernel());
            for message in Messages::new(datagram.bytes) {
                let message = message.unwrap();
                match message.kind {
                    NLMSG_DONE => ended = done_status(message.body).unwrap() == 0,
                    NLMSG_ERROR => {
                        panic!("the kernel refuses: {}", error_of(message.body).unwrap())
                    }
                    _ => {
                        let socket = decode(message.body).unwrap();
                        if keep(&socket) {
                            assert!(found.insert(socket.id.cookie), "a socket came twice");
                        }
                    }
                }
            }
        }
    }
    found
}

impl Scene {
    /// The cookies that `ss` prints for a filter, with every state (`-a`) or with its default ones.
    fn ss(&self, filter: &str, every_state: bool) -> Cookies {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).args(["ss", "-tnHOe"]);
        if every_state {
            command.arg("-a");
        }
        let output = command.args(filter.split_whitespace()).output().unwrap();
        // ss complains about a socket whose cgroup is gone, but still shows it.
        let errors = String::from_utf8_lossy(&output.stderr);
        let error = errors.lines().find(|line| *line != "Failed to open cgroup2 by ID");
        assert!(output.status.success() && error.is_none(), "ss {filter}: {errors}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let cookies = lines.lines().map(|line| {
            let cookie = line.split_whitespace().find_map(|word| word.strip_prefix("sk:"));
            u64::from_str_radix(cookie.unwrap_or_else(|| panic!("no cookie: {line}")), 16).unwrap()
        });
        cookies.collect()
    }

    fn difference(&self, expression: &str, ours: &Cookies, theirs: &Cookies) -> String {
        let output = Command::new("nsenter")
            .arg(format!("--net={}", self.path().display()))
            .args(["ss", "-tnHOea"])
            .output()
            .unwrap();
        let all = String::from_utf8(output.stdout).unwrap();
        let lines = |cookies: &BTreeSet<&u64>| {
            let named = |line: &&str| {
                cookies.iter().any(|cookie| line.contains(&format!("sk:{cookie:x} ")))
            };
            all.lines().filter(named).map(|line| format!("\n      {line}")).collect::<String>()
        };
        let only_ours = lines(&ours.difference(theirs).collect());
        let only_theirs = lines(&theirs.difference(ours).collect());
        format!("  {expression}\n    only ours:{only_ours}\n    only ss:{only_theirs}")
    }
}
