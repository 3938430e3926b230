//! The HTTP client of all HTTP destinations: one connection pool, TLS, timeouts, and errors in words.

use crate::batch::{Failure, Sent};
use crate::secret::TlsOptions;
use crate::tls;
use ledger::{Reason, Trouble};
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use std::error::Error;
use std::time::{Duration, SystemTime};

/// Timeout for connecting, including name resolution and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How much of an answer's body to read. The status comes first and says what became of the rows; a body that is cut, slow or
/// endless must not keep it back.
const BODY: BodyLimits = BodyLimits { bytes: 64 << 10, time: Duration::from_secs(5) };

/// How much of an answer to show people.
const SHOWN_CHARS_MAX: usize = 300;

/// The longest `Retry-After` pause to honor.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// Sends requests. A clone shares its connections.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    /// For messages: `scheme://host:port`.
    address: String,
}

/// Limits on reading a body.
#[derive(Clone, Copy)]
pub(crate) struct BodyLimits {
    pub(crate) bytes: usize,
    /// Counted from the end of the head.
    pub(crate) time: Duration,
}

/// A server's answer: its head, and as much of its body as arrived.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) end: BodyEnd,
}

/// How a body ended.
pub(crate) enum BodyEnd {
    Complete,
    /// It is longer than what is read of it.
    TooLong,
    /// It broke off, or did not end in time. The failure is that of a caller who needs the rest.
    Broken(Failure),
}

impl Client {
    /// A client of the server at `url`. `timeout` covers a whole request, including its answer.
    ///
    /// # Errors
    /// A certificate or a key cannot be read.
    pub(crate) fn new(
        url: &Url,
        tls_options: &TlsOptions,
        timeout: Duration,
    ) -> Result<Client, Trouble> {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(timeout)
            // Rows go to the configured server and nowhere else.
            .redirect(Policy::none())
            .http1_only()
            .tls_backend_preconfigured(tls::client_config(tls_options)?);

        let address = url.origin().ascii_serialization();
        let http = builder.build().map_err(|error| Trouble {
            what: format!("no client for {address} can be made: {}", cause(&error)),
            fix: "report it: it is a defect of this build".to_owned(),
        })?;
        Ok(Client { http, address })
    }

    /// A request to fill in and pass to [`send`](Self::send).
    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.http.request(method, url)
    }

    /// The server's address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request, and reads the answer.
    ///
    /// # Errors
    /// There is no answer. One whose body is not whole is no error here: [`Answer::whole`].
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Answer, Failure> {
        self.send_within(request, BODY).await
    }

    /// The same, with other limits on the answer's body.
    ///
    /// # Errors
    /// There is no answer.
    pub(crate) async fn send_within(
        &self,
        request: RequestBuilder,
        limits: BodyLimits,
    ) -> Result<Answer, Failure> {
        let mut response = request.send().await.map_err(|error| self.failed(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());

        let mut body = Vec::new();
        let reading = read_body(&mut response, limits.bytes, &mut body);
        let end = match tokio::time::timeout(limits.time, reading).await {
            Ok(Ok(end)) => end,
            Ok(Err(error)) => BodyEnd::Broken(self.failed(&error)),
            Err(_) => BodyEnd::Broken(self.unfinished(limits)),
        };
        Ok(Answer { status, headers, body, end })
    }

    fn unfinished(&self, limits: BodyLimits) -> Failure {
        let (address, seconds) = (&self.address, limits.time.as_secs_f64());
        let what = format!("{address} has not ended its answer within {seconds} s");
        failure(
            Sent::Maybe,
            what,
            format!("see what is between, and what it sends: curl -v {address}"),
        )
    }

    fn failed(&self, error: &reqwest::Error) -> Failure {
        let Client { address, .. } = self;
        let cause = cause(error);
        if error.is_connect() {
            let fix = tls::error_in(error).map_or_else(
                || format!("see that it runs and that nothing is in between: curl -v {address}"),
                |error| tls::advice(error).to_owned(),
            );
            return failure(Sent::No, format!("no connection to {address}: {cause}"), fix);
        }
        if error.is_timeout() {
            let fix = "see what keeps it busy, or raise request_timeout of the sink".to_owned();
            return failure(Sent::Maybe, format!("{address} has not answered in time"), fix);
        }

        let fix =
            format!("see what it says of the connection's end in its log; try curl -v {address}");
        failure(Sent::Maybe, format!("the connection to {address} broke: {cause}"), fix)
    }
}

/// Reads a body to its end, or up to `bytes_max`.
async fn read_body(
    response: &mut Response,
    bytes_max: usize,
    body: &mut Vec<u8>,
) -> Result<BodyEnd, reqwest::Error> {
    while let Some(piece) = response.chunk().await? {
        let room = bytes_max - body.len();
        body.extend_from_slice(piece.get(..room).unwrap_or(&piece));
        if piece.len() > room {
            return Ok(BodyEnd::TooLong);
        }
    }
    Ok(BodyEnd::Complete)
}

impl Answer {
    /// The answer, if all of its body is there that is ever read.
    ///
    /// # Errors
    /// Its body broke off, or did not end in time.
    pub(crate) fn whole(self) -> Result<Answer, Failure> {
        match self.end {
            BodyEnd::Broken(failure) => Err(failure),
            BodyEnd::Complete | BodyEnd::TooLong => Ok(self),
        }
    }

    /// How long the server asks to wait before a retry (RFC 9110 section 10.2.3).
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let after = match text.parse() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => {
                let at = httpdate::parse_http_date(text).ok()?;
                // A time by the server's clock, so it counts from what that clock said when the answer was sent.
                let date = self.headers.get(DATE).and_then(|date| date.to_str().ok());
                let sent = date.and_then(|date| httpdate::parse_http_date(date).ok());
                at.duration_since(sent.unwrap_or_else(SystemTime::now)).unwrap_or_default()
            }
        };
        Some(after.min(RETRY_AFTER_MAX))
    }

    /// The answer on one line, for people.
    pub(crate) fn words(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown: String =
            line.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect();
        let status = self.status;
        if shown.is_empty() { status.to_string() } else { format!("{status}: {shown}") }
    }
}

/// A failure that the user can fix.
pub(crate) fn failure(sent: Sent, what: String, fix: String) -> Failure {
    let trouble = Trouble { what, fix };
    Failure { sent, reason: Some(Reason::Unavailable), after: None, trouble }
}

/// The root cause of an error, which contains no URL and no header.
fn cause(error: &reqwest::Error) -> String {
    let mut deepest: &dyn Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    match error.source() {
        Some(_) => deepest.to_string(),
        None if error.is_timeout() => "it does not answer".to_owned(),
        None => "the request is not one".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_ask_again() {
        let after = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().expect("plain"))]);
            let (status, body) = (StatusCode::SERVICE_UNAVAILABLE, Vec::new());
            Answer { status, headers, body, end: BodyEnd::Complete }.retry_after()
        };
        assert_eq!(after("0"), Some(Duration::ZERO));
        assert_eq!(after(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(after("86400"), Some(RETRY_AFTER_MAX));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(after("Tue, 31 Dec 2999 23:59:59 GMT"), Some(RETRY_AFTER_MAX));
        for text in ["", "soon", "-1", "1.5"] {
            assert_eq!(after(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_to_ask_again_is_of_the_servers_clock() {
        // The server's clock is decades behind.
        let headers = HeaderMap::from_iter([
            (DATE, "Sun, 06 Nov 1994 08:49:37 GMT".parse().expect("plain")),
            (RETRY_AFTER, "Sun, 06 Nov 1994 08:51:37 GMT".parse().expect("plain")),
        ]);
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let answer = Answer { status, headers, body: Vec::new(), end: BodyEnd::Complete };
        assert_eq!(answer.retry_after(), Some(Duration::from_secs(120)));
    }
}
