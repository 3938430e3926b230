//! The evidence for the rules: what the close event says, and what the last poll saw.

use super::Role;
use crate::table::{Entry, LastCounters};
use wire::inet_diag::{SocketMessage, State, TcpInfo};

/// What a close event says about the end.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Final {
    /// The peer's port. An abort clears it (`tcp_disconnect` in net/ipv4/tcp.c).
    pub(crate) peer_port: u16,
    /// Bytes not read yet, plus one if the peer's FIN arrived and was not read.
    pub(crate) receive_queue: u32,
    /// Bytes not acknowledged, including our SYN and FIN; or what an abort leaves there.
    pub(crate) send_queue: u32,
    pub(crate) retransmits: u8,
    pub(crate) probes: u8,
    pub(crate) lost: u32,
    pub(crate) total_retrans: u32,
    pub(crate) delivered: u32,
    pub(crate) notsent_bytes: u32,
    pub(crate) min_rtt_us: Option<u32>,
    pub(crate) snd_wnd_bytes: u32,
    pub(crate) counters: Counters,
}

/// Counters of `tcp_info`. Segment counters wrap.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counters {
    /// `None` before Linux 4.19.
    pub(crate) bytes_sent: Option<u64>,
    pub(crate) bytes_retrans: u64,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    pub(crate) segs_in: u32,
    pub(crate) segs_out: u32,
    pub(crate) data_segs_in: u32,
    pub(crate) data_segs_out: u32,
}

/// What the last poll saw of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Before {
    pub(crate) state: State,
    pub(crate) role: Option<Role>,
    pub(crate) was_remnant: bool,
    pub(crate) is_all_acked: bool,
    /// `None` if no poll saw any.
    pub(crate) counters: Option<Counters>,
}

impl Final {
    pub(crate) fn of(event: &SocketMessage<'_>) -> Final {
        let mut end = Final {
            peer_port: event.id.dst.port(),
            receive_queue: event.receive_queue,
            send_queue: event.send_queue,
            ..Final::default()
        };

        if let Some(info) = &event.tcp_info {
            end.retransmits = info.retransmits().unwrap_or_default();
            end.probes = info.probes().unwrap_or_default();
            end.lost = info.lost_segments().unwrap_or_default();
            end.total_retrans = info.total_retrans_segments().unwrap_or_default();
            end.delivered = info.delivered_segments().unwrap_or_default();
            end.notsent_bytes = info.notsent_bytes().unwrap_or_default();
            end.min_rtt_us = info.min_rtt_us();
            end.snd_wnd_bytes = info.snd_wnd_bytes().unwrap_or_default();
            end.counters = Counters::in_info(info);
        }

        end
    }
}

impl Counters {
    pub(super) fn in_info(info: &TcpInfo) -> Counters {
        Counters {
            bytes_sent: info.bytes_sent(),
            bytes_retrans: info.bytes_retrans().unwrap_or_default(),
            bytes_acked: info.bytes_acked().unwrap_or_default(),
            bytes_received: info.bytes_received().unwrap_or_default(),
            segs_in: info.segs_in().unwrap_or_default(),
            segs_out: info.segs_out().unwrap_or_default(),
            data_segs_in: info.data_segs_in().unwrap_or_default(),
            data_segs_out: info.data_segs_out().unwrap_or_default(),
        }
    }

    pub(crate) fn of(last: &LastCounters) -> Counters {
        Counters {
            bytes_sent: Some(last.bytes_sent),
            bytes_retrans: last.bytes_retrans,
            bytes_acked: last.bytes_acked,
            bytes_received: last.bytes_received,
            segs_in: last.segs_in,
            segs_out: last.segs_out,
            data_segs_in: last.data_segs_in,
            data_segs_out: last.data_segs_out,
        }
    }
}

impl Before {
    pub(crate) fn of(entry: &Entry) -> Before {
        Before {
            state: State::from_number(entry.state),
            role: entry.role,
            was_remnant: entry.was_remnant,
            is_all_acked: entry.is_all_acked,
            counters: entry.has_counters.then(|| Counters::of(&entry.last)),
        }
    }
}
