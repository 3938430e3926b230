//! `weir gen sflow`: simulated agents that sample imaginary traffic.

mod flood;

use crate::addresses;
use crate::exit::{self, Failure};
use crate::screen::Room;
use ::load::sflow::{Agent, AgentOptions, TrueFlow};
use ::load::{Address, Random};
use ::text::units::{
    parse_bit_rate, parse_count, parse_count_of, parse_duration, parse_per_sec, parse_percent,
    parse_size,
};
use ::text::{bit_rate, grouped};
use config::TargetAddress;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use sys::signal::stop_flag;

/// Send the sFlow of many agents, with traffic whose true figures are known
///
/// Each agent has one interface with the same flows; the heaviest has half of the traffic, the next a quarter, and so on. The true
/// rate of every flow is printed at the end, to compare with what a collector shows.
///
/// Example: weir gen sflow --to 127.0.0.1:6343 --agents 10 --traffic 10Gbit --loss 20
#[derive(clap::Args)]
pub(super) struct Args {
    /// Where to send: HOST:PORT
    #[arg(long, value_name = "ADDR")]
    to: TargetAddress,
    /// Agents, with addresses from 192.0.2.1 on
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count::<u32>)]
    agents: u32,
    /// Traffic of each agent's interface
    #[arg(long, value_name = "RATE", default_value = "1Gbit", value_parser = parse_bit_rate)]
    traffic: u64,
    /// Sampling rate: one in N frames is sampled
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse_count::<u32>)]
    sampling_rate: u32,
    /// Flows of each agent
    #[arg(long, value_name = "N", default_value = "4", value_parser = parse_count_of::<1, 255, u8>)]
    flows: u8,
    /// Bytes of each frame
    #[arg(long, value_name = "BYTES", default_value = "1000", value_parser = parse_size::<u32>)]
    frame_bytes: u32,
    /// Send N datagrams a second instead, of about 1.2 kB with five samples each, independent of the traffic; 0 for as many as possible
    #[arg(long, value_name = "N", value_parser = parse_per_sec::<u32>, conflicts_with_all = ["traffic", "sampling_rate", "frame_bytes", "loss", "seed"])]
    rate: Option<u32>,
    /// Percentage of datagrams that are made but not sent
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = parse_percent)]
    loss: f64,
    /// Stop after this time; 0s for never
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    duration: Duration,
    /// The same seed gives the same datagrams
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Address::Udp(to) = addresses::target(&args.to)? else {
        return Err(Failure::Usage.error("sFlow is sent over UDP: --to takes HOST:PORT"));
    };
    let is_some = args.flows > 0 && args.agents > 0 && args.traffic > 0 && args.sampling_rate > 0;
    let is_frame = (64..=9_216).contains(&args.frame_bytes);
    if !is_some || !is_frame || !(0.0..=100.0).contains(&args.loss) {
        let wanted = "--flows, --agents, --traffic and --sampling-rate are at least 1, --frame-bytes is 64 to 9216, --loss 0 to 100";
        return Err(Failure::Usage.error(wanted));
    }

    if let Some(rate) = args.rate {
        let text = flood::send(args, rate, to)?;
        return exit::print_and_end(&text, ExitCode::SUCCESS);
    }
    let sent = send(args, to)?;
    let text = Room::of(&io::stdout()).folded(&report(args, &sent));
    exit::print_and_end(&text, ExitCode::SUCCESS)
}

struct Sent {
    datagrams: u64,
    /// Generated but not sent, to simulate loss.
    lost: u64,
    /// Refused by the system.
    failed: u64,
}

fn send(args: &Args, to: SocketAddr) -> anyhow::Result<Sent> {
    let socket = connect(to)?;
    let stop = stop_flag()?;

    let mut agents: Vec<Agent> = (0..args.agents).map(|number| agent(args, number)).collect();
    let mut bytes = vec![Vec::new(); agents.len()];
    let mut due: BinaryHeap<Reverse<(Duration, usize)>> = BinaryHeap::new();
    for (number, (agent, bytes)) in agents.iter_mut().zip(&mut bytes).enumerate() {
        due.push(Reverse((agent.next_datagram(bytes), number)));
    }

    let (start, mut random) = (Instant::now(), Random::seeded(!args.seed));
    let mut sent = Sent { datagrams: 0, lost: 0, failed: 0 };
    while let Some(Reverse((at, number))) = due.pop() {
        if args.duration > Duration::ZERO && at >= args.duration {
            break;
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        while let Some(wait) = at.checked_sub(start.elapsed()).filter(|wait| !wait.is_zero()) {
            if stop.load(Ordering::Relaxed) {
                return Ok(sent);
            }
            sys::poll::pause(wait.min(Duration::from_millis(100)));
        }

        if random.unit() * 100.0 < args.loss {
            sent.lost += 1;
        } else {
            match socket.send(&bytes[number]) {
                Ok(_) => sent.datagrams += 1,
                Err(_) => sent.failed += 1,
            }
        }
        due.push(Reverse((agents[number].next_datagram(&mut bytes[number]), number)));
    }
    Ok(sent)
}

fn connect(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket)
}

fn agent(args: &Args, number: u32) -> Agent {
    let options = AgentOptions {
        address: Ipv4Addr::from_bits(Ipv4Addr::new(192, 0, 2, 1).to_bits() + number).into(),
        sampling_rate: args.sampling_rate,
        ..AgentOptions::default()
    };
    Agent::new(options, flows(args), args.seed.wrapping_add(number.into()))
}

/// Flows with half the traffic, a quarter, and so on; the last two are equal.
fn flows(args: &Args) -> Vec<TrueFlow> {
    let frames_per_s = args.traffic as f64 / 8.0 / f64::from(args.frame_bytes);
    let share = |flow: u8| {
        let halves = (flow + 1).min(args.flows - 1);
        0.5f64.powi(halves.into())
    };
    let flow = |number: u8| TrueFlow {
        src: Ipv4Addr::new(10, 0, 0, number + 1),
        dst: Ipv4Addr::new(198, 51, 100, 1),
        protocol: 17,
        src_port: 53,
        dst_port: 40_000 + u16::from(number),
        frame_bytes: args.frame_bytes,
        frames_per_s: frames_per_s * share(number),
    };
    (0..args.flows).map(flow).collect()
}

fn report(args: &Args, sent: &Sent) -> String {
    let mut text = format!("sent {} datagrams", grouped(sent.datagrams));
    if sent.lost > 0 {
        text.push_str(&format!(", lost {} on purpose", grouped(sent.lost)));
    }
    if sent.failed > 0 {
        text.push_str(&format!(", {} refused by the system", grouped(sent.failed)));
    }
    text.push_str("\ntrue rate of each flow, at each agent:\n");
    for flow in flows(args) {
        let rate = bit_rate(flow.frames_per_s * f64::from(flow.frame_bytes) * 8.0);
        text.push_str(&format!("{:<16}{rate:>14}\n", flow.src.to_string()));
    }
    text
}
