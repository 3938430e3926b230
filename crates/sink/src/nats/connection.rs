//! One connection to NATS, used until it is lost. The client would reconnect automatically, and lose what was in flight.

use super::answers::{denied, lost, unconnected};
use super::{ANSWER_TIMEOUT, NatsOptions, NatsService};
use crate::byte_stream::CONNECT_TIMEOUT;
use crate::tls::client_config;
use async_nats::jetstream::{Context, ContextBuilder};
use async_nats::{Client, ConnectOptions, Event, ServerError, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use ledger::Trouble;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Interval between checks whether the connection is lost.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// State shared by all attempts.
pub(super) struct Shared {
    pub(super) options: Arc<NatsOptions>,
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
}

pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) stream: Context,
    options: Arc<NatsOptions>,
    heard: Arc<Heard>,
    /// Where messages to our own inbox arrive.
    inbox: tokio::sync::Mutex<Inbox>,
    address: String,
    /// Number of the next message to our own inbox.
    next: AtomicU64,
}

struct Inbox {
    messages: Subscriber,
    /// The highest number that has arrived.
    heard: Option<u64>,
}

/// What the client reported about the connection.
#[derive(Default)]
struct Heard {
    is_lost: AtomicBool,
    /// The server's refusal.
    refusal: Mutex<Option<String>>,
}

impl Shared {
    pub(super) fn new(options: Arc<NatsOptions>) -> Shared {
        Shared { options, connection: tokio::sync::Mutex::default() }
    }

    /// The existing connection, or a new one.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, Trouble> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.is_lost()) {
            return Ok(Arc::clone(connection));
        }
        *slot = None;
        let connection = Arc::new(Connection::open(&self.options).await?);
        Ok(Arc::clone(slot.insert(connection)))
    }

    /// Makes the next attempt reconnect, unless another attempt already has.
    pub(super) async fn forget(&self, lost: &Arc<Connection>) {
        let mut slot = self.connection.lock().await;
        if slot.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, lost)) {
            *slot = None;
        }
    }
}

impl Connection {
    async fn open(options: &Arc<NatsOptions>) -> Result<Connection, Trouble> {
        let heard = Arc::new(Heard::default());
        let connect = connect_options(options, &heard).await?;
        let client = connect.connect(options.servers.clone()).await;
        let client = client.map_err(|error| unconnected(options, &error))?;

        let address = client.new_inbox();
        let inbox = match options.service {
            // The inbox is not used, and a user of a stream may lack permission for the other one.
            NatsService::JetStream => client.subscribe(client.new_inbox()).await,
            NatsService::Core => client.subscribe(address.clone()).await,
        };
        let messages = inbox.map_err(|error| Trouble {
            what: format!("{options}: no inbox: {error}"),
            fix: "see the server's log".to_owned(),
        })?;
        let inbox = tokio::sync::Mutex::new(Inbox { messages, heard: None });
        let stream = ContextBuilder::new()
            .timeout(ANSWER_TIMEOUT)
            .ack_timeout(ANSWER_TIMEOUT)
            .max_ack_inflight(ACKS_MAX)
            .build(client.clone());
        let (options, next) = (Arc::clone(options), AtomicU64::new(0));
        Ok(Connection { client, stream, options, heard, inbox, address, next })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.heard.is_lost.load(Ordering::Acquire)
    }

    /// Waits for a future, unless the connection is lost first.
    pub(super) async fn unless_lost<T>(&self, wanted: impl Future<Output = T>) -> Option<T> {
        let mut wanted = pin!(wanted);
        while !self.is_lost() {
            if let Ok(found) = timeout(LOOK_INTERVAL, &mut wanted).await {
                return Some(found);
            }
        }
        None
    }

    /// Why the connection was lost.
    pub(super) fn trouble(&self) -> Trouble {
        let refusal = self.heard.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        refusal.as_ref().map_or_else(|| lost(&self.options), |says| denied(&self.options, says))
    }

    /// Waits until the server has processed everything sent so far. An error ends the connection.
    pub(super) async fn round_trip(&self) -> Result<(), Trouble> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let payload = Bytes::copy_from_slice(&number.to_be_bytes());
        let sent = self.client.publish(self.address.clone(), payload);
        if !matches!(self.unless_lost(sent).await, Some(Ok(()))) {
            return Err(self.trouble());
        }

        let came_back = self.unless_lost(timeout(ANSWER_TIMEOUT, self.hear(number))).await;
        // Another task reports what the server said before that.
        tokio::task::yield_now().await;
        if !matches!(came_back, Some(Ok(true))) {
            // The server hangs, or the connection has ended: the next attempt opens another.
            self.heard.is_lost.store(true, Ordering::Release);
        }
        if self.is_lost() { Err(self.trouble()) } else { Ok(()) }
    }

    /// Waits for the message with this number, or one sent later: a later message has a higher number and follows everything that
    /// this one waits for.
    async fn hear(&self, number: u64) -> bool {
        let mut inbox = self.inbox.lock().await;
        while inbox.heard < Some(number) {
            let Some(message) = inbox.messages.next().await else { return false };
            let heard = message.payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            inbox.heard = inbox.heard.max(heard);
        }
        true
    }
}

/// More than the number of parts in all batches that can be in flight.
const ACKS_MAX: usize = 1 << 20;

async fn connect_options(
    options: &NatsOptions,
    heard: &Arc<Heard>,
) -> Result<ConnectOptions, Trouble> {
    let of_events = Arc::clone(heard);
    let mut connect = ConnectOptions::new()
        .name("weir")
        .connection_timeout(CONNECT_TIMEOUT)
        .max_reconnects(1)
        .event_callback(move |event| {
            of_events.note(&event);
            std::future::ready(())
        });

    if let (Some(user), Some(password)) = (&options.login.user, options.login.password()?) {
        connect = connect.user_and_password(user.clone(), password.reveal().to_owned());
    }
    if let Some(token) = options.login.token()? {
        connect = connect.token(token.reveal().to_owned());
    }
    if let Some(seed) = &options.nkey {
        connect = connect.nkey(seed.read()?.reveal().to_owned());
    }
    if let Some(path) = &options.credentials {
        let shown = path.display();
        connect = connect.credentials_file(path).await.map_err(|error| Trouble {
            what: format!("{shown} cannot be used: {error}"),
            fix: format!("see that it is a file as nsc makes it, and can be read: ls -l {shown}"),
        })?;
    }
    if let Some(tls) = &options.tls {
        connect = connect.require_tls(true).tls_client_config(client_config(tls)?);
    }
    Ok(connect)
}

impl Heard {
    fn note(&self, event: &Event) {
        match event {
            Event::Disconnected | Event::Closed => self.is_lost.store(true, Ordering::Release),
            Event::ServerError(ServerError::Other(says)) => {
                let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
                *refusal = Some(says.clone());
                drop(refusal);
                // The error does not say which message it is about, so everything in flight is in doubt.
                self.is_lost.store(true, Ordering::Release);
            }
            _ => {}
        }
    }
}
