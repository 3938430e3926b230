//! The destination that sends HTTP POST requests.

use super::HttpOptions;
use super::answers::fate_of;
use super::body::{BodyEncoder, body_of};
use super::client::{Answer, BodyEnd, Client, failure};
use super::otlp::{OtlpEncoder, outcomes};
use crate::batch::{Attempt, Batch, Failure, Fate, Outcome, Sent};
use crate::destination::{BatchEncoder, Connector, Destination, Form, MakeForm, OwnFigures};
use crate::encode::{Content, Partition};
use crate::secret::Login;
use crate::tasks::Tasks;
use ledger::Trouble;
use record::{Encoding, FieldSet};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Url};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// More concurrent requests than this are of no use.
pub(crate) const IN_FLIGHT_MAX: usize = 64;

/// POST to a URL.
pub fn http(options: HttpOptions, content: Content) -> Connector {
    let compression = options.compression;
    let form = move || {
        let rows = content.encoder(Partition::Whole);
        let header = content.framing().header;
        Form::Mixed(Box::new(BodyEncoder { rows, header, compression }) as Box<dyn BatchEncoder>)
    };
    connector(options, Box::new(form), Protocol::Plain(media_type(content)))
}

/// OpenTelemetry logs to a URL that accepts OTLP/HTTP, such as `http://host:4318/v1/logs`.
pub fn otlp(options: HttpOptions, fields: FieldSet) -> Connector {
    let compression = options.compression;
    let form = move || {
        let rows = Box::new(OtlpEncoder::new(&fields));
        Form::Mixed(Box::new(BodyEncoder { rows, header: Vec::new(), compression }) as Box<_>)
    };
    connector(options, Box::new(form), Protocol::Otlp)
}

fn connector(options: HttpOptions, form: MakeForm, protocol: Protocol) -> Connector {
    let destination =
        move || Ok(Box::new(Http::new(options.clone(), protocol)?) as Box<dyn Destination>);
    Connector { form, destination: Box::new(destination) }
}

/// The format of bodies and answers.
#[derive(Clone, Copy)]
enum Protocol {
    /// Bodies of this media type; the status is the whole answer.
    Plain(&'static str),
    Otlp,
}

fn media_type(content: Content) -> &'static str {
    let (Content::Records(encoding, _) | Content::Datagrams(encoding)) = content else {
        return "text/plain";
    };
    match encoding {
        Encoding::Protobuf => "application/x-protobuf",
        Encoding::Prototext => "text/plain",
        Encoding::Protojson | Encoding::Jsonl => "application/x-ndjson",
        Encoding::Json => "application/json",
        Encoding::MessagePack => "application/msgpack",
        Encoding::Csv => "text/csv",
        Encoding::Tsv => "text/tab-separated-values",
    }
}

struct Http {
    server: Arc<Server>,
    tasks: Tasks,
}

struct Server {
    options: HttpOptions,
    url: Url,
    client: Client,
    /// The headers that are not secret.
    headers: HeaderMap,
    protocol: Protocol,
    /// What was wrong with the body of the last answer.
    broken: Mutex<Option<Trouble>>,
}

impl Http {
    fn new(options: HttpOptions, protocol: Protocol) -> Result<Http, Trouble> {
        let url = parse_url(&options.url)?;
        let client = Client::new(&url, &options.tls, options.request_timeout)?;

        let mut headers = HeaderMap::new();
        let media_type = match protocol {
            Protocol::Plain(media_type) => media_type,
            Protocol::Otlp => "application/x-protobuf",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        if let Some(coding) = options.compression.coding() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        for (name, value) in &options.headers {
            let value = HeaderValue::from_str(value).map_err(|_| bad_header(name))?;
            headers.insert(header_name(name)?, value);
        }
        let server =
            Arc::new(Server { options, url, client, headers, protocol, broken: Mutex::default() });
        Ok(Http { server, tasks: tasks()? })
    }
}

impl Destination for Http {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if self.tasks.len() >= IN_FLIGHT_MAX {
            return Err(attempt);
        }
        let server = Arc::clone(&self.server);
        self.tasks.spawn(async move {
            let batch = attempt.batch;
            let answer = match server.post(&batch).await {
                Ok(answer) => answer,
                Err(failure) => return vec![Outcome::all(batch.id, Fate::Failed(failure))],
            };
            server.note(&answer);
            match server.protocol {
                Protocol::Otlp if answer.status.is_success() => outcomes(&batch, &answer),
                // The status is the whole answer: a success whose body is cut or never ends is one, and a retry would only make
                // copies.
                Protocol::Plain(_) | Protocol::Otlp => {
                    vec![Outcome::all(batch.id, fate_of(&answer, server.client.address()))]
                }
            }
        });
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        self.tasks.poll(wait, done);
    }

    fn figures(&self) -> OwnFigures {
        OwnFigures { trouble: self.server.broken().clone(), ..OwnFigures::default() }
    }
}

impl Server {
    /// Remembers what is wrong with the body of an answer, for people: waiting for its end costs time, and in OTLP the rows' fate.
    fn note(&self, answer: &Answer) {
        *self.broken() = match &answer.end {
            BodyEnd::Broken(failure) => Some(failure.trouble.clone()),
            BodyEnd::Complete | BodyEnd::TooLong => None,
        };
    }

    fn broken(&self) -> MutexGuard<'_, Option<Trouble>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn post(&self, batch: &Arc<Batch>) -> Result<Answer, Failure> {
        let Server { options, url, client, headers, .. } = self;
        let mut request = client.request(Method::POST, url.clone()).headers(headers.clone());
        for (name, source) in &options.secret_headers {
            let value = secret_value(source.read().map_err(no_secret)?.reveal())?;
            request = request.header(name, value);
        }

        let request = authorized(request, &options.login)?;
        client.send(request.body(body_of(Arc::clone(batch)))).await
    }
}

/// Adds the credentials to a request: a token, or a user and password.
pub(crate) fn authorized(
    request: RequestBuilder,
    login: &Login,
) -> Result<RequestBuilder, Failure> {
    if let Some(token) = login.token().map_err(no_secret)? {
        return Ok(request.bearer_auth(token.reveal()));
    }
    let Some(user) = &login.user else { return Ok(request) };
    let password = login.password().map_err(no_secret)?;
    Ok(request.basic_auth(user, password.as_ref().map(|password| password.reveal())))
}

/// A runtime, or why there is none.
pub(crate) fn tasks() -> Result<Tasks, Trouble> {
    Tasks::new().map_err(|error| Trouble {
        what: format!("no runtime for the client: {error}"),
        fix: "raise the limit of open files (LimitNOFILE)".to_owned(),
    })
}

pub(crate) fn parse_url(text: &str) -> Result<Url, Trouble> {
    Url::parse(text).map_err(|error| Trouble {
        what: format!("{text} is no URL: {error}"),
        fix: "write to = \"http://HOST:PORT/PATH\"".to_owned(),
    })
}

/// The failure while a secret cannot be read; the rows are kept.
pub(crate) fn no_secret(trouble: Trouble) -> Failure {
    failure(Sent::No, trouble.what, trouble.fix)
}

/// A secret as a header value.
pub(crate) fn secret_value(secret: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(secret).map_err(|_| {
        let what = "a secret has characters that a header cannot have".to_owned();
        failure(Sent::No, what, "see that its file holds one line, and the right one".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn header_name(name: &str) -> Result<HeaderName, Trouble> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad_header(name))
}

fn bad_header(name: &str) -> Trouble {
    Trouble {
        what: format!("{name:?} with its value is no header"),
        fix: "write headers = { \"X-Name\" = \"value\" }".to_owned(),
    }
}
