//! Polls the running kernel: every wanted namespace, one after the other.

use super::args::{Args, tell};
use super::assemble::{Assembler, Place, Polls, Take};
use crate::exit::Failure;
use record::RecordKind;
use sockets::filter::{Explanation, Filter, Names, SystemNames, Target};
use sockets::unseen::{absent, hidden_namespaces, no_such_namespace, without_ptrace};
use sockets::{Access, Ask, Found, Scope, Transport, Visitor, Walker};
use std::collections::BTreeSet;
use std::time::Instant;
use sys::clock::realtime_ns;
use sys::namespace::{Error, Identity};
use sys::process::{CAP_NET_ADMIN, capability_name, effective_capabilities};
use text::plural;
use wire::DecodeError;
use wire::inet_diag::bytecode::Operations;
use wire::inet_diag::{Extensions, SocketMessage, States};

/// Reads the kernel's sockets.
pub(super) struct Live<'p> {
    filter: &'p Filter,
    scope: Scope,
    transport: Transport,
    states: States,
    access: Box<dyn Access>,
    walker: Walker,
    found: Vec<Found>,
    own: Option<Identity>,
    pub(super) assembler: Assembler,
    pub(super) unseen: Unseen,
    told: BTreeSet<String>,
}

/// What a poll could not see.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Unseen {
    /// Namespaces that were walked.
    pub(super) visited: u64,
    /// Namespaces that we may not enter, and the bit of the missing capability.
    pub(super) closed: u64,
    capability: u32,
    /// Namespaces that failed for other reasons.
    pub(super) failed: u64,
    /// The message about processes whose namespace cannot be seen.
    pub(super) hidden: Option<String>,
    /// Messages about named namespaces that do not exist.
    pub(super) absent: Vec<String>,
}

impl<'p> Live<'p> {
    pub(super) fn new(args: &Args, filter: &'p Filter) -> anyhow::Result<Live<'p>> {
        let polls = if args.watch.is_some() { Polls::Many } else { Polls::One };
        Ok(Live {
            filter,
            scope: args.scope(),
            transport: Transport::Tcp,
            states: args.states(Transport::Tcp),
            access: (args.make_access()?)(),
            walker: Walker::default(),
            found: Vec::new(),
            own: sys::namespace::own().ok(),
            assembler: Assembler::new(filter, args.wants_processes(), polls),
            unseen: Unseen::default(),
            told: BTreeSet::new(),
        })
    }

    /// Makes the next polls ask for another protocol's sockets.
    pub(super) fn turn_to(&mut self, args: &Args, transport: Transport) {
        self.transport = transport;
        self.states = args.states(transport);
    }

    /// Checks the filter's interface names against this namespace.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match self.scope {
            Scope::Own => {
                self.filter.check_devices(&SystemNames).map_err(|error| Failure::Usage.error(error))
            }
            _ => Ok(()),
        }
    }

    /// Visits every namespace once.
    ///
    /// # Errors
    /// Nothing at all could be read. If only some namespaces failed, they are in [`Live::unseen`] and reported once.
    pub(super) fn poll(&mut self, take: &mut dyn Take) -> anyhow::Result<()> {
        self.assembler.begin_poll();
        self.unseen = Unseen::default();

        let mut found = std::mem::take(&mut self.found);
        let scan = self.access.discover(&self.scope, &mut found);
        let scan = scan.map_err(|error| {
            anyhow::Error::new(error).context("cannot look for network namespaces in /proc")
        })?;

        // A named namespace is found by its file. Only a search for all namespaces depends on processes.
        if self.scope == Scope::All && scan.unreadable_processes > 0 {
            self.unseen.hidden = Some(hidden_namespaces(&*self.access, &scan));
        }

        for (at, found) in found.iter().enumerate() {
            self.visit(at, found, take)?;
        }

        self.unseen.absent =
            absent(&self.scope, &found).into_iter().map(no_such_namespace).collect();
        self.found = found;
        Ok(())
    }

    fn visit(&mut self, at: usize, found: &Found, take: &mut dyn Take) -> anyhow::Result<()> {
        let is_own = self.own == Some(found.id);
        let socket = match self.access.open(at) {
            Ok(socket) => socket,
            Err(error) => {
                self.cannot_open(found, &error);
                return Ok(());
            }
        };

        // Compile per namespace: interface names belong to one.
        let compiled = self.filter.compile(&target(self.states, is_own));
        if compiled.states.is_empty() {
            self.unseen.visited += 1;
            return Ok(());
        }

        let extensions = match self.transport {
            Transport::Tcp => Extensions::ALL,
            Transport::Udp => Extensions::ALL.without(Extensions::INFO),
        };
        let ask = Ask {
            transport: self.transport,
            states: compiled.states,
            extensions,
            bytecode: &compiled.bytecode,
        };
        let place = Place {
            found: Some(found),
            is_own,
            transport: self.transport,
            kind: RecordKind::POLL,
            rest: compiled.rest.as_ref(),
            time_unix_ns: Some(realtime_ns()),
            now: Instant::now(),
        };

        let mut visit = Visit { assembler: &mut self.assembler, place, take };
        match self.walker.walk(&socket, &ask, &mut visit) {
            Ok(_) => self.unseen.visited += 1,
            Err(error) if self.scope == Scope::Own => return Err(Failure::Unavailable.error(error)),
            Err(error) => {
                self.unseen.failed += 1;
                self.tell_once(name_of(found), &format!("{}: {error}", name_of(found)));
            }
        }
        Ok(())
    }

    fn cannot_open(&mut self, found: &Found, error: &Error) {
        match error {
            // The namespace ended between two system calls.
            Error::Gone => {}
            Error::NotPermitted { capability, .. } => {
                self.unseen.closed += 1;
                self.unseen.capability = *capability;
            }
            Error::Syscall { .. } => {
                self.unseen.failed += 1;
                self.tell_once(name_of(found), &format!("{}: {error}", name_of(found)));
            }
        }
    }

    fn tell_once(&mut self, cause: String, text: &str) {
        if self.told.insert(cause) {
            tell(format_args!("{text}"));
        }
    }

    /// Reports once what could not be seen, and what would help.
    pub(super) fn tell_unseen(&mut self) {
        for (cause, line) in self.unseen.lines() {
            self.tell_once(cause, &line);
        }
        let denied = self.assembler.processes().map_or(0, |processes| processes.summary().denied);
        if denied > 0 {
            let processes = plural(denied, "process", "processes");
            let text = format!(
                "cannot see which sockets {processes} {}{}",
                if denied == 1 { "holds" } else { "hold" },
                without_ptrace()
            );
            self.tell_once("processes".to_owned(), &text);
        }
    }

    /// Why a named namespace could not be shown, if one could not.
    pub(super) fn failure(&self) -> Option<Failure> {
        match &self.scope {
            Scope::Named(_) if !self.unseen.absent.is_empty() => Some(Failure::Unavailable),
            Scope::Named(_) if self.unseen.closed > 0 => Some(Failure::Permission),
            Scope::Named(_) if self.unseen.failed > 0 => Some(Failure::Io),
            _ => None,
        }
    }
}

impl Unseen {
    /// The messages, each with a key by which it is printed only once.
    fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        if self.closed > 0 {
            let capability = capability_name(self.capability).unwrap_or("a capability");
            lines.push(("closed".to_owned(), format!(
                "{} cannot be entered: this takes {capability}. Fix: run it as root, or see docs/sockets.md",
                plural(self.closed, "network namespace", "network namespaces")
            )));
        }
        lines.extend(self.hidden.iter().map(|text| ("hidden".to_owned(), text.clone())));
        lines.extend(self.absent.iter().map(|text| (text.clone(), text.clone())));
        lines
    }
}

/// Names in another namespace: its interfaces are unknown here, but cgroups are the host's.
struct Elsewhere;

impl Names for Elsewhere {
    fn cgroup(&self, path: &str) -> Option<u64> {
        SystemNames.cgroup(path)
    }
}

/// Explains which part of the filter runs where, in this namespace.
pub(super) fn explain(filter: &Filter, states: States) -> Vec<Explanation> {
    filter.explain(&target(states, true))
}

/// How a filter is divided between the kernel and us for one namespace.
fn target(default_states: States, is_own: bool) -> Target<'static> {
    let names: &dyn Names = if is_own { &SystemNames } else { &Elsewhere };
    let operations = Operations { mark: is_admin(), ..Operations::ALL };
    Target { operations, default_states, ..Target::new(names) }
}

/// Whether the kernel shows this process privileged values, such as marks.
pub(super) fn is_admin() -> bool {
    effective_capabilities().is_some_and(|set| set & 1 << CAP_NET_ADMIN != 0)
}

fn name_of(found: &Found) -> String {
    match &found.name {
        Some(name) => format!("network namespace {name}"),
        None => format!("network namespace net:[{}]", found.id.inode),
    }
}

struct Visit<'a> {
    assembler: &'a mut Assembler,
    place: Place<'a>,
    take: &'a mut dyn Take,
}

impl Visitor for Visit<'_> {
    fn socket(&mut self, message: &SocketMessage<'_>, raw: &[u8]) {
        self.assembler.socket(message, raw, &self.place, self.take);
    }

    fn malformed(&mut self, _: DecodeError) {
        self.assembler.counts.malformed += 1;
    }
}
