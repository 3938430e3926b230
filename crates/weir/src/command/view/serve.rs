//! Serves a fleet's page with the admin server.

use crate::fleet::Fleet;
use crate::fleet::pages::{TIME_MAX, pages};
use crate::refused::{Wanted, refused};
use admin::{AdminState, Health, Query, View};
use anyhow::Context as _;
use ledger::Ledger;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::signal::stop_flag;

/// Threads that wait for ClickHouse, and spare ones.
const BLOCKING_THREADS_MAX: usize = 4;

/// Time between two looks at the flag that a signal sets.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Serves until a signal.
pub(super) fn run(
    at: &str,
    host: Option<&str>,
    config: &Path,
    listen: SocketAddr,
) -> anyhow::Result<ExitCode> {
    let fleet = Fleet::open(at, config, host.map(str::to_owned), TIME_MAX)?;
    let stop = stop_flag()?;
    let listener = bind(listen).map_err(|error| {
        refused(format_args!("cannot serve the page on {listen}"), Wanted::Tcp(listen), &error)
    })?;
    let addr = listener.local_addr().context("the address of the page")?;

    // No hops and no data loops: only what answers questions.
    let ledger = Arc::new(Ledger::new(String::new()));
    let health = Arc::new(Health::new(Duration::MAX));
    let mut state = AdminState::new(ledger, health, addr.ip());
    state.view = View::Fleet;
    state.query = Some(Query { pages: pages(fleet) });

    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()?;
    crate::command::sockets::tell(format_args!("the fleet's page is at http://{addr}/"));
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        admin::serve(listener, Arc::new(state), until(stop)).await
    });
    // A question that still waits for its answer must not hold up the end.
    runtime.shutdown_background();
    served.context("the page")?;
    Ok(ExitCode::SUCCESS)
}

fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn until(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
