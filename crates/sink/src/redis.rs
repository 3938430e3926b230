//! Redis, Valkey and compatible servers: each part is an entry of a stream (`XADD`), or a message to a channel (`PUBLISH`).
//!
//! The commands of a batch are pipelined, and each has its own answer. An error answer means that its command did nothing. A
//! command whose answer was lost may have been executed, and is repeated: Redis cannot tell.

mod answers;

use crate::batch::{Attempt, Batch, Failure, Fate, Outcome, Parts, Sent};
use crate::byte_stream::CONNECT_TIMEOUT;
use crate::destination::{Connector, Destination, Form, ReadBack};
use crate::encode::{Content, Partition};
use crate::secret::{Login, TlsOptions, TlsVerify};
use crate::tasks::Tasks;
use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::TcpSettings;
use ::redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, IntoConnectionInfo,
    Pipeline, RedisConnectionInfo, RedisError, TlsCertificates, Value,
};
use ledger::{Reason, Trouble};
use record::RowKind;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Timeout for the answers to one batch.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Most batches in flight at a time, whatever the sink's options say.
const IN_FLIGHT_MAX: usize = 64;

/// Words in a command, and their bytes without the row, for a name that is not long.
const COMMAND_WORDS: usize = 10;
const COMMAND_BYTES: usize = 128;

/// A Redis destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisOptions {
    pub host: String,
    pub port: u16,
    /// The number of the database.
    pub database: u32,
    pub place: RedisPlace,
    pub login: Login,
    /// `None`: without TLS.
    pub tls: Option<TlsOptions>,
}

/// Where rows go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisPlace {
    /// Entries of a stream. Beyond `entries_max`, the oldest are removed, in whole nodes of the stream (`MAXLEN ~`).
    Stream { name: String, entries_max: Option<u64> },
    /// Messages to the current subscribers of a channel. One without subscribers is counted as `refused`.
    Channel(String),
}

impl fmt::Display for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let (RedisPlace::Stream { name, .. } | RedisPlace::Channel(name)) = &self.place;
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}/{name}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}/{name}", self.host, self.port),
        }
    }
}

/// Sends rows to Redis.
pub fn redis(options: RedisOptions, content: Content) -> Connector {
    let form = move || {
        Form::ByKind(RowKind::ALL.map(|kind| (kind, content.encoder(Partition::Rows))).into())
    };
    let options = Arc::new(options);
    let destination = move || {
        let tasks = Tasks::new().map_err(|error| Trouble {
            what: format!("{options}: {error}"),
            fix: "raise the limit of open files: ulimit -n".to_owned(),
        })?;
        let shared = Shared { options: Arc::clone(&options), connection: Mutex::default() };
        Ok(Box::new(Redis { tasks, shared: Arc::new(shared) }) as Box<dyn Destination>)
    };
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

struct Redis {
    tasks: Tasks,
    shared: Arc<Shared>,
}

/// State shared by all attempts.
struct Shared {
    options: Arc<RedisOptions>,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Destination for Redis {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if self.tasks.len() >= IN_FLIGHT_MAX {
            return Err(attempt);
        }
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move { shared.deliver(attempt).await });
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        self.tasks.poll(wait, done);
    }

    fn read_back(&mut self, batch: &Batch, wait: Duration) -> ReadBack {
        let RedisPlace::Stream { name, .. } = &self.shared.options.place else {
            return ReadBack::Cannot("a channel keeps nothing");
        };
        match self.tasks.block_on(wait, self.shared.is_there(name, batch)) {
            Some(Ok(true)) => ReadBack::Found,
            Some(Ok(false)) => {
                ReadBack::Missing(format!("the last {LOOK_BACK} entries of {name} do not have it"))
            }
            Some(Err(what)) => ReadBack::Missing(what),
            None => ReadBack::Missing(format!("{name} was not read in time")),
        }
    }
}

/// How many of the last entries of a stream to search for a batch.
const LOOK_BACK: usize = 1_000;

impl Shared {
    async fn deliver(&self, attempt: Attempt) -> Vec<Outcome> {
        let (id, batch) = (attempt.batch.id, &attempt.batch);
        let places: Vec<usize> = attempt.parts.places(batch.encoded.parts.len()).collect();
        let pipeline = self.pipeline(batch, &places);
        let all = |fate| vec![Outcome { batch: id, parts: attempt.parts.clone(), fate }];

        let mut connection = match self.connection().await {
            Ok(connection) => connection,
            Err(trouble) => return all(failed(Sent::No, trouble)),
        };
        let answers: Result<Vec<Value>, RedisError> = pipeline.query_async(&mut connection).await;
        match answers {
            Ok(answers) => self.fates(&places, &answers, id),
            Err(error) => {
                // The next attempt reconnects.
                *self.connection.lock().await = None;
                all(failed(Sent::Maybe, answers::lost(&self.options, &error)))
            }
        }
    }

    fn pipeline(&self, batch: &Batch, places: &[usize]) -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(places.len());
        for &place in places {
            let row = batch.part(place);
            // A command that grows word by word would be reallocated six times.
            let mut command = Cmd::with_capacity(COMMAND_WORDS, COMMAND_BYTES + row.len());
            match &self.options.place {
                RedisPlace::Channel(name) => {
                    command.arg("PUBLISH").arg(name).arg(row);
                }
                RedisPlace::Stream { name, entries_max } => {
                    command.arg("XADD").arg(name);
                    if let Some(max) = entries_max {
                        command.arg("MAXLEN").arg("~").arg(*max);
                    }
                    command.arg("*").arg("kind").arg(kind_name(batch.kind)).arg("record").arg(row);
                }
            }
            pipeline.add_command(command);
        }
        pipeline.ignore_errors();
        pipeline
    }

    /// The fate of each part, with runs of equal fates merged.
    fn fates(
        &self,
        places: &[usize],
        answers: &[Value],
        id: crate::batch::BatchId,
    ) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = Vec::new();
        for (at, &place) in places.iter().enumerate() {
            let fate = answers::fate(&self.options, answers.get(at));
            match outcomes.last_mut() {
                Some(Outcome { parts: Parts::Some(run), fate: last, .. }) if *last == fate => {
                    run.push(place as u32);
                }
                _ => {
                    let parts = Parts::Some(vec![place as u32]);
                    outcomes.push(Outcome { batch: id, parts, fate });
                }
            }
        }
        outcomes
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Trouble> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.as_ref() {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let client = client(&self.options)?;
        let connected = client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connected.map_err(|error| answers::unconnected(&self.options, &error))?;
        Ok(slot.insert(connection).clone())
    }

    /// Whether the first part of a batch is among the last entries of the stream.
    async fn is_there(&self, name: &str, batch: &Batch) -> Result<bool, String> {
        let mut connection = self.connection().await.map_err(|trouble| trouble.what)?;
        let mut command = ::redis::cmd("XREVRANGE");
        command.arg(name).arg("+").arg("-").arg("COUNT").arg(LOOK_BACK);
        let entries: Vec<(String, Vec<Vec<u8>>)> =
            command.query_async(&mut connection).await.map_err(|error| error.to_string())?;
        let wanted = batch.part(0);
        Ok(entries.iter().any(|(_, fields)| fields.iter().any(|field| field == wanted)))
    }
}

fn failed(sent: Sent, trouble: Trouble) -> Fate {
    let reason = Some(Reason::Unavailable);
    Fate::Failed(Failure { sent, reason, after: None, trouble })
}

/// The kind in an entry: the name of the message in `weir.proto` that decodes the row.
fn kind_name(kind: Option<RowKind>) -> &'static str {
    kind.unwrap_or(RowKind::Record).word()
}

/// Reads secrets and certificates, so that changes take effect at the next connection.
fn client(options: &RedisOptions) -> Result<Client, Trouble> {
    let mut settings = RedisConnectionInfo::default().set_db(options.database.into());
    if let Some(user) = &options.login.user {
        settings = settings.set_username(user);
    }
    if let Some(password) = options.login.password()? {
        settings = settings.set_password(password.reveal());
    }

    let (host, port) = (options.host.clone(), options.port);
    let addr = match &options.tls {
        None => ConnectionAddr::Tcp(host, port),
        Some(tls) => {
            let insecure = tls.verify == TlsVerify::Off;
            ConnectionAddr::TcpTls { host, port, insecure, tls_params: None }
        }
    };
    let unusable = |error: RedisError| Trouble {
        what: format!("{options}: no client can be made: {error}"),
        fix: "see that the files of tls_ca, tls_cert and tls_key are PEM".to_owned(),
    };
    // So that the end of a batch need not wait for the acknowledgment of earlier bytes.
    let at_once = TcpSettings::default().set_nodelay(true);
    let info = addr.into_connection_info().map_err(unusable)?;
    let info = info.set_redis_settings(settings).set_tcp_settings(at_once);
    match &options.tls {
        None => Client::open(info),
        Some(tls) => Client::build_with_tls(info, certificates(tls)?),
    }
    .map_err(unusable)
}

fn certificates(tls: &TlsOptions) -> Result<TlsCertificates, Trouble> {
    let client_tls = match &tls.identity {
        None => None,
        Some(identity) => Some(ClientTlsConfig {
            client_cert: read(&identity.certificate)?,
            client_key: read(&identity.key)?,
        }),
    };
    let root_cert = tls.ca.as_deref().map(read).transpose()?;
    Ok(TlsCertificates { client_tls, root_cert })
}

fn read(path: &Path) -> Result<Vec<u8>, Trouble> {
    let shown = path.display();
    fs::read(path).map_err(|error| Trouble {
        what: format!("{shown} cannot be read: {error}"),
        fix: format!("see that this user may read it: ls -l {shown}"),
    })
}
