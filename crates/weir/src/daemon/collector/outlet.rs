//! Between the collector and its sinks.

use config::COLLECTOR_NAME;
use ledger::{Amount, Counters, HopBuilder, HopKind, HopSnapshot, Meter, Reason, Tally};
use record::{PollTotals, SocketRecord};
use sink::{ChunkWriter, Sink};
use sockets::{Output, Problem};
use std::sync::{Arc, Mutex, PoisonError};

/// Where the sinks come back to when the collector's thread has ended.
#[derive(Clone, Default)]
pub(super) struct Slot(Arc<Mutex<Option<Vec<Sink>>>>);

impl Slot {
    pub(super) fn take(&self) -> Option<Vec<Sink>> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, sinks: Vec<Sink>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sinks);
    }
}

/// Takes what the collector makes, on the collector's thread.
pub(super) struct Outlet {
    writer: ChunkWriter,
    sinks: Vec<Sink>,
    unresolved: Vec<Arc<Unresolved>>,
    slot: Slot,
}

impl Outlet {
    pub(super) fn new(
        writer: ChunkWriter,
        sinks: Vec<Sink>,
        unresolved: Vec<Arc<Unresolved>>,
        slot: &Slot,
    ) -> Box<Outlet> {
        Box::new(Outlet { writer, sinks, unresolved, slot: slot.clone() })
    }
}

impl Output for Outlet {
    fn record(&mut self, record: &SocketRecord<'_>) {
        self.writer.record(record);
        self.unresolved.iter().for_each(|sink| sink.drop_one());
    }

    fn end_of_poll(&mut self, totals: &PollTotals<'_>) {
        self.writer.end_of_poll(totals);
        self.unresolved.iter().for_each(|sink| sink.drop_one());
    }

    fn flush(&mut self) {
        self.writer.flush();
    }

    fn problem(&mut self, problem: &Problem) {
        tracing::warn!("{COLLECTOR_NAME}: {problem}");
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.writer.flush();
        self.slot.put(std::mem::take(&mut self.sinks));
    }
}

/// A sink without an address: its records are dropped, and counted.
pub(super) struct Unresolved {
    name: String,
    offered: Tally,
    counters: Counters,
}

impl Unresolved {
    pub(super) fn new(name: &str) -> Unresolved {
        let (offered, counters) = (Tally::default(), Counters::default());
        Unresolved { name: name.to_owned(), offered, counters }
    }

    /// A record that nobody encodes has no bytes.
    fn drop_one(&self) {
        let one = Amount { count: 1, bytes: 0 };
        self.offered.add(one);
        self.counters.drop(Reason::TargetUnresolved, one);
    }
}

impl Meter for Unresolved {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        let name = Some(self.name.as_str());
        let hop = HopBuilder::new(HopKind::Sink, COLLECTOR_NAME, name, self.offered.load());
        hops.push(hop.left(&self.counters).capacity(1).finish(self.offered.load()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sink_without_an_address_loses_has_a_name() {
        let sink = Arc::new(Unresolved::new("far"));
        let slot = Slot::default();
        let mut outlet = Outlet::new(
            ::sink::Fanout::default().writer([0; 16]),
            Vec::new(),
            vec![Arc::clone(&sink)],
            &slot,
        );
        outlet.record(&SocketRecord::default());
        outlet.end_of_poll(&PollTotals::default());
        assert!(slot.take().is_none(), "the collector still has it");
        drop(outlet);
        assert!(slot.take().is_some());
        let mut hops = Vec::new();
        sink.read(&mut hops);
        let hop = &hops[0];
        assert_eq!((hop.hop, hop.target.as_deref()), (HopKind::Sink, Some("far")));
        assert_eq!(hop.received.count, 2);
        assert_eq!(hop.dropped_for(Reason::TargetUnresolved).count, 2);
        assert_eq!((hop.in_flight.count, hop.unaccounted), (0, 0));
    }
}
