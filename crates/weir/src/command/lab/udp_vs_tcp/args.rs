//! The command line, and the plan that it asks for.

use crate::command::lab::{Out, each_once};
use crate::exit::Failure;
use crate::progress::ProgressMode;
use clap::ValueEnum;
use lab::experiment::model::Schedule;
use lab::experiment::preset::Plan;
use lab::network::{PathLoss, Span};
use lab::transport;
use std::time::Duration;
use text::units::{
    parse_bit_rate, parse_count_of, parse_duration, parse_per_sec, parse_percent, parse_size,
};

/// Send telemetry over UDP and over TCP through a network that loses packets, and draw what arrives, and how late
///
/// Builds two hosts and a switch, drops packets at random on their links, and runs each transport at each loss several
/// times, as "UDP vs TCP for telemetry" (blog.sflow.com, 2022-02-14) did once. Prints a table, and writes a page, charts,
/// CSV and JSON to a folder. Takes about 15 minutes; --quick 65 seconds, --article 40 minutes.
/// Ctrl-C ends it with a report of what was measured until then.
#[derive(clap::Args)]
pub(in crate::command::lab) struct Args {
    /// Five losses, three transports, 65 seconds: the order and the direction, not the tail
    #[arg(long, conflicts_with = "article")]
    quick: bool,
    /// The article's two transports, in runs of 20 minutes: long enough for its delays of many seconds
    #[arg(long)]
    article: bool,
    /// Losses in percent, one way, of the whole path: 0,5,10,20
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', value_parser = parse_percent)]
    loss: Vec<f64>,
    /// The losses are those of each link, of which a path has two: 10 per link is 19 per path
    #[arg(long, requires = "loss")]
    pub(super) per_link: bool,
    /// Which transports: udp, tcp-cubic, tcp-cubic-nodelay, tcp-bbr, tcp-reno, tcp-cubic-rto1s, tcp-cubic-bounded,
    /// tcp-cubic-syslog, weir-hop, or all
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_transport)]
    transports: Vec<String>,
    /// When messages are made: after a pause, or at fixed times whatever became of the ones before; or both
    #[arg(long, value_enum, value_name = "closed,open", value_delimiter = ',')]
    schedule: Vec<ScheduleName>,
    /// Independent runs of each transport at each loss; five and more have intervals worth the name [default: 5, --article 6]
    #[arg(long, value_name = "N", value_parser = parse_count_of::<1, 1_000, u32>)]
    runs: Option<u32>,
    /// Length of a run [default: 85s, --quick 1m, --article 20m]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Messages per second of each flow [default: 100]
    #[arg(long, value_name = "PER_SEC", value_parser = parse_per_sec::<u64>)]
    rate: Option<u64>,
    /// Bytes of a message [default: 1000]
    #[arg(long, value_name = "SIZE", value_parser = parse_size::<usize>)]
    message_size: Option<usize>,
    /// Lose this many packets of a flow one after another, on average, instead of each packet by itself
    #[arg(long, value_name = "PACKETS")]
    loss_burst: Option<f64>,
    /// Time there and back that the network adds, half of it each way
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    round_trip: Option<Duration>,
    /// What the path carries each way, behind a queue of 50 ms: 8Mbit/s
    #[arg(long, value_name = "RATE", value_parser = parse_bit_rate)]
    bandwidth: Option<u64>,
    #[command(flatten)]
    pub(super) out: Out,
    /// Print figures as JSON instead of the table
    #[arg(long)]
    pub(super) json: bool,
    /// Progress on standard error
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    pub(super) progress: ProgressMode,
}

/// Schedules by their names on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ScheduleName {
    /// Send, pause, send, as in the article
    Closed,
    /// At fixed times
    Open,
}

/// Upper limit for durations, so that sums do not overflow.
const DURATION_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Most bytes that fit a datagram over IPv4.
const MESSAGE_BYTES_MAX: usize = 65_507;
const RATE_MAX_PER_SEC: u64 = 50_000;
/// A satellite round trip takes a third of this.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(2);
const BURST_MAX_PACKETS: f64 = 1_000.0;
const BITS_MIN_PER_SEC: u64 = 64_000;
/// Each flow has two sockets, and the usual descriptor limit is 1024.
const FLOWS_MAX: usize = 400;

impl Args {
    /// The plan to run.
    ///
    /// # Errors
    /// A value is out of its range.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let preset = match (self.quick, self.article) {
            (true, _) => Plan::quick(),
            (_, true) => Plan::article(),
            _ => Plan::standard(),
        };

        let plan = Plan {
            losses: or(self.losses()?, preset.losses),
            transports: or(self.transports(), preset.transports),
            schedules: or(self.schedules(), preset.schedules),
            runs: self.runs.unwrap_or(preset.runs),
            duration: self.duration.unwrap_or(preset.duration),
            message_bytes: self.message_size.unwrap_or(preset.message_bytes),
            rate_per_sec: self.rate.map_or(preset.rate_per_sec, |rate| rate as f64),
            span: Span {
                round_trip: self.round_trip.unwrap_or_default(),
                bits_per_sec: self.bandwidth,
                burst_packets: self.loss_burst,
            },
            preset: preset.preset,
        };

        let usage = |text: &str| Err(Failure::Usage.error(text));
        if plan.duration < Duration::from_secs(1) || plan.duration > DURATION_MAX {
            return usage("--duration: a run takes 1s to 7d");
        }
        if !(16..=MESSAGE_BYTES_MAX).contains(&plan.message_bytes) {
            return usage("--message-size: a message has 16 to 65507 bytes");
        }
        if self.rate.is_some_and(|rate| !(1..=RATE_MAX_PER_SEC).contains(&rate)) {
            return usage("--rate: a flow has 1 to 50000 messages per second");
        }
        if plan.span.round_trip > ROUND_TRIP_MAX {
            return usage("--round-trip: at most 2s");
        }
        if plan.span.bits_per_sec.is_some_and(|bits| bits < BITS_MIN_PER_SEC) {
            return usage("--bandwidth: at least 64kbit/s");
        }
        if plan
            .span
            .burst_packets
            .is_some_and(|packets| !(1.0..=BURST_MAX_PACKETS).contains(&packets))
        {
            return usage("--loss-burst: 1 to 1000 packets");
        }
        if plan.flows_of_one_loss() > FLOWS_MAX {
            return usage(
                "--runs, --transports, --schedule: together at most 400 flows at one loss",
            );
        }

        Ok(plan)
    }

    /// Loss of the whole path, from 0 to 1, each value once.
    fn losses(&self) -> anyhow::Result<Vec<f64>> {
        let one = |&percent: &f64| {
            let loss = match self.per_link {
                true => PathLoss::per_link(percent / 100.0),
                false => PathLoss::per_path(percent / 100.0),
            };
            let loss = loss.map(PathLoss::path).filter(|loss| *loss < 1.0).ok_or_else(|| {
                Failure::Usage.error(format!("--loss: {percent} is not a percentage below 100. Fix: write for example --loss 0,5,10"))
            })?;
            // Rounding undoes the error of the square root, so that the value is the one that was typed.
            Ok((loss * 1e9).round() / 1e9)
        };
        self.loss.iter().map(one).collect::<anyhow::Result<Vec<_>>>().map(each_once)
    }

    fn transports(&self) -> Vec<String> {
        let one_or_all = |asked: &String| match asked.as_str() {
            ALL => transport_names(),
            _ => vec![asked.clone()],
        };
        each_once(self.transports.iter().flat_map(one_or_all))
    }

    fn schedules(&self) -> Vec<Schedule> {
        each_once(self.schedule.iter().map(|name| match name {
            ScheduleName::Closed => Schedule::ClosedLoop,
            ScheduleName::Open => Schedule::OpenLoop,
        }))
    }
}

fn or<T>(asked: Vec<T>, preset: Vec<T>) -> Vec<T> {
    if asked.is_empty() { preset } else { asked }
}

/// The word for every transport.
const ALL: &str = "all";

fn transport_names() -> Vec<String> {
    transport::all().iter().map(|one| one.name().0).collect()
}

fn parse_transport(text: &str) -> Result<String, String> {
    if text == ALL || transport::named(text).is_some() {
        return Ok(text.to_owned());
    }
    Err(format!(
        "it is none of these words. Fix: write one of {}, all",
        transport_names().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn plan(line: &str) -> anyhow::Result<Plan> {
        let words = std::iter::once("lab").chain(line.split_whitespace());
        Cli::try_parse_from(words)?.args.plan()
    }

    #[test]
    fn the_help_names_the_defaults_of_the_presets() {
        let help = <Cli as clap::CommandFactory>::command().render_help().to_string();
        let [default, quick, article] =
            ["", "--quick", "--article"].map(|line| plan(line).unwrap());
        let time = text::units::display_duration;
        for wanted in [
            format!("[default: {}, --article {}]", default.runs, article.runs),
            format!(
                "[default: {}, --quick {}, --article {}]",
                time(default.duration),
                time(quick.duration),
                time(article.duration)
            ),
            format!("[default: {}]", default.rate_per_sec),
            format!("[default: {}]", default.message_bytes),
        ] {
            assert!(help.contains(&wanted), "{wanted}: {help}");
        }
        assert_eq!(quick.runs, default.runs);
    }

    #[test]
    fn presets_and_what_changes_them() {
        assert_eq!(plan("").unwrap().preset, "default");
        assert_eq!(plan("--article").unwrap().runs, 6);
        let quick = plan(
            "--quick --loss 0,5,5,0.5 --transports udp,tcp-bbr --schedule open,closed --runs 2 --duration 3s \
             --rate 50 --message-size 200",
        )
        .unwrap();
        assert_eq!(quick.losses, [0.0, 0.05, 0.005]);
        assert_eq!(quick.transports, ["udp", "tcp-bbr"]);
        assert_eq!(quick.schedules, [Schedule::OpenLoop, Schedule::ClosedLoop]);
        assert_eq!((quick.runs, quick.duration), (2, Duration::from_secs(3)));
        assert_eq!((quick.rate_per_sec, quick.message_bytes), (50.0, 200));
        assert_eq!(plan("--transports all,udp").unwrap().transports.len(), 9);
    }

    #[test]
    fn losses_are_of_the_path_or_of_each_link() {
        assert_eq!(plan("--loss 19").unwrap().losses, [0.19]);
        assert_eq!(plan("--loss 10%,5 --per-link").unwrap().losses, [0.19, 0.0975]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "--loss 100",
            "--loss -1",
            "--loss x",
            "--transports sctp",
            "--schedule both",
            "--runs 0",
            "--duration 10ms",
            "--rate 0",
            "--message-size 15",
            "--per-link",
            "--loss-burst 0.5",
            "--loss-burst NaN",
            "--runs 26",
            "--quick --article",
        ] {
            assert!(plan(line).is_err(), "{line}");
        }
    }
}
