//! Rounds over the network in real time: many agents on one host, one collector on the other.

use super::played::{Played, Shown, steady};
use super::tally::{Tally, agent_of};
use super::{Collector, Error, LOOK_EVERY, Make, Plan, finished};
use crate::network::{End, Network};
use load::sflow::TrueFlow;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::clock::monotonic_ns;
use wire::sflow::Datagram;

/// Holds more than a second of the agents' datagrams, so that a busy machine does not lose any by itself.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;

/// How long datagrams in flight may take after the last one was sent.
const DRAIN: Duration = Duration::from_millis(300);

/// Size of the largest datagram that an agent sends.
const DATAGRAM_BYTES: usize = 9_216;

/// An agent in real time.
pub(super) struct Player {
    pub(super) played: Played,
    /// An additional flow, and its start in seconds since the agent began.
    pub(super) attack: Option<(f64, TrueFlow)>,
    /// When the additional flow started, at the first datagram after the configured time.
    pub(super) attacked_s: Option<f64>,
}

impl Player {
    pub(super) fn new(played: Played) -> Player {
        Player { played, attack: None, attacked_s: None }
    }

    fn next_datagram(&mut self, out: &mut Vec<u8>) -> f64 {
        let now_s = self.played.agent.now().as_secs_f64();
        if let Some((_, attack)) = self.attack.take_if(|(at_s, _)| now_s >= *at_s) {
            let mut flows = self.played.agent.flows().to_vec();
            flows.push(attack);
            self.played.agent.set_flows(flows);
            self.attacked_s = Some(now_s);
        }
        self.played.next_datagram(out)
    }
}

/// What arrived at the other end during a round.
pub(super) struct Heard {
    pub(super) collector: Box<dyn Collector>,
    pub(super) tallies: HashMap<u8, Tally>,
    /// Destinations that exceeded the limit, and when, in seconds since the agents began.
    pub(super) passed: Vec<(Ipv4Addr, f64)>,
    /// When the last datagram was processed.
    now_ns: u64,
}

/// Makes as many runs as the plan has agents and rounds, or fewer if stopped.
pub(super) fn runs(
    network: &Network,
    plan: &Plan,
    loss: f64,
    make: Make<'_>,
    stop: &AtomicBool,
) -> Result<Vec<Shown>, Error> {
    let mut runs = Vec::new();
    for round in (0..u64::from(plan.path_rounds)).take_while(|_| finished(stop)) {
        let player = |number: u8| {
            let seed = seed(plan, loss, round, number);
            Player::new(Played::new(number, steady(number), seed))
        };
        let mut players: Vec<Player> = numbers(plan).map(player).collect();
        let heard = round_of(network, &mut players, plan.run_s, make(), stop)?;

        let said = heard.collector.bytes(heard.now_ns);
        for (player, number) in players.iter().zip(numbers(plan)) {
            let tally = heard.tallies.get(&number);
            runs.extend(tally.and_then(|tally| player.played.shown(tally, &said)));
        }
    }
    Ok(runs)
}

/// The agents' numbers.
pub(super) fn numbers(plan: &Plan) -> impl Iterator<Item = u8> + use<> {
    1..=plan.agents.clamp(1, 250) as u8
}

/// A separate seed for each agent of each round.
pub(super) fn seed(plan: &Plan, loss: f64, round: u64, number: u8) -> u64 {
    plan.seed << 50 ^ 1 << 49 ^ ((loss * 1e6) as u64) << 28 ^ round << 8 ^ u64::from(number)
}

/// Runs the agents for `seconds`, or until stopped.
pub(super) fn round_of(
    network: &Network,
    players: &mut [Player],
    seconds: f64,
    collector: Box<dyn Collector>,
    stop: &AtomicBool,
) -> Result<Heard, Error> {
    let to_host = network.host(End::H2);
    let bind = |host: &crate::network::Host| host.run(|| UdpSocket::bind((host.ipv4(), 0)));
    let (sender, receiver) = (bind(network.host(End::H1))??, bind(to_host)??);
    sys::socket::set_receive_buffer(receiver.as_fd(), RECEIVE_BUFFER_BYTES)?;
    network.prepare(End::H2, &receiver)?;
    let to = receiver.local_addr()?;

    let (began, began_ns) = (Instant::now(), monotonic_ns());
    let sent_all = AtomicBool::new(false);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let sent = send(players, &sender, to, (began, seconds), stop);
            sent_all.store(true, Ordering::Release);
            sent
        });
        let heard = listen(&receiver, began_ns, collector, &sent_all);
        sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(heard?)
    })
}

/// Sends each datagram when it is due.
fn send(
    players: &mut [Player],
    socket: &UdpSocket,
    to: SocketAddr,
    (began, seconds): (Instant, f64),
    stop: &AtomicBool,
) -> io::Result<()> {
    let first = players.iter_mut().map(|player| {
        let mut bytes = Vec::new();
        (player.next_datagram(&mut bytes), bytes)
    });
    let mut due: Vec<(f64, Vec<u8>)> = first.collect();

    while finished(stop) {
        let earliest = due.iter().enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0));
        let Some((index, &(at_s, _))) = earliest else { return Ok(()) };
        if at_s > seconds {
            return Ok(());
        }

        let wait = Duration::from_secs_f64(at_s).saturating_sub(began.elapsed());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
        let (due_s, bytes) = &mut due[index];
        socket.send_to(bytes, to)?;
        *due_s = players[index].next_datagram(bytes);
    }
    Ok(())
}

/// Receives datagrams until all were sent and no more arrive, and asks the collector which destinations exceeded
/// the limit.
fn listen(
    socket: &UdpSocket,
    began_ns: u64,
    collector: Box<dyn Collector>,
    sent_all: &AtomicBool,
) -> io::Result<Heard> {
    const WAIT: Duration = Duration::from_millis(10);
    socket.set_read_timeout(Some(WAIT))?;
    let (tallies, passed) = (HashMap::<u8, Tally>::new(), Vec::new());
    let mut heard = Heard { collector, tallies, passed, now_ns: began_ns };
    let (mut buffer, mut look_ns) = (vec![0; DATAGRAM_BYTES], began_ns);
    let mut last = Instant::now();

    loop {
        match socket.recv(&mut buffer) {
            Ok(len) => {
                (last, heard.now_ns) = (Instant::now(), monotonic_ns());
                heard.collector.datagram(&buffer[..len], heard.now_ns);
                if let Ok(datagram) = Datagram::parse(&buffer[..len])
                    && let Some(agent) = agent_of(&datagram)
                {
                    heard.tallies.entry(agent).or_default().take(&datagram);
                }
            }
            Err(error) if is_timeout(&error) => {
                if sent_all.load(Ordering::Acquire) && last.elapsed() >= DRAIN {
                    return Ok(heard);
                }
            }
            Err(error) => return Err(error),
        }

        let now_ns = monotonic_ns();
        if now_ns >= look_ns {
            look_ns = now_ns + LOOK_EVERY.as_nanos() as u64;
            let passed = heard.collector.passed(now_ns);
            // The time after the query, which takes longer with many flows.
            let told_s = (monotonic_ns() - began_ns) as f64 / 1e9;
            heard.passed.extend(passed.into_iter().map(|dst| (dst, told_s)));
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
