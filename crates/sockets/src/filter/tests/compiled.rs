use super::{FixedNames, message, parse};
use crate::filter::evaluate::state_in;
use crate::filter::{Facts, Filter, Needs, Place, Target};
use wire::inet_diag::bytecode::{self, Entry, Operations, Privilege};
use wire::inet_diag::{SocketMessage, State, States};

fn target() -> Target<'static> {
    Target { operations: Operations::ALL, ..Target::new(&FixedNames) }
}

/// Checks what goes to the kernel and what is left.
fn splits(text: &str, program_bytes: usize, rest: &str) {
    let compiled = parse(text).compile(&target());
    let left = compiled.rest.map_or(String::new(), |rest| rest.to_string());
    assert_eq!((compiled.bytecode.len(), left.as_str()), (program_bytes, rest), "{text}");
    if program_bytes > 0 {
        assert_eq!(bytecode::audit(&compiled.bytecode, Privilege::NetAdmin), Ok(()), "{text}");
    }
}

#[test]
fn the_kernel_gets_what_it_can() {
    splits("", 0, "");
    splits("state listening", 0, "");
    splits("src *", 0, "");
    splits("sport = :80", 8, "");
    splits("src 10.0.0.0/8", 16, "");
    splits("family inet6", 28, "");
    splits("sport = :80 and rtt > 1ms", 8, "rtt > 1ms");
    splits("sport = :80 or rtt > 1ms", 0, "sport = :80 or rtt > 1ms");
    splits(
        "( sport = :80 and rtt > 1ms ) or dport = :80",
        20,
        "( sport = :80 and rtt > 1ms ) or dport = :80",
    );
    splits("not ( sport = :80 or rtt > 1ms )", 12, "not ( sport = :80 or rtt > 1ms )");
    splits("not ( sport = :80 and rtt > 1ms )", 0, "not ( sport = :80 and rtt > 1ms )");
    splits("dev = lo", 8, "");
    splits("dev = eth9", 4, "");
    splits("cgroup = /c5 and fwmark = 1", 24, "");
    splits("autobound", 20, "");
    splits("sport in 1-1024", 16, "");
    splits("dport in 80,443,8000-8999 and rtt > 1ms", 40, "rtt > 1ms");
    splits("sport not in 80,443", 24, "");
    splits("src in 10.0.0.0/8,[fd00::/8]", 48, "");
    splits("host 10.0.0.1", 36, "");
    splits("sport = :1 and ( state listening or state established )", 8, "");
    let many: Vec<String> = (0..2_000).map(|port| format!("sport != :{port}")).collect();
    let compiled = parse(&many.join(" and ")).compile(&target());
    assert!(compiled.bytecode.len() > 16_000 && compiled.rest.is_some());
}

#[test]
fn states_become_the_requests() {
    let states = |text: &str| parse(text).compile(&target()).states;
    assert_eq!(states(""), States::DEFAULT);
    assert_eq!(states("sport = :1"), States::DEFAULT);
    assert_eq!(states("state listening"), States::LISTENING);
    assert_eq!(states("sport = :1 and state listening"), States::LISTENING);
    assert_eq!(
        states("state connected and sport = :1 and not state established"),
        States::CONNECTED - State::Established.into()
    );
    assert_eq!(
        states("( state listening and sport = :1 ) or state established"),
        States::LISTENING | State::Established.into()
    );
    assert_eq!(states("state listening or sport = :1"), States::ALL);
    assert!(states("( state listening and state established )").is_empty());
}

#[test]
fn without_privilege_or_an_old_kernel_the_rest_grows() {
    let basic = Target { operations: Operations::BASIC, ..target() };
    let compiled = parse("fwmark = 1 and cgroup = /c5 and sport = :80").compile(&basic);
    assert_eq!(compiled.rest.as_ref().unwrap().to_string(), "fwmark = 0x1 and cgroup = /c5");
    assert_eq!(compiled.bytecode.len(), 12);
    let needs = compiled.rest.as_ref().map_or(Needs::NONE, Needs::of);
    assert!(needs.contains(Needs::MARK.with(Needs::CGROUP_ID)));
}

#[test]
fn explanations_name_the_place() {
    let lines: Vec<String> =
        parse("state established and dport = :443 and rtt > 1ms and ( sport = :1 or rtt > 2ms )")
            .explain(&target())
            .iter()
            .map(ToString::to_string)
            .collect();
    assert_eq!(
        lines,
        [
            "kernel  established  (the states asked for)",
            "kernel  dport = :443  (a program of the request)",
            "weir    rtt > 1ms  (the kernel's programs do not know `rtt`)",
            "weir    sport = :1 or rtt > 2ms  (the kernel's programs do not know `rtt`)",
        ]
    );
    let without = parse("fwmark = 1").explain(&Target::new(&FixedNames));
    assert_eq!(without.last().map(|line| line.place), Some(Place::Here));
    assert!(without.last().unwrap().reason.contains("CAP_NET_ADMIN"));
}

/// A small xorshift generator: the same cases in every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn one_of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }

    pub(super) fn text(&mut self, depth: usize) -> String {
        const TESTS: &[&str] = &[
            "src 10.0.0.0/9",
            "dst 10.0.0.1",
            "src [2001:db8::/33]",
            "dst ::ffff:10.0.0.1",
            "sport = :80",
            "dport >= :81",
            "sport < :81",
            "src 10.0.0.1:80",
            "dst *",
            "dev = lo",
            "dev = eth0",
            "dev = eth9",
            "fwmark = 1/3",
            "cgroup = /c1",
            "state established",
            "state != listening",
            "state connected",
            "family inet",
            "family inet6",
            "src inet:*",
            "uid = 33",
            "cc = b*",
            "rqueue > 10",
            "sport in 79-80,81",
            "dport not in 80-81",
            "src in 10.0.0.0/9,[2001:db8::/33]:80",
            "host 10.0.0.1",
            "host != 10.0.0.1:80",
            "waiting > 10",
            "dscp = ef",
            "cookie = 1",
            "netns = blue",
        ];
        if depth == 0 {
            return self.one_of(TESTS).to_owned();
        }
        match self.below(5) {
            0 => format!("not {}", self.text(depth - 1)),
            1 => format!("( {} )", self.text(depth - 1)),
            _ => {
                let join = self.one_of(&[" and ", " or ", " "]);
                format!("{}{join}{}", self.text(depth - 1), self.text(depth - 1))
            }
        }
    }

    pub(super) fn socket(&mut self) -> SocketMessage<'static> {
        const ENDS: &[&[&str]] = &[
            &["10.0.0.1:80", "10.128.0.1:81", "10.0.0.2:0"],
            &["[2001:db8::1]:80", "[2001:db8:8000::1]:81", "[::ffff:10.0.0.1]:80", "[::]:0"],
        ];
        let ends = ENDS[self.below(2)];
        let (src, dst) = (self.one_of(ends), self.one_of(ends));
        let mut socket = message(src, dst);
        socket.state =
            [State::Established, State::Listen, State::TimeWait, State::Closed][self.below(4)];
        socket.id.interface_index = u32::try_from(self.below(3)).unwrap();
        socket.id.cookie = self.below(2) as u64;
        socket.mark = Some(u32::try_from(self.below(8)).unwrap());
        socket.cgroup_id = Some(self.below(3) as u64);
        socket.uid = [0, 33][self.below(2)];
        socket.receive_queue = [0, 11][self.below(2)];
        socket.type_of_service = [None, Some(0xb8), Some(0)][self.below(3)];
        socket.traffic_class = socket.type_of_service;
        socket.congestion = [None, Some("bbr"), Some("cubic")][self.below(3)];
        socket
    }
}

fn entry(socket: &SocketMessage<'_>) -> Entry {
    Entry {
        source: socket.id.src.ip(),
        destination: socket.id.dst.ip(),
        source_port: socket.id.src.port(),
        destination_port: socket.id.dst.port(),
        interface_index: socket.id.interface_index,
        autobound: false,
        mark: socket.mark.unwrap_or(0),
        cgroup_id: socket.cgroup_id.unwrap_or(0),
    }
}

#[test]
fn the_parts_together_decide_as_the_whole() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let facts = Facts { netns: Some("blue"), ..Facts::default() };
    let (mut passed, mut in_kernel) = (0, 0);
    for round in 0..6_000 {
        let text = random.text(round % 5);
        let Ok(filter) = Filter::parse_with(&text, &FixedNames) else {
            // The only mistake that such texts can contain.
            assert!(
                Filter::parse_with(&text, &FixedNames).unwrap_err().message.contains("no state"),
                "{text}"
            );
            continue;
        };
        assert_eq!(parse(&filter.to_string()), filter, "{text} printed as {filter}");
        let operations = if round % 3 == 0 { Operations::BASIC } else { Operations::ALL };
        let compiled =
            filter.compile(&Target { operations, default_states: States::ALL, ..target() });
        assert!(
            compiled.bytecode.is_empty()
                || bytecode::audit(&compiled.bytecode, Privilege::NetAdmin).is_ok()
        );
        in_kernel += u32::from(compiled.rest.is_none());
        for _ in 0..30 {
            let socket = random.socket();
            let device = ["", "lo", "eth0"][usize::try_from(socket.id.interface_index).unwrap()];
            let facts = Facts { interface: Some(device), ..facts };
            let asked = state_in(socket.state, compiled.states);
            let split = asked
                && bytecode::run(&compiled.bytecode, &entry(&socket))
                && compiled.matches(&socket, &facts);
            assert_eq!(
                split,
                filter.matches(&socket, &facts),
                "{text} as {filter} on {socket:?}: {compiled:?}"
            );
            passed += u32::from(split);
        }
    }
    assert!(
        (20_000..160_000).contains(&passed),
        "{passed} sockets passed: the cases lean to one side"
    );
    assert!(in_kernel > 500, "{in_kernel} filters ran in the kernel alone");
}
