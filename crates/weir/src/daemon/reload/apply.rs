//! The second half of a reload: apply the differences.

use super::super::{
    Daemon, Retiring, Running, Targets, Waiting, Why, arrange, fingerprint, flows, link, open,
    watched_names,
};
use super::{Admin, Fate, NextCollector, Plan, Step};
use crate::exit::Failure;
use admin::Said;
use config::{Config, FLOWS_NAME, ListenerConfig, changes};
use relay::{ChangesUnderWay, Listener, ListenerOptions, SocketOwner, TargetChange};
use std::time::{Duration, Instant};

/// Most changes that the log names; the rest are only counted.
const CHANGES_MAX: usize = 12;

/// A listener of the new configuration that is about to enter service.
enum Entering {
    Ready(Running),
    /// Its data threads have been asked to change its targets.
    Changing(Running, ChangesUnderWay),
    /// It could not be started.
    Failed,
}

impl Daemon {
    pub(super) fn apply(&mut self, plan: Plan) {
        let Plan { config, fates, admin, collector, flowing, mitigations, sinks } = plan;
        let grace = config.daemon.drain_grace;
        // Their streams are of the former configuration, and so is what let them in.
        self.followers.end(Why::Reload, || self.keep_alive(&[]));
        self.followers.set_sources(&config);
        let mut report = Report { changes: changes(&self.config, &config), failures: Vec::new() };
        if let NextCollector::Replace(None) = collector {
            // Before its sinks end: they take what the collector makes until then.
            self.end_collector();
            self.ending.iter().for_each(|ending| ending.finish(Instant::now()));
        }
        // Before everything that feeds the sinks.
        for failure in self.sinks.apply(sinks, &self.ledger, grace) {
            report.failed(failure);
        }

        // Before anything is received under the new configuration.
        self.follow_flows(&config);
        // Before thresholds change: the new mitigations handle the events that this raises.
        let next = self.mitigations.apply(mitigations, &config, Instant::now() + grace);
        next.unwrap_or_else(|error| report.failed(format!("{error:#}")));
        self.flows.apply(flowing, (&self.config, &config), &self.ledger);

        let mut former: Vec<_> = self.running.drain(..).map(Some).collect();
        for waiting in std::mem::take(&mut self.waiting) {
            waiting.end(&self.ledger);
        }

        let mut entering = Vec::new();
        for (listener, fate) in config.listeners.iter().zip(fates) {
            let next = match fate {
                Fate::Keep { at, steps } => former[at]
                    .take()
                    .map_or(Entering::Failed, |one| keep(one, listener, steps, grace)),
                Fate::Renew { at, targets } => former[at].take().map_or(Entering::Failed, |one| {
                    Entering::Ready(self.renew(one, listener, targets, grace, &mut report))
                }),
                Fate::Wait(trouble) => {
                    self.waiting.push(Waiting::new(listener.clone(), trouble, &self.ledger));
                    continue;
                }
                Fate::Open { socket, targets } => {
                    let (drops, ledger) = (&self.drops, &self.ledger);
                    let one = Running::start(listener.clone(), *socket, targets, drops, ledger);
                    one.map_or_else(
                        |error| {
                            report.failed(format!("{error:#}"));
                            Entering::Failed
                        },
                        Entering::Ready,
                    )
                }
            };

            entering.push(next);
            let listeners = entering.iter().filter_map(Entering::listener);
            let listeners = listeners.chain(former.iter().flatten().map(|one| &one.listener));
            self.keep_alive(&listeners.collect::<Vec<_>>());
        }

        self.enter(entering, &mut report);
        self.change_sockets(&mut report);
        for one in former.into_iter().flatten() {
            self.close(one, grace);
        }

        self.log.set(&config.daemon);
        arrange(&self.ledger, &config);
        self.config = config;
        self.tell_collector(&self.admin_bound);
        if let Err(error) = self.names.watch(&watched_names(&self.config)) {
            report.failed(format!("names are not followed: {error}"));
        }

        self.change_collector(collector, &mut report);
        self.move_admin(admin, &mut report);
        tracing::info!("{}", report.line());
        self.health.reload_said(report.said());
        self.health.config_applied(&fingerprint(&self.config));
    }

    /// Forgets what scripts defined, and exports what the new configuration does, if its flows or thresholds are others.
    fn follow_flows(&mut self, config: &Config) {
        let is_same =
            self.config.flows == config.flows && self.config.thresholds == config.thresholds;
        if !is_same {
            // The file's names and groups may have changed, and scripts must not be able to change those.
            self.forget_scripts();
            let exported = config.flows.iter().flat_map(|flows| flows.exported());
            self.exported.set(exported.map(str::to_owned).collect());
        }
    }

    /// Waits for the changes asked of the data threads, and takes the listeners into service.
    fn enter(&mut self, entering: Vec<Entering>, report: &mut Report) {
        for next in entering {
            match next {
                Entering::Ready(one) => self.running.push(one),
                Entering::Changing(mut one, changes) => {
                    let keep_alive = &mut || self.keep_alive(&[]);
                    for result in one.listener.finish_changes(changes, keep_alive) {
                        result.unwrap_or_else(|error| report.failed(error.to_string()));
                    }
                    self.running.push(one);
                }
                Entering::Failed => {}
            }
        }
    }

    /// Sets the number of sockets of listeners that continue. With `auto` they keep the number they have.
    fn change_sockets(&mut self, report: &mut Report) {
        let mut running = std::mem::take(&mut self.running);
        for one in &mut running {
            one.helper.clone_from(&self.config.daemon.helper);
            let has = one.listener.socket_count();
            let wanted = has.clamp(one.config.sockets(), one.config.sockets_max());
            one.set_sockets(wanted, &mut || self.keep_alive(&[]))
                .unwrap_or_else(|error| report.failed(format!("{error:#}")));
        }
        self.running = running;
    }

    fn change_collector(&mut self, next: NextCollector, report: &mut Report) {
        match next {
            NextCollector::Same(prepared) => match (&self.collecting, &prepared) {
                (Some(collecting), Some(prepared)) => collecting.change_fields(prepared),
                // The collector has not started yet.
                _ if self.prepared.is_some() => self.prepared = prepared.map(|one| *one),
                _ => {}
            },
            NextCollector::Replace(prepared) => {
                let fate = if prepared.is_some() { "started anew" } else { "ended" };
                report.changes.insert(0, format!("socket collector {fate}"));
                // It starts once the former one has ended: two at once would report every close twice.
                self.prepared = prepared.map(|prepared| *prepared);
                self.end_collector();
            }
        }
    }

    fn move_admin(&mut self, admin: Admin, report: &mut Report) {
        let Admin::Move(bound) = admin else { return };
        let is_said = report.changes.iter().any(|change| change.starts_with("[admin]"));
        if bound.has_other_files(&self.admin_bound) && !is_said {
            report.changes.push("[admin]: another token or certificate".to_owned());
        }
        if let Some(http) = self.http.take()
            && http.stop(|| self.keep_alive(&[])) == super::super::http::Stopped::LeftBehind
        {
            tracing::warn!(
                "the former admin server does not end: it is left behind, and listens no more"
            );
        }
        if let Err(error) = self.start_http(bound) {
            report.failed(format!("{error:#}"));
        }
    }

    /// Starts a listener with other settings on the socket of a running one.
    fn renew(
        &mut self,
        one: Running,
        wanted: &ListenerConfig,
        targets: Targets,
        grace: Duration,
        report: &mut Report,
    ) -> Running {
        adjust_socket(&one, wanted);
        let link = link::listen_options(wanted).unwrap_or_else(|error| {
            report.failed(format!("{error:#}; the keys stay as they were"));
            one.listener.options().link.clone()
        });
        let options = ListenerOptions { link, ..wanted.listener_options(one.owner()) };
        let deadline = Instant::now() + grace;

        let Targets { destinations, anchors, fed, tapped, absent: _ } = targets;
        match one.listener.hand_over(options, destinations, deadline) {
            Ok(listener) => {
                if one.config.name != wanted.name {
                    self.health.forget(&one.config.name);
                }
                self.retiring
                    .push(Retiring { listener: one.listener, listen: one.config.listen.address() });

                let config = wanted.clone();
                Running {
                    config,
                    listener,
                    helper: one.helper,
                    file: one.file,
                    anchors,
                    hearing: one.hearing,
                    fed,
                    tapped,
                }
            }
            Err(error) => {
                report.failed(format!("listener {} stays as it was: {error}", one.config.name));
                one
            }
        }
    }

    /// Takes a listener out of service. What it has already received is still sent.
    pub(in crate::daemon) fn close(&mut self, one: Running, grace: Duration) {
        if one.owner() == SocketOwner::ServiceManager
            && let Ok(socket) = one.listener.socket().try_clone_to_owned()
        {
            self.inherited.put_back(socket);
        }

        one.listener.begin_stop(Instant::now() + grace);
        if let Some(file) = &one.file {
            // At once: a later reload may bind the path again.
            file.remove();
        }

        if self.running.iter().all(|other| other.config.name != one.config.name) {
            self.health.forget(&one.config.name);
        }

        self.retiring
            .push(Retiring { listener: one.listener, listen: one.config.listen.address() });
    }
}

impl Entering {
    fn listener(&self) -> Option<&Listener> {
        match self {
            Entering::Ready(one) | Entering::Changing(one, _) => Some(&one.listener),
            Entering::Failed => None,
        }
    }
}

fn adjust_socket(one: &Running, wanted: &ListenerConfig) {
    let receive = |config: &ListenerConfig| config.udp().map(|udp| udp.receive);
    if receive(&one.config) != receive(wanted) {
        tracing::warn!(
            "listener {}: its socket goes on to receive as it does; receive takes effect at the next start",
            one.config.name
        );
    }

    let busy_poll = |config: &ListenerConfig| config.udp().and_then(|udp| udp.busy_poll);
    if busy_poll(&one.config) != busy_poll(wanted) {
        let time = busy_poll(wanted).unwrap_or_default();
        for socket in one.listener.sockets() {
            if let Err(error) = sys::socket::set_busy_poll(socket, time) {
                tracing::error!(
                    "reload: listener {}: busy_poll stays as it was: {error}",
                    wanted.name
                );
            }
        }
    }

    let bytes =
        |config: &ListenerConfig| config.listen.port().map(|_| config.receive_buffer_bytes());
    let Some(wanted) = bytes(wanted).filter(|_| bytes(&one.config) != bytes(wanted)) else {
        return;
    };
    let set = match one.owner() {
        SocketOwner::Relay => open::set_receive_buffer,
        SocketOwner::ServiceManager => open::enlarge_receive_buffer,
    };
    one.listener.sockets().for_each(|socket| set(socket, wanted));
}

/// Asks the data threads of a listener that continues to change its targets.
fn keep(mut one: Running, wanted: &ListenerConfig, steps: Vec<Step>, grace: Duration) -> Entering {
    adjust_socket(&one, wanted);

    let (anchors, fed, tapped) = (&mut one.anchors, &mut one.fed, &mut one.tapped);
    let step = |step| match step {
        Step::Change(target, opened) => {
            anchors.remove(&target.name);
            anchors.extend(opened.anchor.map(|anchor| (target.name.clone(), anchor)));
            TargetChange::Change(target.target_options(), opened.destination)
        }
        Step::Add(target, opened) => {
            anchors.extend(opened.anchor.map(|anchor| (target.name.clone(), anchor)));
            TargetChange::Add(target.target_options(), opened.destination)
        }
        Step::Remove(name) => {
            anchors.remove(&name);
            fed.retain(|one| one.name() != name);
            TargetChange::Remove(name)
        }
        Step::Feed(sink, receiver) => {
            let options = sink.target_options();
            fed.push(sink);
            TargetChange::Add(options, receiver)
        }
        Step::Tap(analysis) => {
            let (options, receiver) = flows::tap(&analysis);
            *tapped = Some(analysis);
            TargetChange::Add(options, receiver)
        }
        Step::Untap => {
            *tapped = None;
            TargetChange::Remove(FLOWS_NAME.to_owned())
        }
        Step::FeedAnew(sink, receiver) => {
            let options = sink.target_options();
            fed.retain(|one| one.name() != sink.name());
            fed.push(sink);
            TargetChange::Change(options, receiver)
        }
    };

    let steps = steps.into_iter().map(step).collect();
    let changes = one.listener.begin_changes(steps, grace);
    one.config = wanted.clone();
    Entering::Changing(one, changes)
}

/// What a reload did.
struct Report {
    /// The differences between the two configurations, in words.
    changes: Vec<String>,
    /// Failures that the preparation could not foresee.
    failures: Vec<String>,
}

impl Report {
    /// Logs and keeps an unforeseen failure while applying the differences.
    fn failed(&mut self, message: String) {
        tracing::error!("reload: {message}");
        self.failures.push(message);
    }

    /// The output and the exit code of the command that asked for the reload.
    fn said(&self) -> Said {
        let code = if self.failures.is_empty() { 0 } else { Failure::Unavailable as u8 };
        let lines = self.failures.iter().cloned().chain([self.line()]);
        Said { code, lines: lines.collect() }
    }

    fn line(&self) -> String {
        let mut parts = self.changes[..self.changes.len().min(CHANGES_MAX)].to_vec();
        match self.changes.len() {
            0 => parts.push("nothing has changed".to_owned()),
            count if count > CHANGES_MAX => parts.push(format!("and {} more", count - CHANGES_MAX)),
            _ => {}
        }
        if !self.failures.is_empty() {
            parts.push(format!("{} of it failed, see above", self.failures.len()));
        }
        format!("reloaded: {}", parts.join("; "))
    }
}
