//! A network that the lab creates: two hosts and a switch, with random loss on the links.
//!
//! ```text
//!   h1 10.0.0.1 ── h1-eth0 ═══ s1-eth1 ── br0 ── s1-eth2 ═══ h2-eth0 ── 10.0.0.2 h2
//!                  drops       drops             drops       drops
//! ```
//!
//! To simulate a distance between the hosts, the bridge is split in two, and a thread passes frames between the halves with a
//! delay.
//!
//! Hosts and switch are network namespaces that are not mounted anywhere: each lives as long as the [`Network`] and its threads
//! and sockets. The kernel then removes the namespaces, however the process ends. The host's own network is never touched:
//! devices are created directly in these namespaces. Packets are dropped at the receiving end of each link, so that the sender is
//! not notified; a path crosses two links.

mod bursts;
mod counters;
mod delay_line;
mod error;
mod host;
mod path_loss;
mod privilege;
mod properties;

pub use counters::Counters;
pub use delay_line::Span;
pub use error::Error;
pub use host::Host;
pub use path_loss::PathLoss;
pub use privilege::Privilege;
pub use properties::Properties;
pub use sys::traffic::Counts;

use delay_line::DelayLine;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::link::{self, Links, Tap};
use sys::namespace::OpenNamespace;
use sys::traffic::{IngressLoss, drop_at_socket};

/// What to build.
#[derive(Clone, Copy, Default, Debug)]
pub struct Plan {
    /// Initial loss, in both directions.
    pub loss: PathLoss,
    /// Where to drop packets. `None` prefers [`LossAt::Links`] if the kernel supports it.
    pub loss_at: Option<LossAt>,
    /// Maximum number of TCP segments that cross a link, and are lost, as one packet. `None` keeps the kernel's value (65535);
    /// with 1, loss applies strictly per segment.
    pub gso_max_segs: Option<u32>,
    /// Size of the largest IP packet in bytes. `None` is 1500.
    pub mtu_bytes: Option<u32>,
    /// Delay and bandwidth between the hosts, and whether losses come in bursts.
    pub span: Span,
}

/// Where packets are dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossAt {
    /// At the end of each of the two links of a path. Applies to every IP packet.
    Links,
    /// At the receiving socket, once per direction with the loss of the whole path: for kernels that cannot drop packets at
    /// links. Only sockets passed to [`Network::prepare`] lose packets, and [`Network::counts`] does not count these losses.
    Sockets,
    /// Between the links, in bursts with the loss of the whole path, by the thread that passes on frames. [`Network::counts`]
    /// does not count these losses. Always used when the span has bursts, whatever the plan prefers.
    Between,
}

impl LossAt {
    /// The place as text, for a report.
    pub fn label(self) -> &'static str {
        match self {
            LossAt::Links => {
                "clsact ingress, classic BPF, at the receiving end of each link, both ways"
            }
            LossAt::Sockets => "socket filter, classic BPF, at the receiving sockets, both ways",
            LossAt::Between => {
                "in bursts (Gilbert's model for each flow) between the two links, both ways"
            }
        }
    }
}

/// One of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The first host, 10.0.0.1.
    H1,
    /// The second host, 10.0.0.2.
    H2,
}

impl End {
    /// Both hosts.
    pub const BOTH: [End; 2] = [End::H1, End::H2];

    fn name(self) -> &'static str {
        match self {
            End::H1 => "h1",
            End::H2 => "h2",
        }
    }

    fn device(self) -> &'static str {
        match self {
            End::H1 => "h1-eth0",
            End::H2 => "h2-eth0",
        }
    }

    /// The port of the switch on the link to this host.
    fn port(self) -> &'static str {
        match self {
            End::H1 => "s1-eth1",
            End::H2 => "s1-eth2",
        }
    }

    /// The other host.
    #[must_use]
    pub fn other(self) -> End {
        match self {
            End::H1 => End::H2,
            End::H2 => End::H1,
        }
    }

    fn ipv4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, self.number())
    }

    fn ipv6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(self.number()))
    }

    fn number(self) -> u8 {
        match self {
            End::H1 => 1,
            End::H2 => 2,
        }
    }
}

/// Packets that arrived at the end of a link since the network was ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkCounts {
    /// The destination host of these packets.
    pub towards: End,
    /// The device that received or dropped them.
    pub device: &'static str,
    /// The numbers of packets.
    pub counts: Counts,
}

/// The network. It disappears with this value and all sockets and threads in it.
pub struct Network {
    hosts: [Host; 2],
    switch: OpenNamespace,
    links: Vec<LinkEnd>,
    delay_line: Option<DelayLine>,
    loss_at: LossAt,
    /// Loss by destination host.
    loss: [PathLoss; 2],
}

struct LinkEnd {
    towards: End,
    device: &'static str,
    ingress: IngressLoss,
    ready: Counts,
}

/// Longer than any step takes on a working machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// The bridges that connect the two links: one, or two halves if the hosts are apart.
const BRIDGES: [&str; 2] = ["br0", "br1"];
/// Capacity of the queue in front of the thread that passes on frames: 400 ms at 20,000 frames per second.
const QUEUE_FRAMES: u32 = 8_192;

impl Network {
    /// Builds the network and waits until datagrams cross it in both directions. Takes about 20 ms.
    ///
    /// # Errors
    /// [`Error`], which names the step. Everything built before it is removed.
    pub fn build(plan: &Plan) -> Result<Network, Error> {
        let [h1, switch, h2] = [create("h1")?, create("the switch")?, create("h2")?];
        let hosts = [(End::H1, h1), (End::H2, h2)].map(|(end, namespace)| Host {
            end,
            namespace: Arc::new(namespace),
            has_ipv6: true,
        });

        let mut network = Network {
            hosts,
            switch,
            links: Vec::new(),
            delay_line: None,
            loss_at: LossAt::Links,
            loss: [PathLoss::NONE; 2],
        };

        network.connect(plan)?;
        match plan.span.burst_packets {
            Some(_) => network.loss_at = LossAt::Between,
            None => network.attach(plan.loss_at)?,
        }
        network.wait_until_ready(plan.span.round_trip)?;
        for link in &mut network.links {
            link.ready = link.ingress.counts()?;
        }

        network.set_loss(plan.loss)?;
        Ok(network)
    }

    /// Returns one of the hosts.
    pub fn host(&self, end: End) -> &Host {
        match end {
            End::H1 => &self.hosts[0],
            End::H2 => &self.hosts[1],
        }
    }

    /// Sets the loss of both directions. Packets in flight are subject to the old or the new loss.
    ///
    /// # Errors
    /// The kernel refuses, although it allowed the same before.
    pub fn set_loss(&mut self, loss: PathLoss) -> Result<(), Error> {
        End::BOTH.into_iter().try_for_each(|towards| self.set_loss_towards(towards, loss))
    }

    /// Sets the loss of packets on the way to one host.
    ///
    /// # Errors
    /// As [`Self::set_loss`].
    pub fn set_loss_towards(&mut self, towards: End, loss: PathLoss) -> Result<(), Error> {
        for link in self.links.iter_mut().filter(|link| link.towards == towards) {
            link.ingress.set(loss.at_link())?;
        }
        if let (LossAt::Between, Some(line)) = (self.loss_at, &self.delay_line) {
            line.set_loss_towards(towards, loss.path());
        }
        self.loss[towards as usize] = loss;
        Ok(())
    }

    /// Prepares a socket of a host to lose packets on the way to it at the network's rate. Call this for every socket that
    /// receives, before the first packet, and for listeners instead of the sockets that they accept. Does nothing unless
    /// [`LossAt::Sockets`] is in use. The socket keeps the current loss: prepare it again after a change.
    ///
    /// # Errors
    /// Any error of `setsockopt(2)`.
    pub fn prepare(&self, end: End, socket: impl AsFd) -> io::Result<()> {
        match self.loss_at {
            LossAt::Links | LossAt::Between => Ok(()),
            LossAt::Sockets => drop_at_socket(socket.as_fd(), self.loss[end as usize].at_path()),
        }
    }

    /// Where packets are dropped.
    pub fn loss_at(&self) -> LossAt {
        self.loss_at
    }

    /// Packets that arrived at the end of each link, first to the switch and then to the host, for both directions. Empty unless
    /// [`LossAt::Links`] is in use.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn counts(&mut self) -> Result<Vec<LinkCounts>, Error> {
        let mut all = Vec::with_capacity(self.links.len());
        for link in &mut self.links {
            let counts = link.ingress.counts()?.since(link.ready);
            all.push(LinkCounts { towards: link.towards, device: link.device, counts });
        }
        Ok(all)
    }

    /// Number of frames that arrived when the queue of the simulated distance was full.
    pub fn queue_drops(&self) -> u64 {
        self.delay_line.as_ref().map_or(0, DelayLine::dropped)
    }

    /// The kernel's settings in this network, for a report.
    ///
    /// # Errors
    /// The kernel does not answer. Settings that it does not know are absent.
    pub fn properties(&self) -> Result<Properties, Error> {
        let host = self.host(End::H1);
        let device = Links::open(&host.namespace)?.device(End::H1.device())?;
        host.run(|| Properties::read(&device))
    }

    fn connect(&mut self, plan: &Plan) -> Result<(), Error> {
        let mut switch = Links::open(&self.switch)?;
        switch.add_bridge(BRIDGES[0])?;
        switch.set_up(BRIDGES[0])?;
        if !plan.span.is_none() {
            switch.add_bridge(BRIDGES[1])?;
            switch.set_up(BRIDGES[1])?;
            self.delay_line = Some(self.span(plan.span, &mut switch)?);
        }

        for host in &mut self.hosts {
            let (device, port) = (host.end.device(), host.end.port());
            let half = if plan.span.is_none() { 0 } else { host.end as usize };
            let mut links = Links::open(&host.namespace)?;
            links.set_up("lo")?;
            links.add_veth(device, port, &self.switch)?;

            for (links, device) in [(&mut links, device), (&mut switch, port)] {
                plan.mtu_bytes.map_or(Ok(()), |bytes| links.set_mtu(device, bytes))?;
                plan.gso_max_segs
                    .map_or(Ok(()), |segments| links.set_gso_max_segs(device, segments))?;
            }

            links.add_address(device, IpAddr::V4(host.end.ipv4()), 24)?;
            host.has_ipv6 = has_ipv6(links.add_address(device, IpAddr::V6(host.end.ipv6()), 64))?;
            links.set_up(device)?;

            // A port that is down when it joins waits for the next check of its carrier.
            switch.set_up(port)?;
            switch.set_master(port, BRIDGES[half])?;
        }
        Ok(())
    }

    /// Connects the two halves of the switch.
    fn span(&self, span: Span, switch: &mut Links) -> Result<DelayLine, Error> {
        let create = |device: &'static str| -> Result<Tap, Error> {
            let created = self.switch.run(|| Tap::create(device));
            let created = created.map_err(|source| Error::Namespace { of: "the switch", source });
            created?.map_err(Error::Tap)
        };
        let ends = ["s1-tap1", "s1-tap2"];
        let taps = [create(ends[0])?, create(ends[1])?];
        for (device, bridge) in ends.into_iter().zip(BRIDGES) {
            switch.set_queue_len(device, QUEUE_FRAMES)?;
            switch.set_up(device)?;
            switch.set_master(device, bridge)?;
        }
        DelayLine::start(taps, span).map_err(Error::Tap)
    }

    fn attach(&mut self, wanted: Option<LossAt>) -> Result<(), Error> {
        if wanted != Some(LossAt::Sockets) {
            match self.attach_to_links() {
                Err(Error::Link(error)) if wanted.is_none() && error.is_unsupported() => {}
                attached => return attached,
            }
        }
        self.links.clear();
        self.loss_at = LossAt::Sockets;
        Ok(())
    }

    fn attach_to_links(&mut self) -> Result<(), Error> {
        for towards in End::BOTH {
            let host = &self.hosts[towards as usize];
            let ends =
                [(&self.switch, towards.other().port()), (&*host.namespace, towards.device())];
            for (namespace, device) in ends {
                let ingress = IngressLoss::attach(namespace, device, PathLoss::NONE.at_link())?;
                self.links.push(LinkEnd { towards, device, ingress, ready: Counts::default() });
            }
        }
        Ok(())
    }

    /// Waits, because carrier and bridge ports take a moment. Afterwards, the hosts know each other's link-layer addresses.
    fn wait_until_ready(&self, round_trip: Duration) -> Result<(), Error> {
        let bind = |host: &Host| -> Result<UdpSocket, Error> {
            let socket = host.run(|| UdpSocket::bind((host.ipv4(), 0)))?;
            socket.map_err(Error::Probe)
        };
        let sockets = [bind(self.host(End::H1))?, bind(self.host(End::H2))?];
        for (sender, receiver) in [(0, 1), (1, 0)] {
            probe(&sockets[sender], &sockets[receiver], round_trip)?;
        }
        Ok(())
    }
}

/// Whether an address was added; a kernel or a host without IPv6 is not an error.
fn has_ipv6(added: Result<(), link::Error>) -> Result<bool, Error> {
    match added {
        Ok(()) => Ok(true),
        Err(error) if error.is_unsupported() || error.errno() == Some(sys::Errno::ACCES) => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn create(of: &'static str) -> Result<OpenNamespace, Error> {
    OpenNamespace::create().map_err(|source| Error::Namespace { of, source })
}

fn probe(sender: &UdpSocket, receiver: &UdpSocket, round_trip: Duration) -> Result<(), Error> {
    let dst = receiver.local_addr().map_err(Error::Probe)?;
    // The first datagram waits for the neighbor's address, which takes a request and a reply.
    let patience = Duration::from_millis(2) + 2 * round_trip;
    receiver.set_read_timeout(Some(patience)).map_err(Error::Probe)?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        // The destination is unreachable until the carrier is up.
        let _ = sender.send_to(b"ready?", dst);
        if receiver.recv(&mut [0; 16]).is_ok() {
            return Ok(());
        }
    }
    Err(Error::NotReady { dst, waited: PATIENCE })
}
