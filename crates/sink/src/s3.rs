//! A destination that is a bucket of an S3-compatible store: each batch is an object, a Parquet file under the name that it would
//! have in a directory.
//!
//! An object is stored whole or not at all. Its name is derived from its rows, so a batch that is sent twice is stored once,
//! without a condition (`If-None-Match`), which not every store supports. Retries are up to the sink, not the client.

mod upload;

use crate::batch::{Attempt, Batch, BatchId, Failure, Fate, Outcome, Sent};
use crate::destination::{Connector, Destination, ReadBack};
use crate::encode::NumberEncoding;
use crate::parquet::{Names, form};
use crate::secret::{Login, TlsOptions, TlsVerify};
use crate::tasks::Tasks;
use crate::tls;
use ::record::FieldSet;
use bytes::Bytes;
use ledger::{Reason, Trouble};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{Certificate, ClientOptions, Error, ObjectStoreExt, RetryConfig};
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use upload::{Leftovers, SIDE_REQUEST_MAX};

/// Timeout for connecting.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Most objects being uploaded at a time.
const ATTEMPTS_MAX: usize = 64;

/// Messages of a store or client are cut to this length: some answer with whole pages.
const SAID_MAX_CHARS: usize = 300;

/// A bucket, and how to access it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Options {
    pub bucket: String,
    /// Prefix of all object names; may be empty.
    pub prefix: String,
    /// `http://…` or `https://…`; `None`: that of the Amazon region, or the environment's.
    pub endpoint: Option<String>,
    /// `None`: the environment's (`AWS_REGION`), or else `us-east-1`.
    pub region: Option<String>,
    /// User and password are the access key's id and secret, the token is a session token. Without a user, the credentials come
    /// from the environment (`AWS_ACCESS_KEY_ID`, …), or from the cloud that this host runs in.
    pub login: Login,
    pub tls: TlsOptions,
    /// Part of the object names.
    pub host: String,
}

/// A bucket of Parquet files, with a column for each of these fields.
pub fn s3(options: S3Options, fields: FieldSet, numbers: NumberEncoding) -> Connector {
    // They outlive a destination that is abandoned because the store hangs.
    let leftovers = Leftovers::default();
    let destination = move || {
        let bucket = Bucket::new(&options, leftovers.clone()).map_err(|error| Trouble {
            what: format!("no connection can be made: {error}"),
            fix: "raise the number of descriptors: LimitNOFILE of the unit, or ulimit -n".into(),
        })?;
        Ok(Box::new(bucket) as Box<dyn Destination>)
    };
    Connector { form: Box::new(move || form(&fields, numbers)), destination: Box::new(destination) }
}

struct Bucket {
    options: S3Options,
    names: Names,
    tasks: Tasks,
    /// Created from the secrets at that time; recreated once the store refuses them.
    store: Option<Arc<AmazonS3>>,
    leftovers: Leftovers,
    done: Vec<Outcome>,
}

/// The bytes of a batch, without copying.
struct Whole(Arc<Batch>);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.0.encoded.bytes
    }
}

impl Bucket {
    fn new(options: &S3Options, leftovers: Leftovers) -> io::Result<Bucket> {
        Ok(Bucket {
            names: Names::of_host(&options.host),
            options: options.clone(),
            tasks: Tasks::new()?,
            store: None,
            leftovers,
            done: Vec::new(),
        })
    }

    fn store(&mut self) -> Result<Arc<AmazonS3>, Trouble> {
        if let Some(store) = &self.store {
            return Ok(Arc::clone(store));
        }
        let store = Arc::new(connect(&self.options)?);
        self.store = Some(Arc::clone(&store));
        Ok(store)
    }

    /// Removes the parts of failed uploads, next to what is being put: a store that does not answer to that keeps no object
    /// waiting.
    fn remove_leftovers(&mut self) {
        let (Some(store), true) = (self.store.clone(), self.leftovers.are_left()) else { return };
        let leftovers = self.leftovers.clone();
        self.tasks.spawn(async move {
            leftovers.abort(&store).await;
            Vec::new()
        });
    }

    fn path_of(&self, batch: &Batch) -> Path {
        let (partition, name) = self.names.of(batch);
        let prefix = self.options.prefix.split('/').filter(|part| !part.is_empty());
        Path::from_iter(prefix.chain(partition.iter().map(String::as_str)).chain([name.as_str()]))
    }
}

impl Destination for Bucket {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if self.tasks.len() >= ATTEMPTS_MAX {
            return Err(attempt);
        }
        let batch = attempt.batch;
        let store = match self.store() {
            Ok(store) => store,
            Err(trouble) => {
                self.done.push(failed(batch.id, Sent::No, trouble));
                return Ok(());
            }
        };

        let (path, options) = (self.path_of(&batch), self.options.clone());
        let leftovers = self.leftovers.clone();
        self.tasks.spawn(async move {
            let id = batch.id;
            let object = Bytes::from_owner(Whole(batch));
            vec![match upload::put(&store, &path, object, &leftovers).await {
                Ok(()) => Outcome::all(id, Fate::Acknowledged),
                Err(error) => {
                    let (sent, trouble) = trouble_of(&error, &options);
                    failed(id, sent, trouble)
                }
            }]
        });
        self.remove_leftovers();
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        done.append(&mut self.done);
        let known = done.len();
        self.tasks.poll(if known > 0 { Duration::ZERO } else { wait }, done);

        // A refused key is fixed by writing another one into the file, which must be read again.
        let is_refused = |outcome: &Outcome| match &outcome.fate {
            Fate::Failed(failure) => failure.sent == Sent::No,
            _ => false,
        };
        if done.iter().skip(known).any(is_refused) {
            self.store = None;
        }
    }

    fn read_back(&mut self, batch: &Batch, wait: Duration) -> ReadBack {
        let path = self.path_of(batch);
        let missing = |why: String| ReadBack::Missing(format!("{path}: {why}"));
        let store = match self.store() {
            Ok(store) => store,
            Err(trouble) => return missing(trouble.what),
        };
        let read = self.tasks.block_on(wait, async { store.get(&path).await?.bytes().await });
        match read {
            Some(Ok(bytes)) if bytes == batch.encoded.bytes => ReadBack::Found,
            Some(Ok(_)) => missing("it has other bytes".to_owned()),
            Some(Err(error)) => missing(said(&error)),
            None => missing("no answer in time".to_owned()),
        }
    }

    fn is_idempotent(&self) -> bool {
        // The same rows have the same name.
        true
    }

    fn close(&mut self, wait: Duration, _done: &mut Vec<Outcome>) {
        // No other object follows to remove them with.
        if let Some(store) = &self.store {
            self.tasks.block_on(wait.min(SIDE_REQUEST_MAX), self.leftovers.abort(store));
        }
    }
}

fn failed(id: BatchId, sent: Sent, trouble: Trouble) -> Outcome {
    let reason = Some(Reason::Unavailable);
    Outcome::all(id, Fate::Failed(Failure { sent, reason, after: None, trouble }))
}

/// Sends nothing yet, except that keys may be requested from the cloud later.
fn connect(options: &S3Options) -> Result<AmazonS3, Trouble> {
    // Another sink may have installed it already: it is the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();

    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&options.bucket)
        .with_client_options(client(&options.tls)?)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() });
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &options.endpoint {
        // The configuration has already warned that http is not encrypted.
        builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
    }
    if let Some(user) = &options.login.user {
        builder = builder.with_access_key_id(user);
    }
    if let Some(secret) = options.login.password()? {
        builder = builder.with_secret_access_key(secret.reveal());
    }
    if let Some(token) = options.login.token()? {
        builder = builder.with_token(token.reveal());
    }

    builder.build().map_err(|error| Trouble {
        what: format!("{}: {}", place(options), said(&error)),
        fix: "correct the sink's address, endpoint and region".to_owned(),
    })
}

fn client(tls: &TlsOptions) -> Result<ClientOptions, Trouble> {
    let mut client = ClientOptions::new()
        .with_connect_timeout(CONNECT_MAX)
        // The sink limits how long an answer may take (`answer_max`).
        .with_timeout_disabled()
        .with_allow_invalid_certificates(tls.verify == TlsVerify::Off);
    let Some(path) = &tls.ca else { return Ok(client) };

    let wrong = |why: String| Trouble {
        what: format!("the certificates in {} cannot be used: {why}", path.display()),
        fix: "set tls_ca to a file of certificates (PEM) that this user may read".to_owned(),
    };
    let pem = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| wrong(said(&error)))?;
    for certificate in certificates {
        client = client.with_root_certificate(certificate);
    }
    Ok(client)
}

/// What an error means: whether the object may be stored after all, and how to fix it.
fn trouble_of(error: &Error, options: &S3Options) -> (Sent, Trouble) {
    let said = said(error);
    let (sent, fix) = match (refusal(error, &said, options), tls::error_in(error)) {
        (Some(fix), _) => (Sent::No, fix),
        (None, Some(error)) => (Sent::No, tls::advice(error).to_owned()),
        (None, None) => (Sent::Maybe, format!("see that it answers: curl -sI {}", url(options))),
    };
    (sent, Trouble { what: format!("{}: {said}", place(options)), fix })
}

/// How to fix a refusal by the store. `said` begins with the error code, if the store sent one.
fn refusal(error: &Error, said: &str, options: &S3Options) -> Option<String> {
    let bucket = &options.bucket;
    let code = said.split(':').next().unwrap_or_default();
    Some(match (code, error) {
        // A redirect has neither a code nor a location.
        _ if code == "AuthorizationHeaderMalformed" || said.contains("configured region") => {
            format!("set region to that of the bucket {bucket}")
        }
        ("RequestTimeTooSkewed", _) => "set this host's clock".to_owned(),
        ("SignatureDoesNotMatch", _) => {
            "correct the key's secret: password_file, or AWS_SECRET_ACCESS_KEY".to_owned()
        }
        ("ExpiredToken" | "InvalidToken", _) => {
            "renew the token of the session: token_file, or AWS_SESSION_TOKEN".to_owned()
        }
        ("InvalidAccessKeyId", _) => {
            "correct user (the id of the access key), or AWS_ACCESS_KEY_ID".to_owned()
        }
        (_, Error::NotFound { .. }) => {
            format!("make the bucket {bucket}, or correct the sink's address")
        }
        (_, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) => format!(
            "give the sink a key that has s3:PutObject and s3:AbortMultipartUpload on {bucket}/*: user and password_file, or \
             AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
        ),
        _ => return None,
    })
}

fn place(options: &S3Options) -> String {
    match &options.endpoint {
        Some(endpoint) => format!("s3://{} at {endpoint}", options.bucket),
        None => format!("s3://{}", options.bucket),
    }
}

fn url(options: &S3Options) -> String {
    let amazon = || format!("https://{}.s3.amazonaws.com", options.bucket);
    options.endpoint.clone().unwrap_or_else(amazon)
}

/// The store's answer, or else the innermost cause, which says most, on one line.
fn said(error: &Error) -> String {
    let causes =
        std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    let all = causes.join(" ");
    let part = |tag: &str| {
        let (_, rest) = all.split_once(&format!("<{tag}>"))?;
        rest.split_once(&format!("</{tag}>")).map(|(part, _)| part)
    };

    let said = match (part("Code"), part("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => causes.last().cloned().unwrap_or_default(),
    };
    let words: Vec<&str> = said.split_whitespace().collect();
    words.join(" ").chars().take(SAID_MAX_CHARS).collect()
}
