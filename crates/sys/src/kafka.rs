//! What librdkafka knows about a message after its delivery report that its safe bindings do not expose.

use rdkafka::bindings::{rd_kafka_message_status, rd_kafka_msg_status_t};
use rdkafka::message::BorrowedMessage;

/// Whether the broker's log has a message (`rd_kafka_msg_status_t` in rdkafka.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence {
    /// It was never sent, or the broker said that it did not write it: sending it again makes no duplicate.
    No,
    /// It was sent, and no answer arrived.
    Possible,
    /// The broker has acknowledged it.
    Yes,
}

/// Whether the broker has the message that came with a delivery report.
pub fn persistence(message: &BorrowedMessage<'_>) -> Persistence {
    // SAFETY: `message` borrows the event that owns the librdkafka message, so the pointer is valid for this call, which only
    // reads the message's status.
    let status = unsafe { rd_kafka_message_status(message.ptr()) };
    match status {
        rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_NOT_PERSISTED => Persistence::No,
        rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED => Persistence::Possible,
        rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_PERSISTED => Persistence::Yes,
    }
}
