//! How a connection ended, as far as its close event and the last poll tell.

use crate::table::Entry;
use record::CloseReason;
use wire::inet_diag::SocketMessage;

/// What a close event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// A connection, or an attempt at one.
    Connection(CloseReason),
    /// A listener, or a socket that was never connected.
    NoConnection,
}

/// Tells how it ended.
pub(crate) fn end_of(event: &SocketMessage<'_>, entry: Option<&Entry>) -> End {
    if event.id.dst.ip().is_unspecified() && entry.is_none_or(|entry| entry.dst.is_unspecified()) {
        return End::NoConnection;
    }
    End::Connection(CloseReason::UNKNOWN)
}
