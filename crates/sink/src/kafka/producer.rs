//! The destination: turns attempts into messages, and message reports into outcomes.

use super::answers::{self, Answer};
use super::client::{self, Client, Place, Report, Said, Sending};
use super::registry::Schemas;
use super::{KafkaKey, KafkaOptions};
use crate::batch::{Attempt, Batch, BatchId, Failure, Fate, Outcome, PartKey, Parts, Sent};
use crate::destination::{Connector, Destination, Form, OwnFigures, ReadBack};
use crate::encode::{Content, Partition};
use ledger::{Reason, RejectClass, Trouble};
use record::RowKind;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use sys::kafka::Persistence;

impl KafkaOptions {
    pub(super) fn topic_of(&self, kind: Option<RowKind>) -> &str {
        match kind {
            Some(RowKind::Totals) => &self.totals_topic,
            _ => &self.topic,
        }
    }
}

/// Interval between polls of the client's reports. The client's own wait counts in whole milliseconds and spins through the last
/// one: a third of all CPU time.
const POLL_STEP: Duration = Duration::from_millis(1);

/// Interval between reports of what was acknowledged of an attempt in flight. Most attempts end sooner, and are one report.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Messages to a topic, one per row.
pub fn kafka(options: KafkaOptions, content: Content) -> Connector {
    let form = move || {
        Form::ByKind(RowKind::ALL.map(|kind| (kind, content.encoder(Partition::Rows))).into())
    };
    let destination = move || Ok(Box::new(Kafka::new(options.clone())) as Box<dyn Destination>);
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

struct Kafka {
    options: KafkaOptions,
    /// `None` before the first batch, and after an error that ends a producer.
    client: Option<Client>,
    /// `None` if values are the rows alone.
    schemas: Option<Schemas>,
    /// Attempts that wait for the registration of their schema, oldest first.
    waiting: VecDeque<Attempt>,
    flights: HashMap<u32, Flight>,
    /// Flights that were not passed to the client completely, oldest first.
    feeding: VecDeque<u32>,
    next_flight: u32,
    done: Vec<Outcome>,
    /// Where the last message of the last acknowledged batch is.
    last: Option<(BatchId, Place)>,
    /// How much the client may send in one request. The brokers' limit applies to that, not to a single message.
    sent_as_one_bytes: usize,
    /// Whether the client has failed to deliver a message in the time it had. What it knows of the partitions' leaders may be wrong,
    /// and need not correct itself: once nothing is in flight, it is replaced.
    has_timed_out: bool,
    /// The error that ended the last client.
    ended_by: Option<Said>,
    /// When acknowledged parts of attempts in flight were last reported.
    reported_at: Instant,
}

/// librdkafka's default, which fits the brokers' default limit.
const SENT_AS_ONE_BYTES: usize = 1_000_000;

/// One attempt in flight.
struct Flight {
    attempt: Attempt,
    /// The beginning of each value.
    head: Vec<u8>,
    places: Vec<u32>,
    /// How many of them were passed to the client.
    fed: usize,
    /// How many of them have no answer yet.
    open: usize,
    /// For each part of the batch, whether it has an answer.
    answered: Vec<bool>,
    /// Parts that were acknowledged and are not reported yet.
    good: Vec<u32>,
    /// Parts that were not acknowledged, and why.
    bad: Vec<(u32, Answer, Persistence)>,
    /// Where the last acknowledged part is.
    last: Option<Place>,
}

impl Kafka {
    fn new(options: KafkaOptions) -> Kafka {
        Kafka {
            schemas: options.registry.clone().map(Schemas::new),
            waiting: VecDeque::new(),
            options,
            client: None,
            flights: HashMap::new(),
            feeding: VecDeque::new(),
            next_flight: 0,
            done: Vec::new(),
            last: None,
            sent_as_one_bytes: SENT_AS_ONE_BYTES,
            has_timed_out: false,
            ended_by: None,
            reported_at: Instant::now(),
        }
    }

    /// Registers the schema that attempts wait for, for at most `wait`, and then begins them.
    fn register(&mut self, wait: Duration) {
        let Some(topic) = self.waiting.front().map(|oldest| self.topic_of(oldest)) else { return };
        let asked = self.schemas.as_mut().and_then(|schemas| schemas.ask(&topic, wait));
        match asked {
            None => {}
            Some(Ok(())) => {
                while let Some(attempt) = self.waiting.pop_front() {
                    if self.topic_of(&attempt) != topic {
                        return self.waiting.push_front(attempt);
                    }
                    if let Err(attempt) = self.begin(attempt) {
                        return self.waiting.push_front(attempt);
                    }
                }
            }
            Some(Err(trouble)) => {
                let waiting = std::mem::take(&mut self.waiting);
                let (failed, others): (VecDeque<_>, _) =
                    waiting.into_iter().partition(|one| self.topic_of(one) == topic);
                self.waiting = others;
                failed.iter().for_each(|attempt| self.fail(attempt, trouble.clone()));
            }
        }
    }

    fn topic_of(&self, attempt: &Attempt) -> String {
        self.options.topic_of(attempt.batch.kind).to_owned()
    }

    /// The beginning of values of this kind; `None` if their schema is not registered.
    fn head(&self, kind: Option<RowKind>) -> Option<Vec<u8>> {
        match &self.schemas {
            None => Some(Vec::new()),
            Some(schemas) => schemas.head(self.options.topic_of(kind), kind),
        }
    }

    /// Passes an attempt to the client, or gives it back if the client has no room.
    fn begin(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        let limit = self.client.as_ref().map(Client::sent_as_one_bytes);
        let is_outdated =
            self.has_timed_out || limit.is_some_and(|limit| limit != self.sent_as_one_bytes);
        if !self.feeding.is_empty() || (is_outdated && !self.flights.is_empty()) {
            return Err(attempt);
        }
        let Some(head) = self.head(attempt.batch.kind) else { return Err(attempt) };
        if is_outdated {
            self.client = None;
        }
        if self.client.is_none() {
            match Client::open(&self.options, self.sent_as_one_bytes) {
                Ok(client) => (self.client, self.has_timed_out) = (Some(client), false),
                Err(trouble) => {
                    self.fail(&attempt, trouble);
                    return Ok(());
                }
            }
        }

        let count = attempt.batch.encoded.parts.len();
        let places: Vec<u32> = attempt.parts.places(count).map(|place| place as u32).collect();
        let (fed, open, answered) = (0, places.len(), vec![false; count]);
        let (good, bad, last) = (Vec::new(), Vec::new(), None);
        let flight = Flight { attempt, head, places, fed, open, answered, good, bad, last };
        self.flights.insert(self.next_flight, flight);
        self.feeding.push_back(self.next_flight);
        self.next_flight = self.next_flight.wrapping_add(1);
        self.feed();
        Ok(())
    }

    /// Passes messages to the client until its queue is full.
    fn feed(&mut self) {
        let Some(client) = &mut self.client else { return };
        while let Some(&number) = self.feeding.front() {
            let Some(flight) = self.flights.get_mut(&number) else { break };
            if feed_one(client, &self.options, number, flight) == Fed::ClientFull {
                return;
            }
            self.feeding.pop_front();
            if flight.open == 0 {
                self.end(number);
                return self.feed();
            }
        }
    }

    /// Processes the client's message reports.
    fn hear(&mut self) {
        let Some(client) = &self.client else { return };
        for report in client.take_reports() {
            self.note(report);
        }
    }

    fn note(&mut self, report: Report) {
        let Some(flight) = self.flights.get_mut(&report.flight) else { return };
        flight.answer(report.part);
        match report.answer {
            Ok(place) => {
                flight.last = Some(place);
                flight.good.push(report.part);
            }
            Err((code, persistence)) => {
                let mut answer = Answer::of(code);
                self.has_timed_out |= answer == Answer::TIMED_OUT;
                let bytes = flight.attempt.batch.part(report.part as usize).len();
                let limit = self.client.as_ref().map_or(0, Client::sent_as_one_bytes);
                if answer.rejects() == Some(RejectClass::TooLarge) && bytes < limit {
                    // It was not sent alone. The next client, which sends less per request, shows whether it is too large by
                    // itself.
                    self.sent_as_one_bytes = limit / 4;
                    answer = Answer::SENT_WITH_OTHERS;
                }
                flight.bad.push((report.part, answer, persistence));
            }
        }
        if flight.open == 0 {
            self.end(report.flight);
        }
    }

    /// Reports the outcome of an attempt: first what succeeded, then what was refused, and last what failed, so that the failed
    /// parts are retried once.
    fn end(&mut self, number: u32) {
        let Some(flight) = self.flights.remove(&number) else { return };
        let id = flight.attempt.batch.id;
        if let Some(place) = flight.last {
            self.last = Some((id, place));
        }
        if flight.good.len() == flight.places.len() {
            let parts = flight.attempt.parts;
            self.done.push(Outcome { batch: id, parts, fate: Fate::Acknowledged });
            return;
        }

        let said = self.said();
        self.done
            .extend(outcomes(flight, |code| answers::trouble(&self.options, code, said.as_ref())));
    }

    /// Reports what was acknowledged of attempts that are still in flight. Should the sink abandon this destination, these parts
    /// are not sent again.
    fn report_progress(&mut self) {
        if self.reported_at.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.reported_at = Instant::now();
        self.done.extend(self.flights.values_mut().filter_map(Flight::acknowledged));
    }

    /// A producer that has had a fatal error accepts nothing more. Its messages get their answers, and it is replaced.
    fn end_broken(&mut self) {
        if !self.client.as_ref().is_some_and(Client::is_broken) {
            return;
        }
        self.ended_by = self.said();
        if let Some(client) = self.client.take() {
            for report in client.end() {
                self.note(report);
            }
        }
        let lost: Vec<_> = self.flights.keys().copied().collect();
        for number in lost {
            if let Some(flight) = self.flights.get_mut(&number) {
                flight.abandon();
            }
            self.end(number);
        }
        self.feeding.clear();
    }

    /// The current trouble, or the one that ended the client.
    fn said(&self) -> Option<Said> {
        match &self.client {
            Some(client) => client.trouble(),
            None => self.ended_by.clone(),
        }
    }

    fn fail(&mut self, attempt: &Attempt, trouble: Trouble) {
        let reason = Some(Reason::Unavailable);
        let failure = Failure { sent: Sent::No, reason, after: None, trouble };
        let outcome = Outcome {
            batch: attempt.batch.id,
            parts: attempt.parts.clone(),
            fate: Fate::Failed(failure),
        };
        self.done.push(outcome);
    }
}

impl Flight {
    /// Notes that a part has an answer.
    fn answer(&mut self, part: u32) {
        self.open -= 1;
        if let Some(answered) = self.answered.get_mut(part as usize) {
            *answered = true;
        }
    }

    /// The outcome of the parts that were acknowledged since the last call.
    fn acknowledged(&mut self) -> Option<Outcome> {
        let (batch, mut good) = (self.attempt.batch.id, std::mem::take(&mut self.good));
        good.sort_unstable();
        if good.is_empty() {
            return None;
        }
        Some(Outcome { batch, parts: Parts::Some(good), fate: Fate::Acknowledged })
    }

    /// Counts everything without an answer as failed: what the client did not get was not sent.
    fn abandon(&mut self) {
        for (at, &part) in self.places.iter().enumerate() {
            if self.answered.get(part as usize) == Some(&false) {
                let is_fed = at < self.fed;
                let persistence = if is_fed { Persistence::Possible } else { Persistence::No };
                self.bad.push((part, Answer::ENDED, persistence));
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Fed {
    All,
    ClientFull,
}

fn feed_one(client: &mut Client, options: &KafkaOptions, number: u32, flight: &mut Flight) -> Fed {
    let batch = Arc::clone(&flight.attempt.batch);
    let topic = options.topic_of(batch.kind);
    while let Some(&part) = flight.places.get(flight.fed) {
        let from = batch.encoded.parts.get(part as usize).map_or(PartKey::NONE, |part| part.key);
        let both = from.bytes();
        let key = match options.key {
            KafkaKey::Host => Some(&both[..16]),
            KafkaKey::Connection => Some(&both[..]),
            KafkaKey::None => None,
        };
        let message = Sending {
            topic,
            kind: batch.kind,
            key,
            run: from.run,
            head: &flight.head,
            payload: batch.part(part as usize),
            flight: number,
            part,
        };
        match client.send(&message) {
            Ok(()) => {}
            Err(code) if answers::is_full(code) => return Fed::ClientFull,
            Err(code) => {
                flight.bad.push((part, Answer::of(code), Persistence::No));
                flight.answer(part);
            }
        }
        flight.fed += 1;
    }
    Fed::All
}

/// The outcomes of an attempt that did not succeed completely.
fn outcomes(mut flight: Flight, trouble: impl Fn(Answer) -> Trouble) -> Vec<Outcome> {
    let batch = flight.attempt.batch.id;
    let mut outcomes: Vec<Outcome> = flight.acknowledged().into_iter().collect();
    let mut bad = flight.bad;
    bad.sort_by_key(|(part, ..)| *part);

    for class in ledger::RejectClass::ALL.iter().copied() {
        let of_class = bad.iter().filter(|(_, answer, _)| answer.rejects() == Some(class));
        let parts: Vec<u32> = of_class.clone().map(|(part, ..)| *part).collect();
        if let Some((_, answer, _)) = of_class.clone().next() {
            let fate = Fate::Rejected { class, says: answer.to_string() };
            outcomes.push(Outcome { batch, parts: Parts::Some(parts), fate });
        }
    }

    for sent in [Sent::No, Sent::Maybe] {
        let is_sent = |persistence: Persistence| match persistence {
            Persistence::No => Sent::No,
            Persistence::Possible | Persistence::Yes => Sent::Maybe,
        };
        let failed = bad.iter().filter(|(_, answer, persistence)| {
            answer.rejects().is_none() && is_sent(*persistence) == sent
        });
        let parts: Vec<u32> = failed.clone().map(|(part, ..)| *part).collect();
        // A message that failed because of another says nothing about the cause; the other does.
        let says = failed.clone().map(|(_, answer, _)| *answer).max_by_key(Answer::weight);
        if let Some(answer) = says {
            let reason = answer.is_outage().then_some(Reason::Unavailable);
            let failure = Failure { sent, reason, after: None, trouble: trouble(answer) };
            outcomes.push(Outcome {
                batch,
                parts: Parts::Some(parts),
                fate: Fate::Failed(failure),
            });
        }
    }
    outcomes
}

impl Destination for Kafka {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if !self.waiting.is_empty() || self.head(attempt.batch.kind).is_none() {
            self.waiting.push_back(attempt);
            self.register(Duration::ZERO);
            return Ok(());
        }
        self.begin(attempt)
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        let until = Instant::now() + wait;
        loop {
            if let Some(client) = &self.client {
                client.poll();
            }
            self.hear();
            self.feed();
            self.end_broken();
            self.report_progress();
            let is_idle = self.flights.is_empty();
            self.register(if is_idle { POLL_STEP * 10 } else { Duration::ZERO });
            let has_none = self.flights.is_empty() && self.waiting.is_empty();
            let left = until.saturating_duration_since(Instant::now());
            if !self.done.is_empty() || has_none || left.is_zero() {
                break;
            }
            thread::sleep(left.min(POLL_STEP));
        }
        done.append(&mut self.done);
    }

    fn read_back(&mut self, batch: &Batch, wait: Duration) -> ReadBack {
        match &self.last {
            Some((id, place)) if *id == batch.id => {
                let head = self.head(batch.kind).unwrap_or_default();
                client::read_back(&self.options, batch, &head, place, wait)
            }
            _ => ReadBack::Cannot("only the batch that was acknowledged last is looked for"),
        }
    }

    fn figures(&self) -> OwnFigures {
        let said = self.said();
        let waits = !self.flights.is_empty();
        let trouble = said.filter(|_| waits).map(|said| answers::told(&self.options, &said));
        OwnFigures { trouble, ..OwnFigures::default() }
    }

    fn close(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        let until = Instant::now() + wait;
        while !(self.flights.is_empty() && self.waiting.is_empty()) && Instant::now() < until {
            self.poll(POLL_STEP * 10, done);
        }
        self.done.extend(self.flights.values_mut().filter_map(Flight::acknowledged));
        for attempt in std::mem::take(&mut self.waiting) {
            let what = "the schema was not registered before the end".to_owned();
            let fix = "see whether the schema registry answers".to_owned();
            self.fail(&attempt, Trouble { what, fix });
        }
        done.append(&mut self.done);
    }
}
