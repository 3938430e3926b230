//! `weir top`: a running daemon, live.

mod draw;
mod feed;
mod figures;
mod model;

use crate::ask::Daemon;
use crate::exit::{self, Failure};
use crate::progress::rewrites_lines;
use crate::screen::{Room, ink_of};
use anyhow::Context as _;
use feed::Answer;
use model::{Model, Next};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::Duration;
use sys::signal::stop_flag;
use text::units::parse_duration;

/// Watch a running daemon: rates, losses and what is stuck, worst first
///
/// Asks the daemon's admin address once a second. A daemon that goes away is waited for. Keys: q quits, ? shows the others.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: Daemon,
    /// Time between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// Print one frame as text, with the rates of one interval, and end
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.once {
        return once(args);
    }
    if !rewrites_lines(&io::stdout()) || !rewrites_lines(&io::stdin()) {
        let message = "weir top needs a terminal. Fix: weir top --once, or weir ledger --watch";
        return Err(Failure::Usage.error(message));
    }

    let stop = stop_flag()?;
    let answers = feed::start(&args.daemon, args.interval);
    // The terminal is restored as it was, even after a panic.
    let mut terminal = ratatui::try_init().context("cannot take over the terminal")?;
    let ended = live(&mut terminal, Model::new(&args.daemon.admin), &answers, stop);
    ratatui::restore();
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Columns of a frame when the terminal's width is unknown.
const COLUMNS: usize = 120;

fn once(args: &Args) -> anyhow::Result<ExitCode> {
    let mut model = Model::new(&args.daemon.admin);
    model.take(Ok(feed::answer(&args.daemon)?));
    thread::sleep(args.interval);
    model.take(Ok(feed::answer(&args.daemon)?));

    let columns = Room::of(&io::stdout()).columns.unwrap_or(COLUMNS);
    exit::print_and_end(&draw::frames(&mut model, columns), ExitCode::SUCCESS)
}

/// Longest delay until a key or a signal is noticed.
const LOOK: Duration = Duration::from_millis(100);

fn live(
    terminal: &mut DefaultTerminal,
    mut model: Model,
    answers: &Receiver<Result<Answer, String>>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let ink = ink_of(&io::stdout());
    let mut is_due = true;
    while !stop.load(Ordering::Relaxed) {
        if is_due {
            terminal.draw(|frame| draw::draw(&model, ink, frame.area(), frame.buffer_mut()))?;
            is_due = false;
        }

        if event::poll(LOOK)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let page = draw::page_rows(&model, terminal.size()?.height.into());
                    if model.key(key, page) == Next::Quit {
                        break;
                    }
                }
                _ => {}
            }
            is_due = true;
        }

        match answers.try_recv() {
            Ok(answer) => {
                model.take(answer);
                is_due = true;
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
    }
    Ok(())
}
