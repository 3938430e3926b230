//! Confluent's wire format: each value begins with the id of its schema in a schema registry
//! (<https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format>).

use super::SchemaRegistry;
use ledger::Trouble;
use record::RowKind;
use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How long a registry may take to answer.
#[cfg(feature = "http")]
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The schemas of topics, each registered once as the subject `TOPIC-value`.
pub(super) struct Schemas {
    registry: SchemaRegistry,
    ids: HashMap<String, u32>,
    /// The request in progress, and its topic.
    asking: Option<(String, Receiver<Result<u32, Trouble>>)>,
}

impl Schemas {
    pub(super) fn new(registry: SchemaRegistry) -> Schemas {
        Schemas { registry, ids: HashMap::new(), asking: None }
    }

    /// The beginning of a value in this topic: a zero, the schema id, and the message's index in the schema. `None` while the id
    /// is unknown.
    pub(super) fn head(&self, topic: &str, kind: Option<RowKind>) -> Option<Vec<u8>> {
        let id = self.ids.get(topic)?.to_be_bytes();
        Some([&[0][..], &id, message_index(kind)].concat())
    }

    /// Continues to ask for the id of a topic's schema, for at most `wait`. `None` if there is no answer yet.
    pub(super) fn ask(&mut self, topic: &str, wait: Duration) -> Option<Result<(), Trouble>> {
        if self.ids.contains_key(topic) {
            return Some(Ok(()));
        }
        let (asked, answer) = match self.asking.take() {
            Some(asking) => asking,
            None => match begin(&self.registry, topic) {
                Ok(answer) => (topic.to_owned(), answer),
                Err(trouble) => return Some(Err(trouble)),
            },
        };

        let result = match answer.recv_timeout(wait) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                self.asking = Some((asked, answer));
                return None;
            }
            Err(RecvTimeoutError::Disconnected) => Err(Trouble {
                what: format!("{}: the thread that asks it has ended", self.registry.url),
                fix: "report it: it is a defect".to_owned(),
            }),
        };
        match result {
            Ok(id) => {
                self.ids.insert(asked, id);
                self.ids.contains_key(topic).then_some(Ok(()))
            }
            Err(trouble) => Some(Err(trouble)),
        }
    }
}

/// Which message of `weir.proto` a row is: the length of its path, and the path, as zigzag varints. A lone 0 stands for the
/// first.
fn message_index(kind: Option<RowKind>) -> &'static [u8] {
    match kind {
        Some(RowKind::Record) | None => &[0],
        Some(RowKind::Totals) => &[2, 2],
        Some(RowKind::Datagram) => &[2, 4],
        Some(RowKind::Flow) => &[2, 6],
        Some(RowKind::Counters) => &[2, 8],
        Some(RowKind::FlowTotals) => &[2, 10],
    }
}

/// Asks on a separate thread, because name resolution may take long.
fn begin(
    registry: &SchemaRegistry,
    topic: &str,
) -> Result<Receiver<Result<u32, Trouble>>, Trouble> {
    let (tell, answer) = mpsc::channel();
    let (registry, subject) = (registry.clone(), format!("{topic}-value"));
    // The receiver may be gone by then.
    let run = move || drop(tell.send(register(&registry, &subject)));
    let thread = thread::Builder::new().name("registry".to_owned()).spawn(run);
    thread.map(|_| answer).map_err(|error| Trouble {
        what: format!("no thread to ask the schema registry with: {error}"),
        fix: "raise the limit of tasks: TasksMax of the unit, ulimit -u".to_owned(),
    })
}

#[cfg(not(feature = "http"))]
fn register(registry: &SchemaRegistry, _subject: &str) -> Result<u32, Trouble> {
    Err(Trouble {
        what: format!("{}: this build has no client for it", registry.url),
        fix: "build with the features kafka and http, or use the image".to_owned(),
    })
}

/// Registers the schema, or finds the id under which it is already registered.
#[cfg(feature = "http")]
fn register(registry: &SchemaRegistry, subject: &str) -> Result<u32, Trouble> {
    use crate::batch::Failure;
    use crate::http::{Client, authorized, parse_url, tasks};
    use reqwest::Method;
    use reqwest::header::CONTENT_TYPE;

    let mut url = parse_url(&registry.url)?;
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["subjects", subject, "versions"]);
    }
    let client = Client::new(&url, &registry.tls, ANSWER_MAX)?;
    let body = serde_json::json!({ "schemaType": "PROTOBUF", "schema": schema() });
    let request = client
        .request(Method::POST, url)
        .header(CONTENT_TYPE, "application/vnd.schemaregistry.v1+json")
        .body(body.to_string());
    let request = authorized(request, &registry.login).map_err(|failure| failure.trouble)?;

    let answer = tasks()?.block_on(2 * ANSWER_MAX, client.send(request));
    // The id is in the body. A refusal is in the status, whatever became of its words.
    let answer = answer.map(|sent| match sent {
        Ok(answer) if answer.status.is_success() => answer.whole(),
        other => other,
    });
    let trouble = |what: &str, fix: &str| Trouble {
        what: format!("the schema registry at {}: {what}", registry.url),
        fix: fix.to_owned(),
    };
    match answer {
        None => Err(trouble("no answer in time", "see whether it hangs")),
        // The registry's TLS settings have their own names; paths stay unchanged.
        Some(Err(Failure { trouble: Trouble { what, fix }, .. })) => {
            let own = |word: &str| match word.contains('/') {
                true => word.to_owned(),
                false => word.replace("tls_", "schema_registry_"),
            };
            let words: Vec<_> = fix.split(' ').map(own).collect();
            Err(trouble(&what, &words.join(" ")))
        }
        Some(Ok(answer)) if answer.status.is_success() => id(&answer.body).ok_or_else(|| {
            trouble(
                "its answer has no id",
                "correct schema_registry: it is what stands before /subjects",
            )
        }),
        Some(Ok(answer)) => {
            let what = format!("it refuses the subject {subject}: {}", answer.words());
            Err(trouble(&what, cure(answer.status.as_u16())))
        }
    }
}

/// How to fix a refusal: <https://docs.confluent.io/platform/current/schema-registry/develop/api.html>.
#[cfg(feature = "http")]
fn cure(status: u16) -> &'static str {
    match status {
        401 | 403 => {
            "correct schema_registry_user and schema_registry_password_file of the sink, or allow the user to write to the subject"
        }
        404 | 405 => "correct schema_registry: it is what stands before /subjects",
        409 => {
            "the subject has a schema that this one is not compatible with: use another topic, or change the subject's compatibility"
        }
        422 => "see that the registry takes schemas of the type PROTOBUF",
        _ => "see the registry's log",
    }
}

/// The schema without its comments, so that correcting a comment does not make a new schema.
#[cfg(feature = "http")]
fn schema() -> String {
    let lines = record::PROTO.lines().map(str::trim_end);
    let is_code = |line: &&str| !line.is_empty() && !line.trim_start().starts_with("//");
    lines.filter(is_code).collect::<Vec<_>>().join("\n")
}

#[cfg(feature = "http")]
fn id(body: &[u8]) -> Option<u32> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    answer.get("id")?.as_u64()?.try_into().ok()
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;

    #[test]
    fn rows_are_the_messages_that_their_index_says() {
        let text = schema();
        let messages = text.lines().filter_map(|line| line.strip_prefix("message "));
        let names: Vec<_> = messages.map(|line| line.trim_end_matches(" {")).take(3).collect();
        assert_eq!(names, ["SocketRecord", "PollTotals", "DatagramRecord"]);
        assert!(!text.contains("//"), "a comment is left");

        let mut schemas = Schemas::new(SchemaRegistry {
            url: "http://127.0.0.1".into(),
            login: Default::default(),
            tls: Default::default(),
        });
        schemas.ids.insert("t".into(), 0x0102_0304);
        let head = |kind| schemas.head("t", Some(kind)).unwrap();
        assert_eq!(head(RowKind::Record), [0, 1, 2, 3, 4, 0]);
        // The path has one element: indexes from 1 on are 2, 4, … in zigzag, and so is its length.
        assert_eq!(head(RowKind::Totals), [0, 1, 2, 3, 4, 2, 2]);
        assert_eq!(head(RowKind::Datagram), [0, 1, 2, 3, 4, 2, 4]);
        assert_eq!(head(RowKind::FlowTotals), [0, 1, 2, 3, 4, 2, 10]);
        assert_eq!(schemas.head("other", None), None);
    }

    #[test]
    fn an_id_is_read_where_there_is_one() {
        assert_eq!(id(br#"{"id":7,"version":1,"schema":"{}"}"#), Some(7));
        for body in [&b"[]"[..], b"{}", br#"{"id":-1}"#, br#"{"id":"7"}"#, b"<html>"] {
            assert_eq!(id(body), None);
        }
    }
}
