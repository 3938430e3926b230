//! The admin server and the StatsD push, on a thread of their own: no data passes there.

use crate::exit::Failure;
use admin::{AdminState, Health, Page, statsd};
use ledger::Ledger;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use weir::config::{AdminConfig, AdminListen, StatsdConfig};

/// Longest wait for the end of the thread: answers under way and the last push have a second each, side by side.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// Time between two looks at whether it has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A running admin thread.
pub(crate) struct Http {
    /// Dropping it ends the thread.
    stop: watch::Sender<()>,
    thread: JoinHandle<()>,
}

/// What became of the thread at a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopped {
    Ended,
    /// It still runs.
    LeftBehind,
}

/// What the admin thread shows.
pub(crate) struct Shown {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) health: Arc<Health>,
    /// Outlives the thread, so that a reload does not take counts back.
    pub(crate) statsd: Arc<statsd::Counts>,
    /// `None` without a socket collector.
    pub(crate) sockets: Option<Page>,
}

/// Binds the admin server's address; `None` when it is off.
///
/// # Errors
/// The address cannot be had; the message says what to do.
pub(crate) fn bind(config: &AdminConfig) -> anyhow::Result<Option<TcpListener>> {
    let AdminListen::On(addr) = config.listen else { return Ok(None) };
    let bound = TcpListener::bind(addr).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map(Some).map_err(|error| cannot_bind(addr, &error))
}

fn cannot_bind(addr: SocketAddr, error: &io::Error) -> anyhow::Error {
    let (failure, why) = match error.kind() {
        io::ErrorKind::AddrInUse => (
            Failure::Unavailable,
            format!(
                "another program holds the port. Find it with: ss -tlpn 'sport = :{}', or give another address \
                 (or off) as admin.listen",
                addr.port()
            ),
        ),
        io::ErrorKind::PermissionDenied => {
            (Failure::Permission, "choose a port from 1024 on as admin.listen".to_owned())
        }
        _ => (Failure::Unavailable, "choose another address as admin.listen".to_owned()),
    };
    failure.error(format!("cannot serve HTTP on {addr}: {error}: {why}"))
}

impl Http {
    /// Serves and pushes until [`stop`](Http::stop); `None` when there is nothing to do.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        listener: Option<TcpListener>,
        push: Option<&StatsdConfig>,
        shown: &Shown,
    ) -> io::Result<Option<Http>> {
        if listener.is_none() && push.is_none() {
            return Ok(None);
        }
        let addr = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let bind = addr.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |addr| addr.ip());
        let mut state = AdminState::new(Arc::clone(&shown.ledger), Arc::clone(&shown.health), bind);
        state.statsd = Arc::clone(&shown.statsd);
        state.sockets.clone_from(&shown.sockets);
        let push = push.map(|config| statsd::Options {
            to: config.to.to_string(),
            prefix: config.prefix.clone(),
            interval: config.interval,
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(());
        let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || {
            // Where it is forbidden, requests compete with the data loops.
            sys::process::lower_thread_priority();
            runtime.block_on(work(listener, push, Arc::new(state), stopped));
            // A name that is still being looked up must not hold up the end.
            runtime.shutdown_background();
        })?;
        Ok(Some(Http { stop, thread }))
    }

    /// Ends the thread; answers under way and the last push have a moment. One that hangs all the same is left behind: it
    /// goes with the process.
    pub(crate) fn stop(self, mut keep_alive: impl FnMut()) -> Stopped {
        drop(self.stop);
        let give_up_at = Instant::now() + STOP_LIMIT;
        while !self.thread.is_finished() && Instant::now() < give_up_at {
            keep_alive();
            thread::park_timeout(LOOK_INTERVAL);
        }
        if !self.thread.is_finished() {
            return Stopped::LeftBehind;
        }
        // A thread that panicked has said so on standard error.
        let _ = self.thread.join();
        Stopped::Ended
    }
}

async fn work(
    listener: Option<TcpListener>,
    push: Option<statsd::Options>,
    state: Arc<AdminState>,
    stopped: watch::Receiver<()>,
) {
    let until_stop = |mut stopped: watch::Receiver<()>| async move {
        // Nothing is ever sent: the wait ends when the sender is dropped.
        while stopped.changed().await.is_ok() {}
    };
    let pushing = push.map(|options| {
        let pushing = statsd::push(options, Arc::clone(&state), until_stop(stopped.clone()));
        tokio::spawn(pushing)
    });
    if let Some(listener) = listener {
        match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => {
                if let Err(error) = admin::serve(listener, state, until_stop(stopped)).await {
                    tracing::error!("the admin server has ended: {error}");
                }
            }
            Err(error) => tracing::error!("the admin server cannot start: {error}"),
        }
    }
    if let Some(pushing) = pushing {
        // It limits itself. One that panicked has said so on standard error.
        let _ = pushing.await;
    }
}
