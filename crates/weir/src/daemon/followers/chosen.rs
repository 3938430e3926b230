//! The rows of a stream: those that pass the filter, as many as the client wants, as lines of JSON or as messages.

use super::messages::Messages;
use super::{Stream, Why};
use admin::Form;
use ledger::Reason;
use record::{Encoding, FieldSet, Row, RowKind};
use sink::batch::{Encoded, PartKey};
use sink::{BatchEncoder, Content, Partition, Pushed};
use sockets::filter::{Filter, RecordFilter};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) struct Chosen {
    stream: Arc<Stream>,
    filter: Option<RecordFilter>,
    encoder: Box<dyn BatchEncoder>,
}

impl Chosen {
    pub(super) fn new(stream: Arc<Stream>, filter: Option<Filter>) -> Chosen {
        let encoder = match stream.form {
            // Fields that no sink takes are not in the rows, and are not missed.
            Form::Lines => {
                Content::Records(Encoding::Jsonl, FieldSet::ALL).encoder(Partition::Whole)
            }
            Form::Messages => Box::new(Messages::default()),
        };
        Chosen { stream, filter: filter.map(RecordFilter::new), encoder }
    }

    /// Why a row is not sent, if it is not.
    fn refuse(&mut self, row: &Row<'_>) -> Option<Reason> {
        let Chosen { stream, filter, .. } = self;
        if stream.is_given_up() || stream.wanted.load(Ordering::Relaxed) == 0 {
            return Some(Reason::FollowerEnded);
        }
        let passes = match (filter, row.kind) {
            (Some(filter), RowKind::Record) => filter.matches(row.bytes),
            // Of many sockets, only a few may pass: totals would be most of what is sent.
            (Some(_), RowKind::Totals) => Ok(false),
            _ => Ok(true),
        };
        match passes {
            Ok(true) => None,
            Ok(false) => Some(Reason::Filtered),
            Err(_) => Some(Reason::EncodeError),
        }
    }
}

impl BatchEncoder for Chosen {
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed {
        if let Some(reason) = self.refuse(row) {
            return Pushed::Skipped(reason);
        }
        let pushed = self.encoder.push(row, key);
        if pushed == Pushed::Taken && self.stream.wanted.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stream.end(Why::Limit);
        }
        pushed
    }

    fn bytes(&self) -> usize {
        self.encoder.bytes()
    }

    fn finish(&mut self) -> Encoded {
        self.encoder.finish()
    }
}
