//! Packets dropped at random: as many as requested, on one side only, and every one of them counted.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::Errno;
use sys::link::Links;
use sys::namespace::OpenNamespace;
use sys::traffic::{Counts, IngressLoss, Loss, drop_at_socket};
use testkit::{need_root_netns, within};

const MINUTE: Duration = Duration::from_secs(60);
const IPV4: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
];
const IPV6: [IpAddr; 2] = [
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
];

/// Two namespaces connected by a veth pair.
struct Cable {
    ends: [OpenNamespace; 2],
}

impl Cable {
    fn new() -> Cable {
        let ends = [(); 2].map(|()| OpenNamespace::create().unwrap());
        Links::open(&ends[0]).unwrap().add_veth("eth", "eth", &ends[1]).unwrap();
        for (number, end) in ends.iter().enumerate() {
            let mut links = Links::open(end).unwrap();
            links.add_address("eth", IPV4[number], 24).unwrap();
            links.add_address("eth", IPV6[number], 64).unwrap();
            links.set_up("eth").unwrap();
        }
        let mut links = Links::open(&ends[0]).unwrap();
        assert!(within(MINUTE, || links.device("eth").unwrap().is_operational));
        Cable { ends }
    }

    /// A sender in the first namespace, connected to a receiver in the second, which has received from it.
    fn sockets(&self, [first, second]: [IpAddr; 2]) -> (UdpSocket, UdpSocket) {
        let bind = |end: &OpenNamespace, ip| {
            end.run(|| UdpSocket::bind(SocketAddr::new(ip, 0)).unwrap()).unwrap()
        };
        let (sender, receiver) = (bind(&self.ends[0], first), bind(&self.ends[1], second));
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        receiver.set_nonblocking(true).unwrap();
        assert!(within(MINUTE, || {
            let _ = sender.send(&[]);
            receiver.recv(&mut []).is_ok()
        }));
        (sender, receiver)
    }
}

/// Sends `count` datagrams and returns how many arrived.
fn exchange(sender: &UdpSocket, receiver: &UdpSocket, count: u32) -> u32 {
    let mut received = 0;
    let mut read = || {
        while receiver.recv(&mut [0; 64]).is_ok() {
            received += 1;
        }
    };
    for number in 0..count {
        sender.send(&number.to_ne_bytes()).unwrap();
        if number % 32 == 31 {
            read();
        }
    }
    // Packets that the kernel deferred arrive soon; when nothing arrives for this long, all have.
    within(Duration::from_millis(50), || {
        read();
        false
    });
    received
}

#[test]
fn what_is_dropped_and_what_arrives_make_up_what_was_sent() {
    if !need_root_netns() {
        return;
    }
    let cable = Cable::new();
    let mut ingress = IngressLoss::attach(&cable.ends[1], "eth", Loss::NONE).unwrap();
    for addresses in [IPV4, IPV6] {
        ingress.set(Loss::NONE).unwrap();
        let (sender, receiver) = cable.sockets(addresses);
        for percent in [0, 5, 50, 100] {
            ingress.set(Loss::from_probability(f64::from(percent) / 100.0).unwrap()).unwrap();
            let before = ingress.counts().unwrap();
            let received = exchange(&sender, &receiver, 4_000);
            let counts = ingress.counts().unwrap().since(before);
            assert_eq!(received + counts.dropped, 4_000, "{percent} %: {counts:?}");
            assert!(counts.packets >= 4_000 && counts.bytes >= 4_000 * 32, "{counts:?}");
            // Ten standard deviations.
            let (mean, variance) = (40 * percent, 4_000 * percent * (100 - percent) / 10_000);
            assert!(counts.dropped.abs_diff(mean).pow(2) <= 100 * variance, "{counts:?}");
        }
    }
}

/// A change replaces the old filter with the new one in one step.
#[test]
fn nothing_slips_through_while_the_loss_is_changed() {
    if !need_root_netns() {
        return;
    }
    let cable = Cable::new();
    let mut ingress = IngressLoss::attach(&cable.ends[1], "eth", Loss::NONE).unwrap();
    let (sender, receiver) = cable.sockets(IPV4);
    while receiver.recv(&mut [0]).is_ok() {}
    ingress.set(Loss::ALL).unwrap();
    let is_over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                sender.send(&[0; 8]).unwrap();
                sent += 1;
            }
            sent
        });
        for _ in 0..500 {
            ingress.set(Loss::ALL).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        sending.join().unwrap()
    });
    assert!(sent > 500, "{sent}");
    assert_eq!(exchange(&sender, &receiver, 0), 0);
}

#[test]
fn only_the_receiving_direction_loses() {
    if !need_root_netns() {
        return;
    }
    let cable = Cable::new();
    let mut ingress = IngressLoss::attach(&cable.ends[0], "eth", Loss::ALL).unwrap();
    ingress.set(Loss::NONE).unwrap();
    let (sender, receiver) = cable.sockets(IPV4);
    ingress.set(Loss::ALL).unwrap();
    assert_eq!(exchange(&sender, &receiver, 1_000), 1_000);
    assert_eq!(ingress.counts().unwrap().dropped, 0);
}

/// Neighbor addresses are resolved and confirmed while nothing else gets through.
#[test]
fn neighbours_find_each_other_through_a_link_that_loses_everything() {
    if !need_root_netns() {
        return;
    }
    for addresses in [IPV4, IPV6] {
        let cable = Cable::new();
        let losses =
            cable.ends.each_ref().map(|end| IngressLoss::attach(end, "eth", Loss::ALL).unwrap());
        let sender = cable.ends[0]
            .run(|| UdpSocket::bind(SocketAddr::new(addresses[0], 0)).unwrap())
            .unwrap();
        let [_, mut at_receiver] = losses;
        // A datagram only leaves once the neighbor's address is known.
        assert!(within(MINUTE, || {
            let _ = sender.send_to(&[0; 8], (addresses[1], 9));
            at_receiver.counts().unwrap().dropped > 0
        }));
    }
}

#[test]
fn what_cannot_be_attached_says_why() {
    if !need_root_netns() {
        return;
    }
    let cable = Cable::new();
    let mut first = IngressLoss::attach(&cable.ends[0], "eth", Loss::NONE).unwrap();
    let again = IngressLoss::attach(&cable.ends[0], "eth", Loss::NONE).err().unwrap();
    assert_eq!(again.errno(), Some(Errno::EXIST));
    assert!(again.to_string().starts_with("RTM_NEWQDISC (clsact) on eth: "), "{again}");
    let nowhere = IngressLoss::attach(&cable.ends[0], "none", Loss::NONE).err().unwrap();
    assert_eq!(nowhere.errno(), Some(Errno::NODEV));
    Links::open(&cable.ends[0]).unwrap().delete("eth").unwrap();
    assert_eq!(first.counts().unwrap_err().errno(), Some(Errno::NODEV));
    assert_eq!(first.set(Loss::ALL).unwrap_err().errno(), Some(Errno::NODEV));
    assert_eq!(first.device(), "eth");
}

#[test]
fn counts_begin_at_nothing() {
    if !need_root_netns() {
        return;
    }
    let namespace = OpenNamespace::create().unwrap();
    let mut links = Links::open(&namespace).unwrap();
    links.add_bridge("br").unwrap();
    let mut ingress = IngressLoss::attach(&namespace, "br", Loss::NONE).unwrap();
    assert_eq!(ingress.counts(), Ok(Counts::default()));
}

/// The fallback needs no privilege: loopback will do.
#[test]
fn a_socket_drops_what_reaches_it_with_the_same_probability() {
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    receiver.set_nonblocking(true).unwrap();
    for (percent, range) in [(0, 4_000..=4_000), (50, 1_684..=2_316), (100, 0..=0)] {
        let loss = Loss::from_probability(f64::from(percent) / 100.0).unwrap();
        drop_at_socket(receiver.as_fd(), loss).unwrap();
        let before = sys::socket::mem_info(receiver.as_fd()).unwrap().dropped_datagrams;
        let received = exchange(&sender, &receiver, 4_000);
        assert!(range.contains(&received), "{percent} %: {received}");
        let dropped = sys::socket::mem_info(receiver.as_fd()).unwrap().dropped_datagrams - before;
        assert_eq!(dropped + received, 4_000);
    }
}
