//! The lab's network delivers packets, loses exactly as many as configured, and leaves nothing behind.

use lab::network::{Counts, End, Host, LinkCounts, LossAt, Network, PathLoss, Plan, Span};
use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use sys::link::Links;
use sys::namespace::{self, IsolateError, OpenNamespace};
use testkit::{OwnProgram, skip, within};

const MINUTE: Duration = Duration::from_secs(60);

const REQUIRED_BY: [&str; 2] = ["REQUIRE_NETNS", "REQUIRE_ALL"];

/// Whether this process may build networks. Otherwise prints `skipped:`, or fails if the test is required.
fn may_build() -> bool {
    use sys::process::{CAP_NET_ADMIN, CAP_SYS_ADMIN, effective_capabilities};
    const NEEDED: u64 = 1 << CAP_SYS_ADMIN | 1 << CAP_NET_ADMIN;
    effective_capabilities().is_some_and(|held| held & NEEDED == NEEDED)
        || skip("network namespaces need root", &REQUIRED_BY)
}

fn udp(network: &Network, end: End, ip: IpAddr) -> UdpSocket {
    let socket = network.host(end).run(|| UdpSocket::bind((ip, 0)).unwrap()).unwrap();
    network.prepare(end, &socket).unwrap();
    socket
}

fn ipv4(network: &Network, end: End) -> IpAddr {
    network.host(end).ipv4().into()
}

#[test]
fn an_echo_comes_back_over_both_protocols() {
    if !may_build() {
        return;
    }
    let network = Network::build(&Plan::default()).unwrap();
    let pairs = End::BOTH.map(|end| {
        let host = network.host(end);
        [Some(IpAddr::from(host.ipv4())), host.ipv6().map(IpAddr::from)]
    });
    let [[v4, v6], [echo_v4, echo_v6]] = pairs;
    for (ip, echo_ip) in [v4.zip(echo_v4), v6.zip(echo_v6)].into_iter().flatten() {
        let (socket, echo) = (udp(&network, End::H1, ip), udp(&network, End::H2, echo_ip));
        for socket in [&socket, &echo] {
            socket.set_read_timeout(Some(MINUTE)).unwrap();
        }
        for len in [0_usize, 1, 1_000, 1_400, 8_000] {
            let mut buf = vec![0; 9_000];
            let sent = vec![len as u8; len];
            socket.send_to(&sent, echo.local_addr().unwrap()).unwrap();
            let (received, src) = echo.recv_from(&mut buf).unwrap();
            echo.send_to(&buf[..received], src).unwrap();
            assert_eq!(socket.recv(&mut buf).unwrap(), len);
            assert_eq!(buf[..len], sent[..]);
        }
    }
}

/// Datagrams sent in one direction, and where they ended up.
struct Passage {
    sent: u64,
    received: u64,
    /// Dropped at the end of the first and of the second link.
    dropped: [u64; 2],
}

/// Sends `count` datagrams, never more at once than the kernel's queues hold, and waits until each is accounted for.
fn pass(network: &mut Network, towards: End, count: u64) -> Passage {
    let (src, dst) = (ipv4(network, towards.other()), ipv4(network, towards));
    let (sender, receiver) = (udp(network, towards.other(), src), udp(network, towards, dst));
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let before = dropped(network, towards);
    let mut passage = Passage { sent: 0, received: 0, dropped: [0; 2] };
    while passage.sent < count {
        let batch = (count - passage.sent).min(256);
        for _ in 0..batch {
            sender.send(&passage.sent.to_ne_bytes()).unwrap();
            passage.sent += 1;
        }
        let is_settled = within(MINUTE, || {
            while receiver.recv(&mut [0; 8]).is_ok() {
                passage.received += 1;
            }
            let now = dropped(network, towards);
            passage.dropped = [0, 1].map(|link| now[link] - before[link]);
            passage.received + passage.dropped.iter().sum::<u64>() == passage.sent
        });
        assert!(is_settled, "{} of {} accounted for", passage.received, passage.sent);
    }
    passage
}

fn dropped(network: &mut Network, towards: End) -> [u64; 2] {
    let counts = network.counts().unwrap();
    let mut dropped = counts
        .iter()
        .filter(|link| link.towards == towards)
        .map(|LinkCounts { counts: Counts { dropped, .. }, .. }| u64::from(*dropped));
    [dropped.next().unwrap(), dropped.next().unwrap()]
}

/// Whether `count` out of `of` is within the 99.9 % interval of the binomial distribution (normal approximation with
/// continuity correction; the smallest mean here is 200).
fn is_likely(count: u64, of: u64, probability: f64) -> bool {
    let mean = of as f64 * probability;
    let deviation = (mean * (1.0 - probability)).sqrt();
    (count as f64 - mean).abs() <= 3.2905 * deviation + 0.5
}

/// Tests only the injector. `WEIR_LAB_PACKETS` sets how many packets cross for each rate and direction.
#[test]
fn each_direction_loses_what_it_should() {
    if !may_build() {
        return;
    }
    let packets = env::var("WEIR_LAB_PACKETS").map_or(200_000, |count| count.parse().unwrap());
    let mut network = Network::build(&Plan::default()).unwrap();
    for probability in [0.001, 0.01, 0.05, 0.2, 0.5] {
        let loss = PathLoss::per_link(probability).unwrap();
        for towards in End::BOTH {
            // The other direction has no loss, which shows that both are independent.
            network.set_loss_towards(towards.other(), PathLoss::NONE).unwrap();
            network.set_loss_towards(towards, loss).unwrap();
            let mut is_as_asked = || {
                let Passage { sent, received, dropped: [first, second] } =
                    pass(&mut network, towards, packets);
                let lost = sent - received;
                println!("{towards:?} {loss}: {lost} of {sent}, {first} and {second}");
                is_likely(first, sent, probability)
                    && is_likely(second, sent - first, probability)
                    && is_likely(lost, sent, loss.path())
            };
            // By definition one in a thousand is outside; twice in a row is one in a million.
            assert!(is_as_asked() || is_as_asked(), "{towards:?} at {loss}");
        }
    }
    let sender = network.host(End::H1).counters().unwrap();
    assert_eq!(sender.value("Udp", "SndbufErrors"), Some(0));
}

/// Sends `bytes` bytes from the first host to the second over TCP.
fn transfer(network: &Network, bytes: usize) {
    let addr = SocketAddr::new(ipv4(network, End::H2), 0);
    let listener = network.host(End::H2).run(|| TcpListener::bind(addr).unwrap()).unwrap();
    network.prepare(End::H2, &listener).unwrap();
    let addr = listener.local_addr().unwrap();
    let received = thread::spawn(move || {
        let mut all = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
        all.len()
    });
    let mut stream = network.host(End::H1).run(|| TcpStream::connect(addr).unwrap()).unwrap();
    network.prepare(End::H1, &stream).unwrap();
    stream.write_all(&vec![7; bytes]).unwrap();
    drop(stream);
    assert_eq!(received.join().unwrap(), bytes);
}

/// Loss on the sending side would show in `TCPRetransFail`, and TCP would behave differently than on a cable.
#[test]
fn tcp_retransmits_and_is_told_of_no_loss() {
    if !may_build() {
        return;
    }
    let loss = PathLoss::per_path(0.05).unwrap();
    let plan = Plan { loss, gso_max_segs: Some(1), ..Plan::default() };
    let network = Network::build(&plan).unwrap();
    let before = network.host(End::H1).counters().unwrap();
    transfer(&network, 400_000);
    let counters = network.host(End::H1).counters().unwrap().since(&before);
    let value = |group, name| counters.value(group, name);
    assert_eq!(value("TcpExt", "TCPRetransFail"), Some(0));
    assert!(value("Tcp", "RetransSegs").unwrap() > 0, "{counters:?}");
    assert!(value("Tcp", "OutSegs").unwrap() >= 400_000 / 1_460);
}

#[test]
fn loss_at_sockets_is_the_paths_and_holds_for_tcp_too() {
    if !may_build() {
        return;
    }
    let loss = PathLoss::per_path(0.2).unwrap();
    let plan = Plan { loss, loss_at: Some(LossAt::Sockets), ..Plan::default() };
    let mut network = Network::build(&plan).unwrap();
    assert_eq!(network.loss_at(), LossAt::Sockets);
    assert_eq!(network.counts().unwrap(), []);
    let (h1, h2) = (ipv4(&network, End::H1), ipv4(&network, End::H2));
    let (sender, receiver) = (udp(&network, End::H1, h1), udp(&network, End::H2, h2));
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let (mut sent, mut received) = (0, 0);
    while sent < 20_000 {
        sender.send(&[0; 100]).unwrap();
        sent += 1;
        let drops = || sys::socket::mem_info(std::os::fd::AsFd::as_fd(&receiver)).unwrap();
        assert!(within(MINUTE, || {
            while receiver.recv(&mut [0; 100]).is_ok() {
                received += 1;
            }
            received + drops().dropped_datagrams == sent
        }));
    }
    assert!(is_likely(u64::from(sent - received), sent.into(), 0.2), "{received} of {sent}");
    network.set_loss(PathLoss::per_path(0.05).unwrap()).unwrap();
    let before = network.host(End::H1).counters().unwrap();
    transfer(&network, 400_000);
    let counters = network.host(End::H1).counters().unwrap().since(&before);
    assert_eq!(counters.value("TcpExt", "TCPRetransFail"), Some(0));
}

#[test]
fn hosts_that_are_far_apart_hear_each_other_as_late_as_was_asked() {
    if !may_build() {
        return;
    }
    let round_trip = Duration::from_millis(40);
    let span = Span { round_trip, ..Span::default() };
    let mut network = Network::build(&Plan { span, ..Plan::default() }).unwrap();
    let [socket, echo] = End::BOTH.map(|end| udp(&network, end, ipv4(&network, end)));
    socket.set_read_timeout(Some(MINUTE)).unwrap();
    echo.set_read_timeout(Some(MINUTE)).unwrap();
    let to = echo.local_addr().unwrap();
    let took = |len: usize| {
        let (mut buf, began) = ([0; 9_000], Instant::now());
        socket.send_to(&vec![7; len], to).unwrap();
        let (received, from) = echo.recv_from(&mut buf).unwrap();
        echo.send_to(&buf[..received], from).unwrap();
        assert_eq!(socket.recv(&mut buf).unwrap(), len);
        began.elapsed()
    };
    // Includes fragmented datagrams. The shortest of several times does not depend on how busy the machine is.
    let shortest = [1, 1_000, 8_000, 1, 1_000, 8_000].map(took).into_iter().min().unwrap();
    assert!((round_trip..round_trip * 3 / 2).contains(&shortest), "{shortest:?}");

    // The links still lose packets, no queue overflows, and streams are complete.
    network.set_loss(PathLoss::per_path(0.5).unwrap()).unwrap();
    let passage = pass(&mut network, End::H2, 1_000);
    assert!(is_likely(passage.sent - passage.received, passage.sent, 0.5), "{}", passage.received);
    network.set_loss(PathLoss::NONE).unwrap();
    transfer(&network, 400_000);
    assert_eq!(network.queue_drops(), 0);
}

#[test]
fn a_narrow_way_drops_what_comes_too_fast() {
    if !may_build() {
        return;
    }
    let span = Span { bits_per_sec: Some(8_000_000), ..Span::default() };
    let network = Network::build(&Plan { span, ..Plan::default() }).unwrap();
    let [socket, sink] = End::BOTH.map(|end| udp(&network, end, ipv4(&network, end)));
    sink.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    // A millisecond each, so 50 of them wait.
    let (sent, began) = (300, Instant::now());
    for _ in 0..sent {
        socket.send_to(&[7; 958], sink.local_addr().unwrap()).unwrap();
    }
    let mut received = 0;
    while sink.recv(&mut [0; 1_000]).is_ok() {
        received += 1;
    }
    // The hosts send a few packets of their own to find IPv6 neighbors.
    let accounted = received + network.queue_drops();
    assert!((sent..=sent + 20).contains(&accounted), "{accounted}");
    let carries = 51 + began.elapsed().as_millis() as u64;
    assert!((50..=carries).contains(&received), "{received}");
}

#[test]
fn settings_and_properties_are_the_networks_own() {
    if !may_build() {
        return;
    }
    let plan = Plan { gso_max_segs: Some(1), mtu_bytes: Some(1_300), ..Plan::default() };
    let network = Network::build(&plan).unwrap();
    let (h1, h2) = (network.host(End::H1), network.host(End::H2));
    const RETRIES: &str = "/proc/sys/net/ipv4/tcp_retries2";
    let retries = |host: &Host| host.run(|| fs::read_to_string(RETRIES).unwrap()).unwrap();
    let before = retries(h2);
    h1.run(|| fs::write(RETRIES, "7").unwrap()).unwrap();
    assert_eq!((retries(h1).trim(), retries(h2)), ("7", before));
    let properties = network.properties().unwrap();
    assert_eq!((properties.mtu_bytes, properties.gso_max_segs), (1_300, Some(1)));
    let value = |wanted: &str| {
        let mut sysctls = properties.sysctls.iter();
        sysctls.find(|(name, _)| name == wanted).map(|(_, value)| value.clone()).unwrap()
    };
    assert_eq!(value("net.ipv4.tcp_retries2"), "7");
    assert_eq!(value("net.ipv4.tcp_wmem").split(' ').count(), 3);
    let default = value("net.ipv4.tcp_congestion_control");
    assert!(properties.congestion_controls.contains(&default));
}

#[test]
fn a_step_that_fails_says_which() {
    if !may_build() {
        return;
    }
    let error = Network::build(&Plan { mtu_bytes: Some(1), ..Plan::default() }).err().unwrap();
    assert!(error.to_string().starts_with("RTM_NEWLINK (mtu) on h1-eth0: "), "{error}");
    assert!(!error.is_permission() && error.remedy().is_none());
}

/// The same tests as user `nobody`, who is root in a new user namespace.
#[test]
fn without_privilege_a_user_namespace_serves() {
    let program = OwnProgram::copy("network");
    let mut command = program.command(&[
        "network::an_echo_comes_back_over_both_protocols",
        "network::tcp_retransmits_and_is_told_of_no_loss",
        "network::settings_and_properties_are_the_networks_own",
    ]);
    command.env("REQUIRE_NETNS", "1").env("RUST_BACKTRACE", "0");
    if sys::process::effective_uid() == 0 {
        command.uid(65_534).gid(65_534);
    }
    match namespace::isolate_child(&mut command).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.contains("3 passed"), "{said}");
        }
        Err(error) => {
            skip(&IsolateError::of_spawn(&error).to_string(), &REQUIRED_BY);
        }
    }
}

/// Set for the process that holds a network.
const HOLDS: &str = "WEIR_TEST_HOLDS_A_NETWORK";

/// Not a separate test: the process that the next test kills.
#[test]
fn hold_a_network_until_killed() {
    if std::env::var_os(HOLDS).is_none() {
        return;
    }
    let network = Network::build(&Plan::default()).unwrap();
    let ip = ipv4(&network, End::H1);
    let host = network.host(End::H1).clone();
    let _inside = thread::spawn(move || {
        host.move_this_thread().unwrap();
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.recv(&mut [0]).unwrap();
    });
    println!("built");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Each namespace of the child gets a veth pair to one of the test's; the pair disappears with the namespace.
#[test]
fn a_killed_process_leaves_nothing() {
    if !may_build() {
        return;
    }
    let ours = OpenNamespace::create().unwrap();
    let mut cables = Links::open(&ours).unwrap();
    let mut child = Holder::start();
    let theirs = child.namespaces();
    assert_eq!(theirs.len(), 3);
    let names: Vec<String> = (0..theirs.len()).map(|number| format!("cable{number}")).collect();
    for (name, theirs) in names.iter().zip(&theirs) {
        cables.add_veth(name, "witness", theirs).unwrap();
    }
    drop(theirs);
    for device in ["h1-eth0", "h2-eth0", "s1-eth1", "s1-eth2"] {
        assert!(!Path::new("/sys/class/net").join(device).exists(), "{device}");
    }
    assert!(names.iter().all(|name| cables.device(name).is_ok()));
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert!(within(MINUTE, || names.iter().all(|name| cables.device(name).is_err())));
}

/// A process with a network.
struct Holder(Child);

impl Holder {
    fn start() -> Holder {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "network::hold_a_network_until_killed", "--nocapture"])
            .env(HOLDS, "1");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut holder = Holder(child);
        let (mut said, mut byte) = (String::new(), [0]);
        while !said.contains("built") {
            holder.0.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
            said.push(char::from(byte[0]));
        }
        holder
    }

    /// The namespaces that the process holds open.
    fn namespaces(&self) -> Vec<OpenNamespace> {
        let own = namespace::own().unwrap();
        let mut found: Vec<OpenNamespace> = Vec::new();
        for fd in fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap() {
            let path = fd.unwrap().path();
            let is_one =
                fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().starts_with("net:"));
            let Some(open) = is_one.then(|| OpenNamespace::open(&path).unwrap()) else { continue };
            if open.id() != own && found.iter().all(|other| other.id() != open.id()) {
                found.push(open);
            }
        }
        found
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
