//! `weir lab relay --stages`: what each stage costs here, and the rate that this implies for larger machines.

use super::ours::Ours;
use super::{Args, Place, busy};
use crate::command::lab::{beginning, for_people, privilege};
use crate::exit::{self, Failure};
use crate::progress::with_progress;
use crate::refused::by_load;
use lab::About;
use lab::network::Properties;
use lab::stages::{Error, Plan, Stages, measure};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;
use sys::signal::stop_flag;

/// Measurements of each stage; the result is their median.
const REPETITIONS: usize = 3;
/// Shortest useful measurement.
const DURATION_MIN: Duration = Duration::from_millis(100);

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let size_bytes = args.sizes.first().copied().unwrap_or(200);
    let plan = Plan { size_bytes, duration: args.duration, repetitions: REPETITIONS };
    if plan.duration < DURATION_MIN {
        return Err(Failure::Usage.error("--duration: a measurement takes 100ms to 1h"));
    }
    let Place::Ours(network) = Place::of(args)? else {
        return Err(Failure::Usage.error("--stages measures Weir's own relay"));
    };

    let beginning = beginning();
    let stop = stop_flag()?;
    let state = Mutex::new("starting".to_owned());
    let line = || state.lock().unwrap_or_else(|e| e.into_inner()).clone();
    let tell = |text: &str| text.clone_into(&mut state.lock().unwrap_or_else(|e| e.into_inner()));
    let work = || network.run(|| measure(&plan, &mut Ours::default(), stop, &tell));
    let measured = with_progress(args.progress, line, work)
        .map_err(|error| privilege::network_error(&error))?;
    let (costs, known) = measured.map_err(|error| failure(&error))?;

    let notes = busy(beginning.load).into_iter().collect();
    let about: About = beginning.end(&Properties::of_kernel(), notes);
    let stages = Stages::new(about, &plan, costs, known);
    let text = match args.json {
        true => serde_json::to_string_pretty(&stages)? + "\n",
        false => for_people(|columns, ink| stages.terminal(columns, ink)),
    };
    exit::print_and_end(&text, ExitCode::SUCCESS)
}

fn failure(error: &Error) -> anyhow::Error {
    match error {
        Error::Load(error) => by_load(error),
        Error::Relay(source) => Failure::Unavailable.error(format!("{error}: {source}")),
        Error::Processors(source) => Failure::Unavailable.error(format!("{error}: {source}")),
        Error::OneProcessor | Error::Stopped => Failure::Unavailable.error(error.to_string()),
    }
}
