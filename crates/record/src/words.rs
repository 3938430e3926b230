//! Numbers that have names: states, timers, reasons. Each set is open: a number without a name is kept unchanged, so
//! nothing is lost with a newer kernel.

use crate::value::{Value, Visitor, WireField};
use crate::{DecodeError, Field, Kind};

/// The names of one kind of word.
#[derive(Debug, PartialEq, Eq)]
pub struct Words {
    /// The type's name in the protobuf schema.
    pub name: &'static str,
    /// Its meaning, for the schema's comment.
    pub meaning: &'static str,
    /// Every known value with its word, ascending, starting at 0.
    pub entries: &'static [(u8, &'static str)],
}

impl Words {
    /// The word of `value`, if it has one.
    pub fn word(&self, value: u8) -> Option<&'static str> {
        // Most tables have no gaps.
        if let Some((number, word)) = self.entries.get(usize::from(value))
            && *number == value
        {
            return Some(word);
        }
        let at = self.entries.binary_search_by_key(&value, |(number, _)| *number).ok()?;
        self.entries.get(at).map(|(_, word)| *word)
    }
}

macro_rules! words {
    ($($(#[doc = $doc:literal])+ $name:ident { $($constant:ident = $value:literal, $word:literal;)+ })+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
            pub struct $name(pub u8);

            impl $name {
                $(#[doc = concat!("`", $word, "`, ", stringify!($value), ".")]
                pub const $constant: $name = $name($value);)+

                /// Every known value with its word.
                pub const WORDS: Words = Words {
                    name: stringify!($name),
                    meaning: concat!($($doc),+),
                    entries: &[$(($value, $word)),+],
                };

                /// The word, if this value has one.
                pub fn word(self) -> Option<&'static str> {
                    match self.0 { $($value => Some($word),)+ _ => None }
                }

                /// The value that `word` names.
                pub fn from_word(word: &str) -> Option<$name> {
                    match word { $($word => Some($name($value)),)+ _ => None }
                }
            }

            impl Value<'_> for $name {
                #[inline(always)]
                fn give<V: Visitor, const NUMBER: u32>(self, field: &'static Field, visitor: &mut V) {
                    visitor.word::<NUMBER>(field, self.0, self.word());
                }

                fn take(slot: &mut Option<Self>, _: Kind, field: &WireField<'_>) -> Result<(), DecodeError> {
                    *slot = Some($name(field.number_up_to(u8::MAX.into())? as u8));
                    Ok(())
                }
            }
        )+

        /// Every table of words, as the schema lists them.
        pub const WORD_TABLES: &[&Words] = &[$(&$name::WORDS),+];
    };
}

words! {
    /// What a record is about.
    RecordKind {
        UNSPECIFIED = 0, "unspecified";
        POLL = 1, "poll";
        CLOSE = 2, "close";
        TOTALS = 3, "totals";
        DATAGRAM = 4, "datagram";
        FLOW = 6, "flow";
        COUNTERS = 7, "counters";
        FLOW_TOTALS = 8, "flow_totals";
    }
    /// The address family of the socket.
    AddressFamily {
        UNSPECIFIED = 0, "unspecified";
        INET = 2, "inet";
        INET6 = 10, "inet6";
    }
    /// Which end of a connection this one is.
    ConnectionRole {
        UNSPECIFIED = 0, "unspecified";
        OPENER = 1, "opener";
        ACCEPTOR = 2, "acceptor";
    }
    /// The state of the connection (`TCP_ESTABLISHED` … in the kernel's `net/tcp_states.h`).
    SocketState {
        UNSPECIFIED = 0, "unspecified";
        ESTABLISHED = 1, "established";
        SYN_SENT = 2, "syn_sent";
        SYN_RECV = 3, "syn_recv";
        FIN_WAIT_1 = 4, "fin_wait_1";
        FIN_WAIT_2 = 5, "fin_wait_2";
        TIME_WAIT = 6, "time_wait";
        CLOSE = 7, "close";
        CLOSE_WAIT = 8, "close_wait";
        LAST_ACK = 9, "last_ack";
        LISTEN = 10, "listen";
        CLOSING = 11, "closing";
        NEW_SYN_RECV = 12, "new_syn_recv";
        BOUND_INACTIVE = 13, "bound_inactive";
    }
    /// The timer that runs for the socket.
    SocketTimer {
        NONE = 0, "none";
        RETRANSMIT = 1, "retransmit";
        KEEPALIVE = 2, "keepalive";
        TIME_WAIT = 3, "time_wait";
        ZERO_WINDOW_PROBE = 4, "zero_window_probe";
        DELAYED_ACK = 5, "delayed_ack";
    }
    /// The state of loss recovery (`tcpi_ca_state`).
    RecoveryState {
        OPEN = 0, "open";
        DISORDER = 1, "disorder";
        CWR = 2, "cwr";
        RECOVERY = 3, "recovery";
        LOSS = 4, "loss";
    }
    /// Why TCP Fast Open did not work for a connecting socket (`tcpi_fastopen_client_fail`).
    FastOpenFailure {
        UNSPECIFIED = 0, "unspecified";
        COOKIE_UNAVAILABLE = 1, "cookie_unavailable";
        DATA_NOT_ACKED = 2, "data_not_acked";
        SYN_RETRANSMITTED = 3, "syn_retransmitted";
    }
    /// What was agreed about explicit congestion notification (`tcpi_ecn_mode`).
    EcnMode {
        DISABLED = 0, "disabled";
        RFC3168 = 1, "rfc3168";
        ACCECN = 2, "accecn";
        PENDING = 3, "pending";
    }
    /// What was seen of the peer's AccECN option (`tcpi_accecn_opt_seen`).
    AccEcnOption {
        NOT_SEEN = 0, "not_seen";
        EMPTY_SEEN = 1, "empty_seen";
        COUNTER_SEEN = 2, "counter_seen";
        FAIL_SEEN = 3, "fail_seen";
    }
    /// Who encrypts one direction of a kernel TLS socket (`TLS_CONF_*`).
    TlsMode {
        UNSPECIFIED = 0, "unspecified";
        BASE = 1, "base";
        SOFTWARE = 2, "software";
        HARDWARE = 3, "hardware";
        HARDWARE_RECORD = 4, "hardware_record";
    }
    /// How a connection ended, as far as the last poll and the kernel's close event say.
    CloseReason {
        UNKNOWN = 0, "unknown";
        OUR_CLOSE = 1, "our_close";
        PEER_CLOSE = 2, "peer_close";
        OUR_RESET = 3, "our_reset";
        PEER_RESET = 4, "peer_reset";
        REFUSED = 5, "refused";
        TIMED_OUT = 6, "timed_out";
    }
    /// Whose counters a closing record has.
    CountersFrom {
        UNKNOWN = 0, "unknown";
        EVENT = 1, "event";
        LAST_POLL = 2, "last_poll";
    }
    /// Which form of syslog a datagram has.
    SyslogFormat {
        UNPARSED = 0, "unparsed";
        RFC5424 = 1, "rfc5424";
        RFC3164 = 2, "rfc3164";
    }
    /// Which part of a syslog message is not as RFC 5424 says.
    SyslogFault {
        UNSPECIFIED = 0, "unspecified";
        TIME = 1, "time";
        TIME_ZONE = 2, "time_zone";
        HOSTNAME = 3, "hostname";
        APP_NAME = 4, "app_name";
        PROC_ID = 5, "proc_id";
        MSG_ID = 6, "msg_id";
        STRUCTURED_DATA = 7, "structured_data";
        MESSAGE = 8, "message";
    }
    /// What sort of program sent a syslog message (RFC 5424 table 1, with the names of syslog.conf).
    SyslogFacility {
        KERN = 0, "kern";
        USER = 1, "user";
        MAIL = 2, "mail";
        DAEMON = 3, "daemon";
        AUTH = 4, "auth";
        SYSLOG = 5, "syslog";
        LPR = 6, "lpr";
        NEWS = 7, "news";
        UUCP = 8, "uucp";
        CRON = 9, "cron";
        AUTHPRIV = 10, "authpriv";
        FTP = 11, "ftp";
        NTP = 12, "ntp";
        SECURITY = 13, "security";
        CONSOLE = 14, "console";
        SOLARIS_CRON = 15, "solaris_cron";
        LOCAL0 = 16, "local0";
        LOCAL1 = 17, "local1";
        LOCAL2 = 18, "local2";
        LOCAL3 = 19, "local3";
        LOCAL4 = 20, "local4";
        LOCAL5 = 21, "local5";
        LOCAL6 = 22, "local6";
        LOCAL7 = 23, "local7";
    }
    /// Why a row of a flow was made.
    FlowCause {
        UNSPECIFIED = 0, "unspecified";
        ACTIVE = 1, "active";
        ENDED = 2, "ended";
        EVICTED = 3, "evicted";
        STOPPED = 4, "stopped";
        MERGED = 5, "merged";
    }
    /// Which frames a flow is about.
    FlowTraffic {
        UNSPECIFIED = 0, "unspecified";
        SAMPLED = 1, "sampled";
        DROPPED = 2, "dropped";
    }
    /// What a row of counters is about.
    CounterSubject {
        UNSPECIFIED = 0, "unspecified";
        INTERFACE = 1, "interface";
        AGENT = 2, "agent";
    }
    /// How bad it is, by the sender (RFC 5424 table 2).
    SyslogSeverity {
        EMERG = 0, "emerg";
        ALERT = 1, "alert";
        CRIT = 2, "crit";
        ERR = 3, "err";
        WARNING = 4, "warning";
        NOTICE = 5, "notice";
        INFO = 6, "info";
        DEBUG = 7, "debug";
    }
}
