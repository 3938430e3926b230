//! The admin server and the StatsD push, on their own thread; no data passes through it.

mod access;
mod hidden;

use self::access::Access;
pub(crate) use self::access::check_token;
#[cfg(feature = "store")]
pub(crate) use self::hidden::{CONTENTS, FOREIGN_SOCKETS, only_for_known};
pub(crate) use self::hidden::{hidden, link_command, sockets_elsewhere};
use super::flow_pages::{Exported, figures, pages};
use super::flows::Shared;
use super::mitigation::Recent;
use super::open::{SocketFile, make_folder};
use super::rest::Site;
use crate::allowed::users;
use crate::command::version::COMMIT;
use crate::refused::{Wanted, refused};
use crate::run_token::RunToken;
use admin::{AdminState, Changes, Flows, Health, Hidden, Page, Process, Rest, statsd};
use config::{AdminConfig, AdminListen, Config, StatsdConfig};
use ledger::{Ledger, Speaker};
use sockets::helper::Allowed;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sys::socket::{listen_unix_stream, share_socket_file};
use tokio::sync::watch;

/// Longest wait for the thread to end: answers under way and the last push have one second each, in parallel.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// Threads for pages that block. Up to 48 may be taken for long: by 9 lists and 17 rankings of sockets that run or wait, 16 streamed
/// answers about flows, half of them to scripts, 2 queries on the store, and 4 clients that wait for the place of a follower. The others are for answers that take a moment, such
/// as metrics.
const BLOCKING_THREADS_MAX: usize = 64;
/// A silent client is asked after this time whether it is still there.
const LIVENESS_IDLE: Duration = Duration::from_secs(30);
/// A client whose host acknowledges nothing for this long is gone.
const LIVENESS_MAX: Duration = Duration::from_secs(120);
/// Time between two checks whether the thread has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A running admin thread.
pub(crate) struct Http {
    /// Dropping it ends the thread.
    stop: watch::Sender<()>,
    thread: JoinHandle<()>,
}

/// Whether the thread ended at a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopped {
    Ended,
    /// The thread still runs.
    LeftBehind,
}

/// What the admin thread shows.
pub(crate) struct Shown {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) health: Arc<Health>,
    /// The file that SIGHUP reads again.
    pub(crate) config_file: Option<String>,
    /// Outlives the thread, so that a reload does not reset the counts.
    pub(crate) statsd: Arc<statsd::Counts>,
    /// `None` without a socket collector.
    pub(crate) sockets: Option<Page>,
    /// Those of the daemon's own network namespace.
    pub(crate) own_sockets: Option<Page>,
    /// The refusal for unknown users who ask about all sockets; `None` if everybody gets an answer.
    pub(crate) sockets_elsewhere: Option<String>,
    /// What unknown users do not see.
    pub(crate) hidden: Option<Hidden>,
    /// `None` without an analysis.
    pub(crate) flows: Option<ShownFlows>,
    /// `None` without a store.
    pub(crate) query: Option<admin::Query>,
    /// Streams of records.
    pub(crate) records: admin::Records,
}

/// What the server shows of flows.
pub(crate) struct ShownFlows {
    pub(crate) mitigated: Recent,
    pub(crate) shared: Arc<Shared>,
    pub(crate) exported: Arc<Exported>,
    /// The REST API for sFlow-RT scripts, and whether scripts may change things; `None` when it is off.
    pub(crate) rest: Option<(Arc<Site>, Changes)>,
}

/// The admin server's listening sockets.
#[derive(Default)]
pub(crate) struct Bound {
    /// `None` when it is off.
    pub(crate) tcp: Option<TcpListener>,
    /// For known users; `None` without `admin.socket`.
    pub(crate) local: Option<Local>,
    /// For sFlow-RT scripts; `None` without `flows.rest`.
    pub(crate) rest: Option<TcpListener>,
    /// For gRPC; `None` without `admin.grpc`.
    pub(crate) grpc: Option<TcpListener>,
    /// Who may ask at `tcp`.
    access: Access,
    /// What known users show at `tcp`; `None` where everybody sees the same, or the token cannot be left anywhere.
    pub(crate) run_token: Option<Arc<RunToken>>,
}

/// The unix socket for known users.
pub(crate) struct Local {
    listener: UnixListener,
    file: Option<SocketFile>,
    allowed: Allowed,
}

impl Bound {
    /// Binds the addresses that the configuration names.
    ///
    /// # Errors
    /// An address is not available; the message says what to do.
    pub(crate) fn open(config: &Config) -> anyhow::Result<Bound> {
        Bound::default().reopen((&AdminConfig::off(), None), config)
    }

    /// Binds the addresses of another configuration. Sockets that both configurations have stay open.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn reopen(
        &self,
        (now, rest_now): (&AdminConfig, Option<SocketAddr>),
        config: &Config,
    ) -> anyhow::Result<Bound> {
        let wanted = &config.admin;
        let access = Access::read(wanted)?;
        let rest = match rest_address(config) {
            None => None,
            same if same == rest_now => {
                self.rest.as_ref().map(TcpListener::try_clone).transpose()?
            }
            Some(addr) => Some(bind(addr, "flows.rest")?),
        };
        let grpc = match wanted.grpc {
            None => None,
            same if same == now.grpc => {
                self.grpc.as_ref().map(TcpListener::try_clone).transpose()?
            }
            Some(addr) => Some(bind(addr, "admin.grpc")?),
        };
        let tcp = match wanted.listen {
            AdminListen::Off => None,
            same if same == now.listen => {
                self.tcp.as_ref().map(TcpListener::try_clone).transpose()?
            }
            AdminListen::On(addr) => Some(bind(addr, "admin.listen, which may be off")?),
        };

        let uids: Vec<u32> =
            users(&wanted.socket_users)?.into_iter().map(|user| user.uid).collect();
        let run_token = match hidden(config) {
            Some(_) => self.run_token(tcp.as_ref(), &uids),
            None => None,
        };

        let Some(path) = &wanted.socket else {
            return Ok(Bound { tcp, local: None, rest, grpc, access, run_token });
        };
        let own = [sys::process::effective_uid()];
        let allowed = Allowed { uids: uids.into_iter().chain(own).collect() };

        let local = match &self.local {
            // If somebody has removed the file, bind it again.
            Some(local)
                if now.socket.as_ref() == Some(path) && SocketFile::of(path) == local.file =>
            {
                Local { listener: local.listener.try_clone()?, file: local.file.clone(), allowed }
            }
            _ => {
                let listener = make_folder(path).and_then(|()| listen_unix_stream(path));
                let listener = listener.map_err(|error| cannot_listen(path, &error))?;
                Local { listener, file: SocketFile::of(path), allowed }
            }
        };

        // Access is checked when a client connects. The mode only keeps everybody else out of the queue when no users are
        // configured.
        let mode = if wanted.socket_users.is_empty() { 0o600 } else { 0o666 };
        share_socket_file(path, mode, (None, None)).map_err(|error| cannot_listen(path, &error))?;
        Ok(Bound { tcp, local: Some(local), rest, grpc, access, run_token })
    }

    /// The token of this run for the server at `tcp`, which these users may read: the one that there is, while the address stays.
    fn run_token(&self, tcp: Option<&TcpListener>, uids: &[u32]) -> Option<Arc<RunToken>> {
        let addr = tcp?.local_addr().ok()?;
        // It counts at loopback addresses only.
        if !addr.ip().is_loopback() && !addr.ip().is_unspecified() {
            return None;
        }
        if let Some(same) = self.run_token.as_ref().filter(|one| one.addr() == addr) {
            same.share(uids);
            return Some(Arc::clone(same));
        }
        match RunToken::make(addr, uids) {
            Ok(made) => Some(Arc::new(made)),
            Err(error) => {
                tracing::info!(
                    "no token for this run, so that nobody sees everything at {addr}: {error}. Fix: token_file or socket under [admin]"
                );
                None
            }
        }
    }

    /// The TCP addresses that are served.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let all = [&self.tcp, &self.rest, &self.grpc].into_iter().flatten();
        all.filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Whether the files that `[admin]` names held something else when `other` was read.
    pub(crate) fn has_other_files(&self, other: &Bound) -> bool {
        self.access != other.access
    }

    /// Whether the files that `[admin]` names still hold what they did when they were read.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn has_the_same_files(&self, config: &AdminConfig) -> anyhow::Result<bool> {
        Ok(Access::read(config)? == self.access)
    }

    /// Duplicates the sockets, for a server that a reload restarts.
    pub(crate) fn try_clone(&self) -> io::Result<Bound> {
        let local = |local: &Local| {
            let Local { listener, file, allowed } = local;
            Ok::<_, io::Error>(Local {
                listener: listener.try_clone()?,
                file: file.clone(),
                allowed: allowed.clone(),
            })
        };
        Ok(Bound {
            tcp: self.tcp.as_ref().map(TcpListener::try_clone).transpose()?,
            local: self.local.as_ref().map(local).transpose()?,
            rest: self.rest.as_ref().map(TcpListener::try_clone).transpose()?,
            grpc: self.grpc.as_ref().map(TcpListener::try_clone).transpose()?,
            access: self.access.clone(),
            run_token: self.run_token.clone(),
        })
    }

    /// Removes the file of the unix socket, unless `next` uses the same file.
    pub(crate) fn remove_file(&self, next: &Bound) {
        let file = |bound: &Bound| bound.local.as_ref().and_then(|local| local.file.clone());
        if let Some(file) = file(self).filter(|one| file(next).as_ref() != Some(one)) {
            file.remove();
        }
    }
}

fn cannot_listen(path: &Path, error: &io::Error) -> anyhow::Error {
    let what = format_args!("cannot serve HTTP at {} (admin.socket)", path.display());
    refused(what, Wanted::Unix(path), error)
}

/// The flow settings that a running server cannot change: whether there are any flows, and how scripts are served.
#[derive(PartialEq, Eq)]
pub(crate) struct ServedFlows {
    rest: Option<SocketAddr>,
    takes_changes: bool,
    announces: bool,
    rest_flows_max: usize,
}

pub(crate) fn served_flows(config: &Config) -> Option<ServedFlows> {
    let flows = config.flows.as_ref()?;
    Some(ServedFlows {
        rest: flows.rest,
        takes_changes: flows.takes_changes(),
        announces: config.announces(),
        rest_flows_max: flows.rest_flows_max,
    })
}

/// The folder of the history that a server shows.
pub(crate) fn served_store(config: &Config) -> Option<&Path> {
    config.sinks.iter().find_map(|sink| match &sink.to {
        config::Sink::Store(store) => Some(store.folder.as_path()),
        _ => None,
    })
}

/// The address at which sFlow-RT scripts are served.
pub(crate) fn rest_address(config: &Config) -> Option<SocketAddr> {
    config.flows.as_ref().and_then(|flows| flows.rest)
}

/// Binds a TCP listener. `key` is the setting that asks for it.
fn bind(addr: SocketAddr, key: &str) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(addr).and_then(|listener| {
        listener.set_nonblocking(true)?;
        // Connections inherit it: a client that follows records may be silent, and its host may be gone.
        sys::tcp::set_liveness(listener.as_fd(), LIVENESS_IDLE, LIVENESS_MAX)?;
        Ok(listener)
    });
    bound.map_err(|error| {
        let what = format_args!("cannot serve HTTP on {addr} ({key})");
        refused(what, Wanted::Tcp(addr), &error)
    })
}

impl Http {
    /// Serves and pushes until [`stop`](Http::stop); `None` when there is nothing to do.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        mut bound: Bound,
        push: Option<&StatsdConfig>,
        shown: &Shown,
    ) -> io::Result<Option<Http>> {
        let listens = [&bound.tcp, &bound.rest, &bound.grpc].into_iter().any(Option::is_some);
        if !listens && bound.local.is_none() && push.is_none() {
            return Ok(None);
        }

        let addr = bound.tcp.as_ref().and_then(|listener| listener.local_addr().ok());
        let bind = addr.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |addr| addr.ip());
        let mut state = AdminState::new(Arc::clone(&shown.ledger), Arc::clone(&shown.health), bind);
        state.token.clone_from(&bound.access.token);
        // Its file goes when the daemon no longer wants it, not when this thread ends.
        state.run_token = bound.run_token.take().map(|made| made.token.clone());
        state.build.commit = COMMIT.to_owned();
        let pid = std::process::id();
        state.process = Process {
            speaker: Speaker {
                host: sys::process::host_name().unwrap_or_default(),
                address: addr.map(|addr| addr.to_string()),
                config_file: shown.config_file.clone(),
            },
            pid,
            // Without /proc nobody can tell this process from a later one with its id, so nobody signals it.
            started: sys::process::started(pid).unwrap_or_default(),
        };
        state.statsd = Arc::clone(&shown.statsd);
        state.sockets.clone_from(&shown.sockets);
        state.own_sockets.clone_from(&shown.own_sockets);
        state.sockets_elsewhere.clone_from(&shown.sockets_elsewhere);
        state.hidden =
            shown.hidden.clone().map(|hidden| Hidden { fix: link_command(addr), ..hidden });

        state.flows = shown.flows.as_ref().map(|flows| Flows {
            pages: pages(&flows.shared, flows.mitigated.clone()),
            figures: figures(&flows.shared, &flows.exported),
        });
        state.query.clone_from(&shown.query);
        state.records = Some(shown.records.clone());
        let rest = shown.flows.as_ref().and_then(|flows| flows.rest.as_ref());
        let rest = rest.zip(bound.rest.as_ref()).map(|((site, changes), listener)| {
            let bind = listener.local_addr().map_or(bind, |addr| addr.ip());
            let changes = match changes {
                Changes::WithToken(_) => Changes::WithToken(state.token.clone()),
                other => other.clone(),
            };
            Arc::new(Rest::new(bind, changes, site.service(), Arc::clone(&state.http)))
        });

        let grpc = grpc_state(&bound, &state);

        let push = push.map(|config| statsd::Options {
            resolve: |text| {
                let wrong = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
                config::resolve(&text.parse().map_err(wrong)?)
            },
            to: config.to.to_string(),
            resolve_interval: config.resolve_interval,
            prefix: config.prefix.clone(),
            interval: config.interval,
        });

        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .enable_all()
            .build()?;

        let (stop, stopped) = watch::channel(());
        let thread = thread::Builder::new().name("admin".to_owned()).spawn(move || {
            // If this fails, requests compete with the data loops.
            sys::process::lower_thread_priority();
            runtime.block_on(work(bound, push, Arc::new(state), grpc, rest, stopped));
            // A name lookup that still runs must not hold up the end.
            runtime.shutdown_background();
        })?;
        Ok(Some(Http { stop, thread }))
    }

    /// Ends the thread. Answers under way and the last push get a moment to finish. A thread that hangs is left behind and ends
    /// with the process.
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
        // A panic was reported on standard error.
        let _ = self.thread.join();
        Stopped::Ended
    }
}

/// What the gRPC server shows: the ledger and records, to those who may see them at its address.
fn grpc_state(bound: &Bound, of: &AdminState) -> Option<Arc<AdminState>> {
    let addr = bound.grpc.as_ref()?.local_addr().ok()?;
    let mut state = AdminState::new(Arc::clone(&of.ledger), Arc::clone(&of.health), addr.ip());
    state.token.clone_from(&of.token);
    state.run_token.clone_from(&of.run_token);
    state.http = Arc::clone(&of.http);
    state.sockets_elsewhere.clone_from(&of.sockets_elsewhere);
    state.records.clone_from(&of.records);
    Some(Arc::new(state))
}

async fn work(
    bound: Bound,
    push: Option<statsd::Options>,
    state: Arc<AdminState>,
    grpc: Option<Arc<AdminState>>,
    rest: Option<Arc<Rest>>,
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

    let (tcp_state, tcp_stop) = (Arc::clone(&state), until_stop(stopped.clone()));
    let tcp = async {
        let Some(listener) = bound.tcp else { return Ok(()) };
        let listener = tokio::net::TcpListener::from_std(listener)?;
        bound.access.serve(listener, tcp_state, tcp_stop).await
    };
    let grpc_stop = until_stop(stopped.clone());
    let grpc = async {
        let Some((listener, state)) = bound.grpc.zip(grpc) else { return Ok(()) };
        let listener = tokio::net::TcpListener::from_std(listener)?;
        bound.access.serve_grpc(listener, state, grpc_stop).await
    };
    let rest_stop = until_stop(stopped.clone());
    let rest = async {
        let Some((listener, rest)) = bound.rest.zip(rest) else { return Ok(()) };
        let listener = tokio::net::TcpListener::from_std(listener)?;
        admin::serve_rest(listener, rest, rest_stop).await
    };
    let local = async {
        let Some(Local { listener, allowed, .. }) = bound.local else { return Ok(()) };
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let is_known = move |uid| allowed.contains(uid);
        admin::serve_users(listener, is_known, state, until_stop(stopped)).await
    };

    let (tcp, local, rest, grpc) = tokio::join!(tcp, local, rest, grpc);
    for error in [tcp, local, rest, grpc].into_iter().filter_map(Result::err) {
        tracing::error!("the admin server does not serve: {error}");
    }

    if let Some(pushing) = pushing {
        // The push limits its own time. A panic was reported on standard error.
        let _ = pushing.await;
    }
}
