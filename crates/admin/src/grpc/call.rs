//! The calls, and the pages whose rules they have.

use super::stream::{Answer, Asked, Code, Gone, Status, refuse};
use super::watchers::Watcher;
use super::{Client, WATCHERS_MAX, ledger_message, reflection};
use crate::connection::Connection;
use crate::live::{AtEnd, Form, Live};
use crate::message::{Value, fields};
use crate::server::HEAD_TIMEOUT;
use crate::service::{Body, Told};
use axum::body::to_bytes;
use axum::http::{HeaderMap, Method, Request, Uri, header};
use axum::response::IntoResponse;
use h2::RecvStream;
use h2::server::SendResponse;
use hyper::body::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// The handler under which calls are counted.
const HANDLER: &str = "grpc";
/// Time between two snapshots, unless the client says another.
const INTERVAL_MS: u64 = 1000;
const INTERVAL_MIN_MS: u64 = 100;

/// A call whose client may ask for it.
enum Call {
    Follow(Live, Arc<Connection>),
    Watch(Duration, Watcher),
    Reflect(Asked),
}

/// Answers one call.
pub(super) async fn answer(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    client: Arc<Client>,
) {
    let begun = begin(request, &client).await;
    let counted = begun.as_ref().err().map_or(axum::http::StatusCode::OK, Status::counted_as);
    client.shared.state.http.count(HANDLER, counted);
    let call = match begun {
        Ok(call) => call,
        Err(status) => return refuse(respond, &status),
    };

    // A client that leaves is seen where its stream ends.
    let _ = match call {
        Call::Follow(live, answer) => follow(live, answer, respond, &client).await,
        Call::Watch(interval, watcher) => watch(interval, watcher, respond, &client).await,
        Call::Reflect(asked) => reflect(asked, respond, &client).await,
    };
}

async fn begin(request: Request<RecvStream>, client: &Arc<Client>) -> Result<Call, Status> {
    let (parts, body) = request.into_parts();
    let is_grpc = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if parts.method != Method::POST || !is_grpc {
        return Err(Status::new(
            Code::InvalidArgument,
            "this address speaks gRPC; the pages are at admin.listen",
        ));
    }

    let mut asked = Asked::new(body);
    match parts.uri.path() {
        "/weir.v1.Records/Follow" => {
            let query = query(&only_message(&mut asked).await?)?;
            let page = format!("/records?{query}");
            check(client, &parts.uri, &parts.headers, &page).await?;
            begin_follow(client, query).await
        }
        "/weir.v1.Ledger/Watch" => {
            let interval = interval(&only_message(&mut asked).await?)?;
            check(client, &parts.uri, &parts.headers, "/ledger").await?;
            begin_watch(client, interval)
        }
        path if reflection::PATHS.contains(&path) => {
            check(client, &parts.uri, &parts.headers, "/metrics").await?;
            Ok(Call::Reflect(asked))
        }
        path => {
            let text = format!(
                "\"{}\" is not here; weir.v1.Records/Follow, weir.v1.Ledger/Watch and reflection are",
                path.escape_debug()
            );
            Err(Status::new(Code::Unimplemented, text))
        }
    }
}

/// The one message of a call that has one.
async fn only_message(asked: &mut Asked) -> Result<Vec<u8>, Status> {
    match tokio::time::timeout(HEAD_TIMEOUT, asked.next()).await {
        Ok(message) => Ok(message?.unwrap_or_default()),
        Err(_) => Err(Status::new(Code::DeadlineExceeded, "the request did not come in time")),
    }
}

/// Refuses a call where the page of the admin server that shows the same would be.
async fn check(client: &Client, uri: &Uri, headers: &HeaderMap, page: &str) -> Result<(), Status> {
    let mut request = Request::new(axum::body::Body::empty());
    *request.headers_mut() = headers.clone();
    request.extensions_mut().insert(client.peer);
    let named = uri.authority().map_or(page.to_owned(), |name| format!("http://{name}{page}"));
    *request.uri_mut() = named
        .parse()
        .map_err(|_| Status::new(Code::InvalidArgument, "the :authority is no name"))?;

    match crate::access::refuse(&client.shared.state, &request) {
        Some(refusal) => Err(of_page(refusal.into_response()).await),
        None => Ok(()),
    }
}

async fn of_page(response: axum::response::Response) -> Status {
    let status = response.status();
    let text = to_bytes(response.into_body(), super::MESSAGE_BYTES_MAX).await.unwrap_or_default();
    Status::of_page(status, &String::from_utf8_lossy(&text))
}

/// A `FollowRequest` as the query of `/records`.
fn query(message: &[u8]) -> Result<String, Status> {
    let wrong = |why: String| Status::new(Code::InvalidArgument, why);
    let mut from = Vec::new();
    let mut query = "follow".to_owned();
    for (number, value) in fields(message).map_err(wrong)? {
        match (number, value) {
            (1, value) => from.push(percent_encoded(value.text().map_err(wrong)?)),
            (2 | 4, value) => {
                let text = value.text().map_err(wrong)?;
                let name = if number == 2 { "filter" } else { "for" };
                if !text.is_empty() {
                    query += &format!("&{name}={}", percent_encoded(text));
                }
            }
            (3, Value::Number(0)) => {}
            (3, value) => query += &format!("&limit={}", value.number().map_err(wrong)?),
            // A field that a newer client knows.
            _ => {}
        }
    }
    if !from.is_empty() {
        query += &format!("&from={}", from.join(","));
    }
    Ok(query)
}

/// A text as a value in a query.
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// The interval in a `WatchRequest`.
fn interval(message: &[u8]) -> Result<Duration, Status> {
    let wrong = |why: String| Status::new(Code::InvalidArgument, why);
    let mut interval_ms = 0;
    for (number, value) in fields(message).map_err(wrong)? {
        if number == 1 {
            interval_ms = value.number().map_err(wrong)?;
        }
    }
    match interval_ms {
        0 => Ok(Duration::from_millis(INTERVAL_MS)),
        INTERVAL_MIN_MS.. => Ok(Duration::from_millis(interval_ms)),
        _ => Err(wrong(format!("interval_ms: {interval_ms} is below {INTERVAL_MIN_MS}"))),
    }
}

async fn begin_follow(client: &Client, query: String) -> Result<Call, Status> {
    let Some(records) = client.shared.state.records.clone() else {
        return Err(Status::new(Code::NotFound, "this server has no records"));
    };
    let answer = Arc::new(Connection::of(client.peer.holder()));
    let of_thread = Arc::clone(&answer);
    let begin = move || (records.follow)(&query, Form::Messages, &of_thread);
    match tokio::task::spawn_blocking(begin).await {
        Ok(Ok(live)) => Ok(Call::Follow(live, answer)),
        Ok(Err(refusal)) => Err(of_told(refusal)),
        Err(error) => Err(Status::new(Code::Internal, error.to_string())),
    }
}

fn of_told(told: Told) -> Status {
    let text = match &told.body {
        Body::Whole(text) => String::from_utf8_lossy(text).into_owned(),
        Body::Pieces(_) => String::new(),
    };
    let status = axum::http::StatusCode::from_u16(told.status).unwrap_or_default();
    Status::of_page(status, &text)
}

/// Tells the source of a stream that nothing more is taken, however the call ends.
struct Following {
    answer: Arc<Connection>,
    client: Arc<Client>,
    id: Option<u32>,
    _at_end: AtEnd,
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.client.streams.remove(id);
        }
        self.answer.end_live();
    }
}

async fn follow(
    live: Live,
    answer: Arc<Connection>,
    respond: SendResponse<Bytes>,
    client: &Arc<Client>,
) -> Result<(), Gone> {
    let Live { mut pieces, at_end, early } = live;
    let _kept = client.keep();
    let (told, owner) = (Arc::clone(&answer), Arc::clone(client));
    let mut following = Following { answer: told, client: owner, id: None, _at_end: at_end };
    let mut stream = Answer::begin(respond)?;
    following.id = Some(stream.id());
    client.streams.add(stream.id(), &answer);

    let is_cut = async {
        loop {
            tokio::select! {
                piece = pieces.recv() => {
                    let Some(piece) = piece else { return false };
                    answer.took_piece();
                    client.streams.expect(stream.id(), piece.len());
                    tokio::select! {
                        sent = stream.send(piece) => if sent.is_err() { return true },
                        () = answer.was_cut() => return true,
                    }
                }
                () = stream.left() => return true,
                () = answer.was_cut() => return true,
            }
        }
    }
    .await;

    match (is_cut, early.get()) {
        (true, _) => stream.reset(),
        (false, None) => stream.end(&Status::OK),
        (false, Some(why)) => {
            stream.end(&Status::new(Code::Unavailable, format!("the stream ended: {why}")))
        }
    }
    Ok(())
}

fn begin_watch(client: &Client, interval: Duration) -> Result<Call, Status> {
    match client.shared.watchers.take(client.peer.holder()) {
        Some(watcher) => Ok(Call::Watch(interval, watcher)),
        None => {
            let text =
                format!("{WATCHERS_MAX} clients watch the ledger already, which is the most");
            Err(Status::new(Code::ResourceExhausted, text))
        }
    }
}

/// Sends snapshots. A client that reads slowly gets fewer, each of the moment at which it is sent; one that takes nothing is ended
/// as one that follows is.
async fn watch(
    interval: Duration,
    place: Watcher,
    respond: SendResponse<Bytes>,
    client: &Arc<Client>,
) -> Result<(), Gone> {
    let _kept = client.keep();
    let state = &client.shared.state;
    let mut stopping = state.stopping.subscribe();
    let mut stream = Answer::begin(respond)?;
    let why = loop {
        let snapshot = ledger_message::of(&state.ledger.check()).framed();
        let sending = tokio::time::timeout(client.shared.stall_max, stream.send(snapshot));
        let sent = tokio::select! {
            sent = sending => sent,
            () = place.was_given() => break GIVEN,
            _ = stopping.wait_for(|stopping| *stopping) => break STOPPED,
        };
        match sent {
            Ok(sent) => sent?,
            Err(_) => {
                stream.reset();
                return Ok(());
            }
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = stream.left() => return Err(Gone),
            () = place.was_given() => break GIVEN,
            _ = stopping.wait_for(|stopping| *stopping) => break STOPPED,
        }
    };
    stream.end(&Status::new(Code::Unavailable, why));
    Ok(())
}

const STOPPED: &str = "the server is being stopped";
const GIVEN: &str = "another client has this place: this one has several";

/// Answers what the client asks, until it has asked everything, or neither asks nor takes anything for long.
async fn reflect(
    mut asked: Asked,
    respond: SendResponse<Bytes>,
    client: &Client,
) -> Result<(), Gone> {
    let stall_max = client.shared.stall_max;
    let mut stream = Answer::begin(respond)?;
    let status = loop {
        let Ok(next) = tokio::time::timeout(stall_max, asked.next()).await else {
            break Status::new(Code::DeadlineExceeded, "nothing was asked for long");
        };
        let reply = match next {
            Ok(Some(message)) => match reflection::answer(&message) {
                Ok(reply) => reply.framed(),
                Err(why) => break Status::new(Code::InvalidArgument, why),
            },
            Ok(None) => break Status::OK,
            Err(status) => break status,
        };
        match tokio::time::timeout(stall_max, stream.send(reply)).await {
            Ok(sent) => sent?,
            Err(_) => {
                stream.reset();
                return Ok(());
            }
        }
    };
    stream.end(&status);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    #[test]
    fn a_request_is_a_query() {
        let check = |message: Message, expected: &str| {
            assert_eq!(query(&message.0).as_deref(), Ok(expected));
        };
        check(Message::default(), "follow");
        check(Message::default().bytes(2, "").number(3, 0).bytes(4, ""), "follow");
        let all = Message::default().bytes(1, "sockets").bytes(1, "a&b");
        let all = all.bytes(2, "dport = :443 and rtt > 1ms").number(3, 7).bytes(4, "10s");
        check(
            all,
            "follow&filter=dport%20%3D%20%3A443%20and%20rtt%20%3E%201ms&limit=7&for=10s&from=sockets,a%26b",
        );
        assert_eq!(query(b"\x08\x01").unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn an_interval_has_a_least() {
        let of = |ms| interval(&Message::default().number(1, ms).0);
        assert_eq!(interval(&[]), Ok(Duration::from_secs(1)));
        assert_eq!(of(100), Ok(Duration::from_millis(100)));
        assert_eq!(of(99).unwrap_err().code, Code::InvalidArgument);
    }
}
