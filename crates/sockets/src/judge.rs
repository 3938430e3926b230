//! The verdict of the collector's filter on sockets and on ended connections.
//!
//! A connection that a poll has let through gets a closing record, whatever has become of it since. One that polls have only
//! rejected gets none, whatever its close event says. A connection that no poll has met is judged by its close event, which
//! leaves much open: it lacks owner, cgroup, mark and congestion control, and after an abort also the peer and the counters.

use crate::attribution::Cgroup;
use crate::closing::Closed;
use crate::ends;
use crate::engine::{Engine, Fate, InTable, Moment};
use crate::filter::{Compiled, Expr, Facts, Filter, Needs, Verdict, of_close};
use crate::options::{Closes, Options, Undecided};
use crate::poll::is_connection;
use crate::rejected::Rejected;
use crate::says::is_remnant;
use ledger::Reason;
use std::sync::Arc;
use std::time::Duration;
use wire::inet_diag::{SocketMessage, States};

/// The collector's filter as currently split, and the connections that polls have rejected.
pub(crate) struct Judge {
    /// The part of the filter that the kernel leaves to us.
    pub(crate) rest: Option<Expr>,
    /// The whole filter and the requested states, by which the closes of connections that no poll has seen are judged.
    pub(crate) whole: Option<Expr>,
    pub(crate) asked: States,
    pub(crate) needs: Needs,
    pub(crate) rejected: Rejected,
}

impl Judge {
    pub(crate) fn new(options: &Options) -> Judge {
        Judge {
            rest: None,
            whole: None,
            asked: options.states,
            needs: options.filter.as_ref().map_or(Needs::NONE, Filter::needs),
            rejected: Rejected::new(options.table_entries_max),
        }
    }

    /// Adopts the filter as it is split now.
    pub(crate) fn adopt(&mut self, split: &Compiled) {
        self.rest.clone_from(&split.rest);
        self.whole.clone_from(&split.whole);
        self.asked = split.states;
    }
}

impl Engine<'_> {
    /// Whether a socket passes an expression of a filter with these needs, given what is known about it besides the kernel's
    /// message.
    pub(crate) fn passes_any(
        &mut self,
        expression: &Expr,
        needs: Needs,
        message: &SocketMessage<'_>,
        place: Option<u32>,
        age_ns: Option<u64>,
    ) -> bool {
        let cgroup = self.cgroup_for(needs, message);
        let facts = self.facts(cgroup.as_deref(), place, age_ns);
        expression.matches(message, &facts)
    }

    fn cgroup_for(&mut self, needs: Needs, message: &SocketMessage<'_>) -> Option<Arc<Cgroup>> {
        let wants_cgroup = needs.contains(Needs::ATTRIBUTION);
        message.cgroup_id.filter(|_| wants_cgroup).and_then(|id| self.cgroup_of(id))
    }

    fn facts<'a>(
        &'a self,
        cgroup: Option<&'a Cgroup>,
        place: Option<u32>,
        age_ns: Option<u64>,
    ) -> Facts<'a> {
        let namespace = place.and_then(|place| self.namespaces.get(place));
        Facts {
            netns: namespace.and_then(|known| known.name.as_deref()),
            is_netns_known: namespace.is_some(),
            age: age_ns.map(Duration::from_nanos),
            ..Facts::of_cgroup(cgroup)
        }
    }

    /// The verdict of the collector's own filter on a socket that the kernel listed.
    pub(crate) fn judge(&mut self, message: &SocketMessage<'_>, known: Option<InTable>) -> Verdict {
        let cgroup = self.cgroup_for(self.filter.needs, message);
        let Some(rest) = &self.filter.rest else { return Verdict::True };

        let Moment { boot_ns, place, .. } = self.moment;
        // A new socket has been seen for no time.
        let since = known.map_or(boot_ns, |known| known.first_seen_boot_ns);
        let facts = self.facts(cgroup.as_deref(), Some(place), Some(boot_ns.saturating_sub(since)));
        rest.evaluate(message, &facts)
    }

    /// The verdict of the collector's own filter on a connection that no poll let through, from its close event.
    fn judge_close(
        &self,
        event: &SocketMessage<'_>,
        place: Option<u32>,
        age_ns: Option<u64>,
    ) -> Verdict {
        let facts = self.facts(None, place, age_ns);
        let had = ends::states_of(event);
        of_close(self.filter.whole.as_ref(), self.filter.asked, had, event, &facts)
    }

    /// Records that a socket listed by the kernel does not pass the filter.
    pub(crate) fn leave_out(
        &mut self,
        message: &SocketMessage<'_>,
        known: Option<InTable>,
        verdict: Verdict,
    ) {
        let (poll, cookie) = (self.moment.poll, message.id.cookie);
        match known {
            // It passed before and still exists: having no record in this poll does not mean that it is gone.
            Some(InTable { at, verdict: Verdict::True, .. }) => {
                self.table.at_mut(at).seen_poll = poll;
            }
            // It may pass when it is older, and its age counts from now.
            _ if self.filter.needs.contains(Needs::AGE) && self.is_sampled(cookie) => {
                let rejected_before = known.is_some_and(|known| known.verdict == Verdict::False);
                let verdict = if rejected_before { Verdict::False } else { verdict };
                self.note(message, known, (0, verdict), Fate::LeftOut);
            }
            // Rejections are remembered only to judge closes.
            _ if self.options.closes == Closes::Off => {}
            // A remnant carries too little information to be judged.
            _ if is_remnant(message) => self.filter.rejected.see(cookie, poll),
            _ if verdict == Verdict::False && is_connection(message.state) => {
                self.filter.rejected.note(cookie, poll);
            }
            _ => self.filter.rejected.see(cookie, poll),
        }
    }

    /// Decides whether the end of a connection becomes a record.
    pub(crate) fn choose_close(
        &mut self,
        event: &SocketMessage<'_>,
        closed: &Closed,
    ) -> Result<(), Reason> {
        let cookie = event.id.cookie;
        let polled = closed.entry.as_ref();

        match polled.map(|entry| entry.verdict) {
            Some(Verdict::True) => return Ok(()),
            Some(Verdict::False) => return Err(Reason::Filtered),
            _ if self.is_served(event, closed.place) => return Err(Reason::Filtered),
            Some(Verdict::Unknown) => {}
            None if self.filter.rejected.take(cookie) => return Err(Reason::Filtered),
            None if !self.is_sampled(cookie) => return Err(Reason::Sampled),
            None => {}
        }

        let age_ns = polled.map(|entry| closed.boot_ns.saturating_sub(entry.first_seen_boot_ns));
        match self.judge_close(event, closed.place, age_ns) {
            Verdict::True => Ok(()),
            Verdict::False => Err(Reason::Filtered),
            Verdict::Unknown => {
                self.counts.undecided.add(1);
                match self.options.closes_undecided {
                    Undecided::Keep => Ok(()),
                    Undecided::Drop => Err(Reason::Undecided),
                }
            }
        }
    }
}
