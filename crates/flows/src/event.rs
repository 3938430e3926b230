//! Events: what passed a threshold, and what dropped below it again. The last ones are kept, each with a unique number.

use crate::definition::Measure;
use crate::estimate::Estimate;
use crate::field::Value;
use crate::threshold::Change;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// What an event is about.
#[derive(Clone, PartialEq, Debug)]
pub enum Subject {
    /// A flow.
    Flow {
        /// Its definition.
        definition: Arc<str>,
        /// What the definition sums up.
        measure: Measure,
        /// A value for each part of the definition's key.
        key: Vec<Value>,
        /// Each part of the key as it is written, with its value for people.
        shown: Vec<(String, String)>,
    },
    /// An interface, or an agent if there is no index.
    Source {
        /// The word of the figure.
        figure: &'static str,
        /// The agent's address.
        agent: IpAddr,
        /// The sub-agent.
        sub_agent: u32,
        /// The interface's index.
        if_index: Option<u32>,
    },
}

/// A figure passed a threshold, or dropped below it again.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Its number, counting up from 1.
    pub id: u64,
    /// The number of the event that reported the threshold as passed: its own, or that of the event that this one clears.
    pub raised_id: u64,
    /// When it was noticed, in nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// When the threshold was passed, in nanoseconds since 1970.
    pub raised_unix_ns: u64,
    /// The threshold's name.
    pub threshold: Arc<str>,
    /// What is watched.
    pub subject: Subject,
    /// What happened.
    pub change: Change,
    /// The figure at that time.
    pub figure: Estimate,
    /// The highest value since the threshold was passed.
    pub peak: f64,
    /// The threshold's limit.
    pub limit: f64,
}

/// The last events, in order.
#[derive(Debug)]
pub struct EventLog {
    events: VecDeque<Arc<Event>>,
    events_max: usize,
    last_id: u64,
}

impl EventLog {
    /// A log that keeps the last `events_max` events, at least one.
    pub fn new(events_max: usize) -> EventLog {
        EventLog { events: VecDeque::new(), events_max: events_max.max(1), last_id: 0 }
    }

    /// Keeps the last `events_max` events from now on, at least one.
    pub(crate) fn set_max(&mut self, events_max: usize) {
        self.events_max = events_max.max(1);
        let too_many = self.events.len().saturating_sub(self.events_max);
        self.events.drain(..too_many);
    }

    /// The number of the last event. 0 before the first.
    pub fn last_id(&self) -> u64 {
        self.last_id
    }

    /// The events after number `id` that are still kept, oldest first.
    pub fn after(&self, id: u64) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let first = self.events.partition_point(|event| event.id <= id);
        self.events.range(first..)
    }

    /// How many events after number `id` are no longer kept.
    pub fn missed_after(&self, id: u64) -> u64 {
        let first = self.events.front().map_or(self.last_id + 1, |event| event.id);
        first.saturating_sub(id.saturating_add(1))
    }

    /// The number of the next event.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id + 1
    }

    /// Stores an event, which must have the next number.
    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.last_id = event.id;
        if self.events.len() == self.events_max {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}
