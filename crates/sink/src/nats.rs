//! NATS: each part is a message to one subject, with an acknowledgment (`JetStream`) or without (core NATS).
//!
//! Core NATS does not answer. So after each batch this sends a message to its own inbox: a server processes the messages of
//! one connection in order, so when that message comes back over the same connection, the server has processed everything before
//! it. `JetStream` acknowledges each message, and drops one whose id it has seen within the stream's `duplicate_window`: the id
//! is derived from the rows, so a repeated batch is stored once.

mod answers;
mod connection;

use crate::batch::{Attempt, Batch, BatchId, Fate, Outcome, Parts, Sent};
use crate::destination::{Connector, Destination, Form, ReadBack};
use crate::encode::{Content, Partition};
use crate::secret::{Login, SecretSource, TlsOptions};
use crate::tasks::Tasks;
use answers::{failed, fate_of, too_large};
use async_nats::HeaderMap;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use connection::{Connection, Shared};
use ledger::Trouble;
use record::RowKind;
use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

/// Timeout for the answer to one message.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Most batches in flight at a time, whatever the sink's options say.
const IN_FLIGHT_MAX: usize = 64;

/// A NATS destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsOptions {
    /// `HOST:PORT` each; one that answers is enough.
    pub servers: Vec<String>,
    pub subject: String,
    pub service: NatsService,
    pub login: Login,
    /// A file with a user's JWT and key, as created by `nsc`.
    pub credentials: Option<std::path::PathBuf>,
    /// The seed of an nkey.
    pub nkey: Option<SecretSource>,
    /// `None`: as the server requires.
    pub tls: Option<TlsOptions>,
}

/// The receiver of the messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatsService {
    /// The current subscribers.
    Core,
    /// A stream, which must exist.
    JetStream,
}

impl fmt::Display for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.service {
            NatsService::Core => "nats",
            NatsService::JetStream => "jetstream",
        };
        write!(f, "{scheme}://{}/{}", self.servers.join(","), self.subject)
    }
}

/// Sends rows to NATS.
pub fn nats(options: NatsOptions, content: Content) -> Connector {
    let form = move || {
        Form::ByKind(RowKind::ALL.map(|kind| (kind, content.encoder(Partition::Rows))).into())
    };
    let options = Arc::new(options);
    let destination = move || {
        let tasks = Tasks::new().map_err(|error| Trouble {
            what: format!("{options}: {error}"),
            fix: "raise the limit of open files: ulimit -n".to_owned(),
        })?;
        let shared = Arc::new(Shared::new(Arc::clone(&options)));
        Ok(Box::new(Nats { tasks, shared }) as Box<dyn Destination>)
    };
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

struct Nats {
    tasks: Tasks,
    shared: Arc<Shared>,
}

impl Destination for Nats {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if self.tasks.len() >= IN_FLIGHT_MAX {
            return Err(attempt);
        }
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move { deliver(&shared, attempt).await });
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        self.tasks.poll(wait, done);
    }

    fn read_back(&mut self, batch: &Batch, wait: Duration) -> ReadBack {
        if self.shared.options.service == NatsService::Core {
            return ReadBack::Cannot("core NATS keeps nothing");
        }
        match self.tasks.block_on(wait, is_there(&self.shared, batch)) {
            Some(Ok(true)) => ReadBack::Found,
            Some(Ok(false)) => ReadBack::Missing(format!(
                "the last {LOOK_BACK} messages of the stream do not have it"
            )),
            Some(Err(what)) => ReadBack::Missing(what),
            None => ReadBack::Missing("the stream was not read in time".to_owned()),
        }
    }
}

/// How many of the last messages of a stream to search for a batch.
const LOOK_BACK: u64 = 100;

/// Whether the first part of a batch is among the last messages of the stream.
async fn is_there(shared: &Shared, batch: &Batch) -> Result<bool, String> {
    let connection = shared.connection().await.map_err(|trouble| trouble.what)?;
    let context = &connection.stream;
    let name = context.stream_by_subject(shared.options.subject.clone()).await;
    let stream = context.get_stream(name.map_err(|error| error.to_string())?).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let last = stream.cached_info().state.last_sequence;
    for number in (last.saturating_sub(LOOK_BACK) + 1..=last).rev() {
        // It may be gone: a stream has limits.
        let message = stream.get_raw_message(number).await;
        if message.is_ok_and(|message| message.payload == batch.part(0)) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn deliver(shared: &Shared, attempt: Attempt) -> Vec<Outcome> {
    let (id, batch) = (attempt.batch.id, &attempt.batch);
    let connection = match shared.connection().await {
        Ok(connection) => connection,
        Err(trouble) => {
            let (parts, fate) = (attempt.parts, failed(Sent::No, trouble));
            return vec![Outcome { batch: id, parts, fate }];
        }
    };

    let places: Vec<usize> = attempt.parts.places(batch.encoded.parts.len()).collect();
    let fates = match shared.options.service {
        NatsService::Core => publish(shared, &connection, batch, &places).await,
        NatsService::JetStream => store(shared, &connection, batch, &places).await,
    };
    if connection.is_lost() {
        shared.forget(&connection).await;
    }
    outcomes(id, &places, fates)
}

/// Merges consecutive parts with the same fate.
fn outcomes(batch: BatchId, places: &[usize], fates: Vec<Fate>) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (&place, fate) in places.iter().zip(fates) {
        match outcomes.last_mut() {
            Some(Outcome { parts: Parts::Some(run), fate: last, .. }) if *last == fate => {
                run.push(place as u32);
            }
            _ => outcomes.push(Outcome { batch, parts: Parts::Some(vec![place as u32]), fate }),
        }
    }
    outcomes
}

/// Sends messages without acknowledgment, followed by a message to our own inbox.
async fn publish(
    shared: &Shared,
    connection: &Connection,
    batch: &Batch,
    places: &[usize],
) -> Vec<Fate> {
    let options = &shared.options;
    let mut fates = Vec::with_capacity(places.len());
    let mut sent = Sent::No;
    for &place in places {
        let payload = Bytes::copy_from_slice(batch.part(place));
        if let Some(fate) = too_large(options, &connection.client, payload.len()) {
            fates.push(fate);
            continue;
        }

        let headers = headers(batch);
        let subject = options.subject.clone();
        let message = connection.client.publish_with_headers(subject, headers, payload);
        if !matches!(connection.unless_lost(message).await, Some(Ok(()))) {
            break;
        }
        sent = Sent::Maybe;
        fates.push(Fate::Acknowledged);
    }

    let trouble = match connection.round_trip().await {
        Ok(()) if fates.len() == places.len() => return fates,
        Ok(()) => connection.trouble(),
        Err(trouble) => trouble,
    };
    let fate = failed(sent, trouble);
    let refused = |fate: &Fate| matches!(fate, Fate::Rejected { .. });
    for known in fates.iter_mut().filter(|known| !refused(known)) {
        *known = fate.clone();
    }
    fates.resize(places.len(), fate);
    fates
}

/// Sends messages that a stream acknowledges, all of a batch at once.
async fn store(
    shared: &Shared,
    connection: &Connection,
    batch: &Batch,
    places: &[usize],
) -> Vec<Fate> {
    let options = &shared.options;
    let mut waiting = Vec::with_capacity(places.len());
    for &place in places {
        let payload = Bytes::copy_from_slice(batch.part(place));
        let message = PublishMessage::build()
            .payload(payload)
            .headers(headers(batch))
            .message_id(format!("{:032x}-{place}", batch.token));
        let subject = options.subject.clone();
        let sent = connection.unless_lost(connection.stream.send_publish(subject, message)).await;
        waiting.push(sent);
    }

    let mut fates = Vec::with_capacity(places.len());
    for sent in waiting {
        let answer = match sent {
            Some(Ok(answer)) => connection.unless_lost(answer.into_future()).await,
            Some(Err(error)) => Some(Err(error)),
            None => {
                fates.push(failed(Sent::No, connection.trouble()));
                continue;
            }
        };
        let lost = || failed(Sent::Maybe, connection.trouble());
        fates.push(answer.map_or_else(lost, |answer| fate_of(options, answer)));
    }
    fates
}

/// The headers of a message.
fn headers(batch: &Batch) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("weir-kind", batch.kind.unwrap_or(RowKind::Record).word());
    headers
}
