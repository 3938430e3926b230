//! `weir lab relay`: the rate at which a relay begins to lose.

mod ours;
mod stages;

use super::{Out, Running, each_once, for_people, privilege};
use crate::addresses;
use crate::exit::Failure;
use crate::progress::{ProgressMode, with_progress};
use crate::refused::by_load;
use ::load::Payload;
use ::load::search::Rates;
use config::{ListenAddress, TargetAddress};
use lab::About;
use lab::network::Properties;
use lab::relay_sweep::{
    self, Combination, Curve, Elsewhere, Error, Loopback, Plan, Progress, Relay, Sweep,
};
use lab::report::RelayReport;
use ours::Ours;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use text::grouped;
use text::units::{parse_count_of, parse_duration, parse_per_sec, parse_percent, parse_size};

/// Send marked datagrams through a relay at growing rates, and draw where it begins to lose, and how late it delivers
///
/// Without --to it starts `weir relay` itself, on loopback in a network namespace of its own, and shows its ledger next to what the
/// receivers miss. With --to and --receive it measures any relay that runs already: --to is where that relay takes
/// datagrams, --receive the addresses on this host to which it has been configured to send them.
///
/// Sizes, targets and flows are varied one at a time, from the first of each list. For each, the rate is doubled until
/// something is missing, and the interval in which loss begins is then halved. Takes about five minutes. Writes a page,
/// charts, CSV and JSON to a folder. Ctrl-C ends it with a report of what was measured until then.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Address of a relay that is already running: udp://HOST:PORT, HOST:PORT or unix:/path
    #[arg(long, value_name = "ADDR", requires = "receive")]
    to: Option<TargetAddress>,
    /// Address to which that relay sends; may be given several times, once per target
    #[arg(long, value_name = "ADDR", requires = "to")]
    receive: Vec<ListenAddress>,
    /// Bytes of a datagram, at least 48
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_value = "64,200,1400", value_parser = parse_size::<usize>)]
    sizes: Vec<usize>,
    /// Targets of the relay
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4", conflicts_with = "to", value_parser = parse_count_of::<1, 64, u16>)]
    targets: Vec<u16>,
    /// Source sockets
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16,256", value_parser = parse_count_of::<1, 4096, u16>)]
    flows: Vec<u16>,
    /// Datagrams per second: auto searches for the rate at which loss begins, a list (10k,50k,200k) is measured as given
    #[arg(long, value_name = "auto|RATE,…", default_value = "auto", value_parser = parse_rates)]
    rates: Rates,
    /// Measure every combination of size, targets and flows
    #[arg(long)]
    all_combinations: bool,
    /// Measure what each stage of Weir's relay costs, with the first of --sizes, and predict the rates of larger machines
    ///
    /// Prints the costs, the prediction for this machine beside what it does, and the predictions for 4, 16 and 64 processors.
    /// Takes two minutes with --duration 1s. Writes no report.
    #[arg(long, conflicts_with_all = ["to", "targets", "flows", "rates", "all_combinations", "tolerance", "out"])]
    stages: bool,
    /// Print figures as JSON instead of the tables
    #[arg(long)]
    json: bool,
    /// Length of one measurement
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    duration: Duration,
    /// Percentage of datagrams that may be missing in a run that counts as free of loss
    #[arg(long, value_name = "PERCENT", default_value = "0.1", value_parser = parse_percent)]
    tolerance: f64,
    #[command(flatten)]
    out: Out,
    /// Progress on standard error
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
}

/// Longest sensible duration for one of many measurements.
const DURATION_MAX: Duration = Duration::from_secs(3_600);

impl Args {
    fn plan(&self) -> anyhow::Result<Plan> {
        let usage = |text: &str| Err(Failure::Usage.error(text));
        if self.duration < Duration::from_millis(100) || self.duration > DURATION_MAX {
            return usage("--duration: a measurement takes 100ms to 1h");
        }
        if !(0.0..100.0).contains(&self.tolerance) {
            return usage("--tolerance: it is a percentage below 100");
        }

        let least = Payload::Binary.size_min_bytes();
        if self.sizes.iter().any(|size| !(least..=65_507).contains(size)) {
            return usage(&format!("--sizes: a datagram has {least} to 65507 bytes"));
        }

        let wide = |list: &[u16]| each_once(list.iter().map(|&n| usize::from(n)));
        let targets = match self.to {
            Some(_) => vec![self.receive.len()],
            None => wide(&self.targets),
        };
        let combine =
            if self.all_combinations { Combination::all } else { Combination::one_at_a_time };

        Ok(Plan {
            combinations: combine(&each_once(self.sizes.clone()), &targets, &wide(&self.flows)),
            rates: self.rates.clone(),
            duration: self.duration,
            tolerance: self.tolerance / 100.0,
        })
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.stages {
        return stages::run(args);
    }
    let plan = args.plan()?;
    let place = Place::of(args)?;
    let running = Running::begin(&args.out, "weir-lab-relay")?;

    let state: Mutex<Option<Progress>> = Mutex::default();
    let line = || progress_line(*state.lock().unwrap_or_else(|e| e.into_inner()));
    let measure = || place.measure(&plan, running.stop, &state);
    let curves = with_progress(args.progress, line, measure)?;
    let interrupted = running.stop.load(Ordering::Relaxed);
    if curves.is_empty() {
        return Err(Failure::Unavailable.error("ended before anything was measured"));
    }

    let notes = busy(running.beginning.load).into_iter().collect();
    let sweep = Sweep {
        about: About { interrupted, ..running.beginning.end(&Properties::of_kernel(), notes) },
        relay: place.describe(),
        duration_s: plan.duration.as_secs_f64(),
        tolerance: plan.tolerance,
        curves,
    };
    let report = RelayReport::new(&sweep);
    let text = match args.json {
        true => serde_json::to_string_pretty(&sweep)? + "\n",
        false => for_people(|columns, ink| report.terminal(columns, ink)),
    };
    running.end(|folder| report.write(folder), &text, ExitCode::SUCCESS)
}

/// A note if other work was running, which affects a measurement that uses every processor.
fn busy(load_before: Option<f64>) -> Option<String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let load = load_before.filter(|load| *load > 0.25 * processors as f64)?;
    Some(format!(
        "The load average was {load:.2} on {processors} processors before it began: without other work loss begins later."
    ))
}

/// Where the relay runs.
enum Place {
    Ours(Loopback),
    Elsewhere(Elsewhere),
}

impl Place {
    /// Must be called before the first thread is started.
    fn of(args: &Args) -> anyhow::Result<Place> {
        if let Some(to) = &args.to {
            let receive: Result<_, _> = args.receive.iter().map(addresses::listener).collect();
            return Ok(Place::Elsewhere(Elsewhere {
                to: addresses::target(to)?,
                receive: receive?,
            }));
        }
        privilege::acquire()?;
        Ok(Place::Ours(Loopback::create().map_err(|error| privilege::network_error(&error))?))
    }

    fn describe(&self) -> String {
        match self {
            Place::Ours(_) => format!(
                "weir relay {} on loopback in a network namespace of its own",
                env!("CARGO_PKG_VERSION")
            ),
            Place::Elsewhere(relay) => format!("the relay at {}", relay.to),
        }
    }

    fn measure(
        &self,
        plan: &Plan,
        stop: &AtomicBool,
        state: &Mutex<Option<Progress>>,
    ) -> anyhow::Result<Vec<Curve>> {
        let tell = |progress| *state.lock().unwrap_or_else(|e| e.into_inner()) = Some(progress);
        let sweep = |relay: &mut dyn Relay| relay_sweep::run(plan, relay, stop, &tell);
        let measured = match self {
            // The relay is killed when the thread that started it ends. That is this thread, which lasts as long as the sweep.
            Place::Ours(network) => network
                .run(|| sweep(&mut Ours::default()))
                .map_err(|error| privilege::network_error(&error))?,
            Place::Elsewhere(relay) => sweep(&mut relay.clone()),
        };
        measured.map_err(|error| match &error {
            Error::Relay(source) => Failure::Unavailable.error(format!("{error}: {source}")),
            Error::Load(error) => by_load(error),
        })
    }
}

fn progress_line(progress: Option<Progress>) -> String {
    let Some(Progress { combination, number, combinations, offered_per_sec }) = progress else {
        return "starting".to_owned();
    };
    let Combination { size_bytes, targets, flows } = combination;
    format!(
        "combination {} of {combinations} (bytes: {size_bytes}, targets: {targets}, flows: {flows}): {}/s",
        number + 1,
        grouped(offered_per_sec)
    )
}

fn parse_rates(text: &str) -> Result<Rates, String> {
    if text == "auto" {
        return Ok(Rates::Search { first: 10_000, highest: 10_000_000 });
    }
    let rates: Vec<u64> = text.split(',').map(parse_per_sec).collect::<Result<_, _>>()?;
    if rates.contains(&0) {
        return Err("a rate of 0 is nothing. Fix: write for example 10k".to_owned());
    }
    Ok(Rates::List(rates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_searched_or_given() {
        assert!(matches!(parse_rates("auto"), Ok(Rates::Search { .. })));
        assert_eq!(parse_rates("1k,2.5k"), Ok(Rates::List(vec![1_000, 2_500])));
        for wrong in ["", "0", "1k,", "fast"] {
            assert!(parse_rates(wrong).is_err(), "{wrong}");
        }
    }
}
