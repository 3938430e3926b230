//! `weir top`: a running daemon, live.

mod answers;
mod draw;
#[cfg(test)]
mod example;
mod feed;
mod figures;
mod grid;
mod lines;
mod model;
mod pages;
mod wanted;
mod width;
mod words;

use crate::ask::Daemon;
use crate::exit::{self, Failure};
use crate::progress::rewrites_lines;
use crate::screen::{Room, ink_of};
use anyhow::Context as _;
use feed::{Feed, News};
use model::{Model, Next};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use sys::signal::stop_flag;
use text::units::parse_duration;
use wanted::Page;

/// Watch a running daemon: rates, losses and what is stuck, worst first
///
/// Pages: overview, TCP sockets, closes, flows, sinks. Asks the daemon's admin address once a second, for the page that is shown. A daemon that goes away is waited for. Keys: q quits,
/// ? shows the others.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: Daemon,
    /// Time between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// Print every page once as text, with the rates of one interval, and end
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
    let feed = feed::start(&args.daemon, args.interval);
    // The terminal is restored as it was, even after a panic.
    let mut terminal = ratatui::try_init().context("cannot take over the terminal")?;
    let ended = live(&mut terminal, Model::new(&args.daemon.admin), &feed, stop);
    ratatui::restore();
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Columns of a frame when the terminal's width is unknown.
const COLUMNS: usize = 120;

fn once(args: &Args) -> anyhow::Result<ExitCode> {
    let mut model = Model::new(&args.daemon.admin);
    let ledger = || {
        let ledger = crate::command::ledger::fetch(&args.daemon)?;
        anyhow::Ok(News::Ledger(Ok(Box::new(ledger))))
    };
    model.take(ledger()?);
    thread::sleep(args.interval);
    model.take(ledger()?);
    for page in Page::ALL {
        model.turn_to(page);
        let wanted = model.wanted();
        let news = feed::past(&args.daemon, page).into_iter();
        news.chain(feed::page(&args.daemon, &wanted)).for_each(|news| model.take(news));
    }

    let columns = Room::of(&io::stdout()).columns.unwrap_or(COLUMNS);
    exit::print_and_end(&draw::frames(&mut model, columns), ExitCode::SUCCESS)
}

/// Longest delay until a key or a signal is noticed.
const LOOK: Duration = Duration::from_millis(100);

fn live(
    terminal: &mut DefaultTerminal,
    mut model: Model,
    feed: &Feed,
    stop: &AtomicBool,
) -> io::Result<()> {
    let ink = ink_of(&io::stdout());
    let mut is_due = true;
    let mut asked = None;
    while !stop.load(Ordering::Relaxed) {
        let wanted = model.wanted();
        if asked.as_ref() != Some(&wanted) {
            // The thread ends with this one.
            let _ = feed.wanted.send(wanted.clone());
            asked = Some(wanted);
        }
        if is_due {
            terminal.draw(|frame| draw::draw(&model, ink, frame.area(), frame.buffer_mut()))?;
            is_due = false;
        }

        if event::poll(LOOK)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let size = terminal.size()?;
                    let shown = draw::shown(&model, (size.width.into(), size.height.into()));
                    if model.key(key, shown) == Next::Quit {
                        break;
                    }
                }
                _ => {}
            }
            is_due = true;
        }

        for news in feed.news.try_iter() {
            model.take(news);
            is_due = true;
        }
    }
    Ok(())
}
