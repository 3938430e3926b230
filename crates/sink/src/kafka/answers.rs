//! What the brokers and the client answer, and what follows from it.
//!
//! Broker error codes: <https://kafka.apache.org/protocol#protocol_error_codes>; client error codes: rdkafka.h,
//! `rd_kafka_resp_err_t`.

use super::KafkaOptions;
use super::client::Said;
use ledger::{RejectClass, Trouble};
use rdkafka::error::RDKafkaErrorCode as Code;
use std::fmt;

/// Why a message was not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer(Code);

impl Answer {
    /// The producer ended before an answer arrived.
    pub(super) const ENDED: Answer = Answer(Code::Fatal);

    /// The client had no more time for the message.
    pub(super) const TIMED_OUT: Answer = Answer(Code::MessageTimedOut);

    pub(super) fn of(code: Code) -> Answer {
        Answer(code)
    }

    /// It was sent together with others, and the whole was too large.
    pub(super) const SENT_WITH_OTHERS: Answer = Answer(Code::InvalidDifferentRecord);

    /// Whether the broker refuses the message itself, and would refuse it again.
    pub(super) fn rejects(self) -> Option<RejectClass> {
        match self.0 {
            // MESSAGE_TOO_LARGE: above message.max.bytes of the broker or the topic. RECORD_LIST_TOO_LARGE: above segment.bytes.
            Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => Some(RejectClass::TooLarge),
            // INVALID_RECORD: a rule of the topic, such as compaction, which requires a key.
            Code::InvalidRecord | Code::InvalidTimestamp => Some(RejectClass::Invalid),
            _ => None,
        }
    }

    /// Whether it means that the destination is unavailable, not that this one message was unlucky.
    pub(super) fn is_outage(self) -> bool {
        self.0 != Code::InvalidDifferentRecord
    }

    /// How much it reveals about the cause.
    pub(super) fn weight(&self) -> u8 {
        match self.0 {
            Code::InvalidDifferentRecord => 0,
            Code::MessageTimedOut | Code::PurgeQueue | Code::PurgeInflight | Code::Fatal => 1,
            _ => 2,
        }
    }
}

/// The broker's or the client's error text.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Whether the client merely has no room at present.
pub(super) fn is_full(code: Code) -> bool {
    code == Code::QueueFull
}

/// The destination's URL, for messages.
pub(super) fn url(options: &KafkaOptions) -> String {
    let scheme = if options.tls.is_some() { "kafkas" } else { "kafka" };
    format!("{scheme}://{}/{}", options.brokers.join(","), options.topic)
}

/// Why an attempt failed. `said` is the client's current trouble: the error of a message that timed out does not say why.
pub(super) fn trouble(options: &KafkaOptions, answer: Answer, said: Option<&Said>) -> Trouble {
    match said {
        Some(said) if answer.weight() < 2 => told(options, said),
        _ => Trouble {
            what: format!("{} does not take messages: {answer}", url(options)),
            fix: fix(options, Some(answer.0)),
        },
    }
}

/// The trouble that the client reports with the brokers.
pub(super) fn told(options: &KafkaOptions, said: &Said) -> Trouble {
    Trouble {
        what: format!("{} is not reached: {}", url(options), said.words),
        fix: fix(options, said.code),
    }
}

fn fix(options: &KafkaOptions, code: Option<Code>) -> String {
    let (topic, brokers) = (&options.topic, options.brokers.join(","));
    match code {
        Some(Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition) => {
            format!(
                "create it: kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic}, and the same for {}",
                options.totals_topic
            )
        }
        Some(Code::InvalidTopic) => {
            "a topic's name has letters, digits, `.`, `_` and `-`; correct `to`".to_owned()
        }
        Some(Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed) => format!(
            "allow it: kafka-acls.sh --bootstrap-server {brokers} --add --allow-principal User:NAME --operation Write \
             --operation Describe --topic {topic}"
        ),
        Some(Code::Authentication | Code::SaslAuthenticationFailed) => {
            "correct user, password_file and sasl of the sink, or the user in Kafka".to_owned()
        }
        Some(Code::SSL) => format!(
            "see what is wrong with the broker's certificate (its time, its name, who signed it: tls_ca), and that the port is one \
             with TLS: openssl s_client -connect {} </dev/null",
            options.brokers.first().map_or("", String::as_str)
        ),
        Some(Code::Resolve) => {
            "correct the host in `to`, or see that the name is resolved: getent hosts HOST"
                .to_owned()
        }
        Some(Code::NotEnoughReplicas | Code::NotEnoughReplicasAfterAppend) => {
            "bring the missing brokers back, or lower min.insync.replicas of the topic".to_owned()
        }
        Some(Code::Fatal) => "the client is made anew by itself".to_owned(),
        _ => format!("see that a broker listens there: kcat -b {brokers} -L"),
    }
}
