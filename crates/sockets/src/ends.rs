//! How a connection ended, judging by its close event, the last poll, and what the kernel still has of it.
//!
//! The event comes when the socket is freed (`__sk_free` in net/core/sock.c, `sock_diag_broadcast_destroy`). Its state is already
//! CLOSE then, and nothing gives the reason. But the queues and the counters of `tcp_info` keep traces: of a FIN that was sent,
//! of one that arrived, of an abort that cleared them. Every rule here was found on events of connections with a known end. A few
//! hundred of those are in `testdata/ends.tsv`, and the tests check the rules against them.

mod evidence;

pub(crate) use evidence::{Before, Counters, Final};

use record::CloseReason;
use wire::inet_diag::{SocketMessage, State, States};

/// What a close event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// A connection, or an attempt at one.
    Connection(CloseReason),
    /// A listener, or a socket that was never connected.
    NoConnection,
}

/// Who opened a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// This end, with `connect`.
    Opener,
    /// The other end; this one came from a listener.
    Acceptor,
}

/// What the kernel has at the addresses of a closed connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// A minisock in TIME-WAIT or FIN-WAIT-2: this end closed first, or at the same time.
    Minisock,
    /// The socket that listens on its local port.
    Listener,
    /// Nothing.
    Nothing,
    /// Something else, such as a later connection between the same ports.
    Other,
}

/// How the connection ended. `look` is `None` if there was no look.
pub(crate) fn end_of(end: &Final, before: Option<&Before>, look: Option<Look>) -> End {
    // An abort leaves at least 2 in the send queue: the unacknowledged bytes, the largest window, and 2 (tcp_disconnect,
    // tcp_write_queue_purge). A socket that was never connected has 0 there.
    if end.peer_port == 0 && end.send_queue == 0 {
        return End::NoConnection;
    }
    End::Connection(reason(end, before, look))
}

/// The states that a connection was in, judging by its close event: those of the handshake and, if it was established, all that
/// follow.
pub(crate) fn states_of(event: &SocketMessage<'_>) -> States {
    let opening = States::of(State::SynSent) | States::of(State::SynReceived);
    if !was_established(&Final::of(event), None) {
        return opening;
    }
    let never = [State::Listen, State::Closed, State::BoundInactive, State::NewSynReceived];
    never.into_iter().fold(States::ALL, |states, state| states - States::of(state))
}

/// Who opened the connection, judging by its close event and what else is known.
pub(crate) fn role_of(end: &Final, before: Option<&Before>, look: Option<Look>) -> Option<Role> {
    let polled = before.and_then(|before| before.role);
    // An abort has cleared the fields that would show it.
    let is_told = end.peer_port != 0 && was_established(end, before);
    polled.or_else(|| if is_told { handshake(end, before, look).role } else { None })
}

/// Whether looking for a minisock can add to what [`end_of`] concludes without it.
pub(crate) fn needs_look(end: &Final, before: Option<&Before>) -> bool {
    if end.peer_port == 0 || !was_established(end, before) {
        return false;
    }

    match handshake(end, before, None) {
        // A poll saw that the peer closed first.
        Handshake { fin_sent: Some(true), .. }
            if end.send_queue == 0 && has_closed_second(before) =>
        {
            false
        }
        Handshake { fin_sent: Some(true), role } if end.send_queue == 0 => {
            // With both FINs, the end that closed first has the minisock. Without the peer's FIN, a missing minisock means a
            // reset.
            if peer_fin_may_have_come(end, before) {
                !has_closed_first(before)
            } else {
                has_more_than_our_fins_ack(end, before, role)
            }
        }
        // What is found there tells whether the one number was a SYN or a FIN.
        Handshake { fin_sent, .. } => fin_sent.is_none(),
    }
}

fn reason(end: &Final, before: Option<&Before>, look: Option<Look>) -> CloseReason {
    let was_established = was_established(end, before);
    let retried = end.retransmits > 0;

    if end.peer_port == 0 {
        // Only an abort clears the peer: SO_LINGER of 0, connect to AF_UNSPEC, a listener that closes before it accepted
        // (inet_csk_listen_stop); or a blocking connect that failed (__inet_stream_connect in net/ipv4/af_inet.c).
        return match (was_established, retried) {
            (true, _) => CloseReason::OUR_RESET,
            (false, true) => CloseReason::TIMED_OUT,
            (false, false) => CloseReason::REFUSED,
        };
    }

    if !was_established {
        // A non-blocking connect. Either something arrived that was not a SYN-ACK, or nothing did.
        return match (end.counters.segs_in > 0, retried) {
            (true, _) => CloseReason::REFUSED,
            (false, true) => CloseReason::TIMED_OUT,
            // Abandoned before the first retry, or refused by ICMP.
            (false, false) => CloseReason::UNKNOWN,
        };
    }

    let Handshake { fin_sent, role } = handshake(end, before, look);
    match fin_sent {
        Some(true) if end.send_queue == 0 => orderly(end, before, look, role),
        Some(sent) => abrupt(end, before, role, sent),
        None if look == Some(Look::Minisock) => CloseReason::OUR_CLOSE,
        None if has_waited_in_vain(end, before) => CloseReason::TIMED_OUT,
        None => CloseReason::UNKNOWN,
    }
}

/// Whether the connection was ever established. `min_rtt` and the peer's window survive an abort, which clears the other
/// counters.
fn was_established(end: &Final, before: Option<&Before>) -> bool {
    let has_met_peer = before.is_some_and(|before| {
        !matches!(before.state, State::SynSent | State::SynReceived | State::Closed | State::Listen)
            && before.counters.is_some()
    });
    has_met_peer
        || end.min_rtt_us.is_some_and(|rtt| rtt != u32::MAX)
        || end.snd_wnd_bytes > 0
        || end.counters.bytes_received > 0
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Handshake {
    role: Option<Role>,
    /// Whether our FIN has left. `None` when that is not known.
    fin_sent: Option<bool>,
}

/// The number of sequence numbers that are not data: one for our SYN, which counts only for the opener (an acceptor's `snd_una`
/// starts after it, tcp_create_openreq_child), and one for our FIN if it was sent.
pub(crate) fn control_bytes(counters: &Counters, send_queue: u32, notsent: u32) -> Option<i64> {
    let sent = counters.bytes_sent?;
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let data = signed(sent).saturating_sub(signed(counters.bytes_retrans));
    let numbered =
        signed(counters.bytes_acked).saturating_add(i64::from(send_queue) - i64::from(notsent));
    Some(numbered.saturating_sub(data))
}

/// Who opened a connection, judging by what the kernel lists of it.
pub(crate) fn role_of_listed(message: &SocketMessage<'_>) -> Option<Role> {
    match (message.state, &message.tcp_info) {
        (State::Listen | State::Closed | State::BoundInactive, _) => None,
        // A handshake without a socket of its own was requested from a listener.
        (State::SynReceived, None) => Some(Role::Acceptor),
        (state, Some(info)) => {
            let notsent = info.notsent_bytes().unwrap_or_default();
            role_of_row(state, &Counters::in_info(info), message.send_queue, notsent)
        }
        _ => None,
    }
}

/// Who opened a connection, judging by the row of a poll.
fn role_of_row(state: State, counters: &Counters, send_queue: u32, notsent: u32) -> Option<Role> {
    let has_fin =
        matches!(state, State::FinWait1 | State::FinWait2 | State::LastAck | State::Closing);
    if has_fin && notsent > 0 {
        // The FIN waits until the data is sent, and does not count yet.
        return None;
    }
    match control_bytes(counters, send_queue, notsent)?.saturating_sub(has_fin.into()) {
        0 => Some(Role::Acceptor),
        1 => Some(Role::Opener),
        // The row was read while the counters moved.
        _ => None,
    }
}

fn handshake(end: &Final, before: Option<&Before>, look: Option<Look>) -> Handshake {
    match control_bytes(&end.counters, end.send_queue, end.notsent_bytes) {
        Some(0) => Handshake { role: Some(Role::Acceptor), fin_sent: Some(false) },
        Some(2) => Handshake { role: Some(Role::Opener), fin_sent: Some(true) },
        // Either our SYN or our FIN.
        Some(1) => {
            let role = before.and_then(|before| before.role).or_else(|| role(end, look));
            Handshake { role, fin_sent: role.map(|role| role == Role::Acceptor) }
        }
        // A kernel before 4.19, or segments that this host failed to send; see `has_waited_in_vain`.
        _ => Handshake { role: before.and_then(|before| before.role), fin_sent: None },
    }
}

/// Who opened a connection when one number was a SYN or a FIN and no poll saw which.
fn role(end: &Final, look: Option<Look>) -> Option<Role> {
    // A FIN that traveled alone is a delivered segment without data (tcp_clean_rtx_queue). The SYN is the 1.
    let alone = end.delivered.wrapping_sub(1).wrapping_sub(end.counters.data_segs_out);
    let has_fin_alone = match end.send_queue {
        0 => alone == 1,
        1 => alone == 0,
        _ => false,
    };

    if end.total_retrans == 0 && has_fin_alone {
        return Some(Role::Acceptor);
    }

    match look {
        Some(Look::Listener) => Some(Role::Acceptor),
        Some(Look::Nothing) => Some(Role::Opener),
        Some(Look::Minisock | Look::Other) | None => None,
    }
}

/// What happened since the last poll, or since the handshake if no poll saw the connection. Signed: the guess of the handshake's
/// segments may be one too high.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Since {
    segs_in: i64,
    segs_out: i64,
    data_segs_in: i64,
    data_segs_out: i64,
    bytes_received: u64,
    /// Whether we had nothing in flight and sent no data.
    is_quiet: bool,
}

impl Since {
    fn poll(end: &Final, before: Option<&Before>) -> Option<Since> {
        let before = before?;
        let (now, then) = (&end.counters, before.counters.as_ref()?);
        let segments = |now: u32, then: u32| i64::from(now.wrapping_sub(then));
        Some(Since {
            segs_in: segments(now.segs_in, then.segs_in),
            segs_out: segments(now.segs_out, then.segs_out),
            data_segs_in: segments(now.data_segs_in, then.data_segs_in),
            data_segs_out: segments(now.data_segs_out, then.data_segs_out),
            bytes_received: now.bytes_received.wrapping_sub(then.bytes_received),
            is_quiet: before.is_all_acked && now.bytes_sent == then.bytes_sent,
        })
    }

    fn handshake(end: &Final, role: Option<Role>) -> Option<Since> {
        // An opener has sent a SYN and an ACK and received a SYN-ACK. An acceptor's socket is created when the ACK arrives, but
        // the SYN is counted, and its SYN-ACK is not (tcp_create_openreq_child).
        let (segs_in, segs_out) = match role? {
            Role::Opener => (1, 2),
            Role::Acceptor => (2, 0),
        };

        let now = &end.counters;
        Some(Since {
            segs_in: i64::from(now.segs_in) - segs_in,
            segs_out: i64::from(now.segs_out) - segs_out,
            data_segs_in: now.data_segs_in.into(),
            data_segs_out: now.data_segs_out.into(),
            bytes_received: now.bytes_received,
            is_quiet: now.bytes_sent == Some(0),
        })
    }

    /// Segments that arrived without data: acknowledgments, a lone FIN, a reset.
    fn bare_segs_in(&self) -> i64 {
        self.segs_in - self.data_segs_in
    }
}

/// Our FIN was acknowledged: the connection closed in order, by us or by the peer first.
fn orderly(
    end: &Final,
    before: Option<&Before>,
    look: Option<Look>,
    role: Option<Role>,
) -> CloseReason {
    if has_closed_second(before) {
        return CloseReason::PEER_CLOSE;
    }

    let has_no_minisock = matches!(look, Some(Look::Nothing | Look::Listener));
    if !peer_fin_may_have_come(end, before) {
        // FIN-WAIT-2 has a minisock only if the descriptor was closed. Without one, and with a segment besides the acknowledgment
        // of our FIN, the peer has reset what we had only shut down.
        return if has_no_minisock && has_more_than_our_fins_ack(end, before, role) {
            CloseReason::PEER_RESET
        } else {
            CloseReason::OUR_CLOSE
        };
    }

    if has_closed_first(before) || look == Some(Look::Minisock) {
        // The end that closes first keeps the minisock, before the event is sent (tcp_time_wait in net/ipv4/tcp_minisocks.c).
        return CloseReason::OUR_CLOSE;
    }

    if has_no_minisock {
        return CloseReason::PEER_CLOSE;
    }

    // Either their FIN, our FIN with the acknowledgment, their acknowledgment; or ours, theirs with the acknowledgment, our
    // acknowledgment. The two can be told apart only if nothing else happened.
    let since = Since::poll(end, before).or_else(|| Since::handshake(end, role));
    match since.filter(|since| since.is_quiet && since.data_segs_in == 0) {
        Some(Since { segs_in: 2, segs_out: 1, .. }) => CloseReason::PEER_CLOSE,
        Some(Since { segs_in: 1, .. }) => CloseReason::OUR_CLOSE,
        _ => CloseReason::UNKNOWN,
    }
}

/// Whether the last poll saw it after the peer's FIN and before the end of ours.
fn has_closed_second(before: Option<&Before>) -> bool {
    before.is_some_and(|before| matches!(before.state, State::CloseWait | State::LastAck))
}

/// Whether a poll saw it after our FIN.
fn has_closed_first(before: Option<&Before>) -> bool {
    before.is_some_and(|before| {
        let has_sent = matches!(
            before.state,
            State::FinWait1 | State::FinWait2 | State::Closing | State::TimeWait
        );
        has_sent || before.was_remnant
    })
}

/// Whether the peer's FIN may have arrived. It counts as a byte received (tcp_fin, tcp_rcv_nxt_update): no byte, no FIN.
fn peer_fin_may_have_come(end: &Final, before: Option<&Before>) -> bool {
    match Since::poll(end, before) {
        Some(since) => since.bytes_received > 0,
        None => end.counters.bytes_received > 0,
    }
}

/// Whether, with nothing in flight, a segment arrived that is not the acknowledgment of our FIN.
fn has_more_than_our_fins_ack(end: &Final, before: Option<&Before>, role: Option<Role>) -> bool {
    // In FIN-WAIT-2 the acknowledgment has already arrived.
    let is_acked = before.is_some_and(|before| before.state == State::FinWait2);
    Since::poll(end, before)
        .or_else(|| Since::handshake(end, role))
        .filter(|since| since.is_quiet && since.data_segs_in == 0)
        .is_some_and(|since| since.segs_in > if is_acked { 0 } else { 1 })
}

/// Whether nothing arrived since the poll while something of ours, data or a FIN, was retried again and again.
///
/// What the host itself failed to send counts as retransmitted but not as sent (tcp_retransmit_skb, __tcp_transmit_skb in
/// net/ipv4/tcp_output.c), so nothing is known about the FIN then.
fn has_waited_in_vain(end: &Final, before: Option<&Before>) -> bool {
    end.send_queue > 0
        && is_stuck(end)
        && Since::poll(end, before).is_some_and(|since| since.segs_in == 0)
}

fn is_stuck(end: &Final) -> bool {
    end.retransmits > 0 || end.probes > 0 || end.lost > 0
}

/// Our FIN was not sent, or not acknowledged: the connection was reset or timed out.
fn abrupt(end: &Final, before: Option<&Before>, role: Option<Role>, fin_sent: bool) -> CloseReason {
    let is_stuck = is_stuck(end);
    let since = Since::poll(end, before);
    match since {
        Some(since) if since.segs_in == 0 => {
            // Nothing arrived, so no reset did. Either we waited in vain, or we aborted.
            let only_data =
                end.send_queue > 0 && since.segs_out > 0 && since.segs_out == since.data_segs_out;
            return if is_stuck || only_data {
                CloseReason::TIMED_OUT
            } else {
                CloseReason::OUR_RESET
            };
        }
        // A reset during retransmissions looks the same.
        None if is_stuck => return CloseReason::UNKNOWN,
        _ => {}
    }

    if fin_sent {
        return CloseReason::PEER_RESET;
    }

    let bare = since.or_else(|| Since::handshake(end, role)).map(|since| since.bare_segs_in());
    if bare.is_some_and(|bare| bare <= 0) {
        // Only data arrived, so no reset: we closed with unread data (__tcp_close), or the connection was aborted locally
        // (tcp_abort).
        return CloseReason::OUR_RESET;
    }

    if end.receive_queue == 0 {
        return CloseReason::PEER_RESET;
    }

    match (before, since) {
        (Some(before), Some(since)) if since.is_quiet => {
            // With nothing of ours to acknowledge, a segment without data is their FIN or a reset.
            let fins = match since.data_segs_in {
                0 => i64::try_from(since.bytes_received).unwrap_or(i64::MAX),
                _ => i64::from(before.state == State::Established),
            };
            if since.bare_segs_in() > fins { CloseReason::PEER_RESET } else { CloseReason::UNKNOWN }
        }
        _ => CloseReason::UNKNOWN,
    }
}

#[cfg(test)]
mod tests;
