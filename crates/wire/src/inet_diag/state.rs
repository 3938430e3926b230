use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not, Sub};

/// Declares [`State`] and its tables from one list.
macro_rules! states {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $printed:literal, $word:literal;)*) => {
        /// State of a TCP socket (`include/net/tcp_states.h`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum State {
            $($(#[$doc])* $variant,)*
            /// A number not sent by any known kernel.
            Unknown(u8),
        }

        impl State {
            /// Every known state, by number.
            pub const KNOWN: &[Self] = &[$(Self::$variant,)*];

            /// The state with this kernel number.
            #[must_use]
            pub const fn from_number(number: u8) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Unknown(other),
                }
            }

            /// The kernel's number.
            #[must_use]
            pub const fn number(self) -> u8 {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Unknown(number) => number,
                }
            }

            /// The text in the first column of `ss`.
            #[must_use]
            pub const fn printed(self) -> &'static str {
                match self {
                    $(Self::$variant => $printed,)*
                    Self::Unknown(_) => "UNKNOWN",
                }
            }

            /// Its word in the filter language of `ss`.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Unknown(_) => "unknown",
                }
            }
        }
    };
}

states! {
    /// Data flows.
    Established = 1, "ESTAB", "established";
    /// SYN sent, no answer yet.
    SynSent = 2, "SYN-SENT", "syn-sent";
    /// SYN received and answered; a request socket.
    SynReceived = 3, "SYN-RECV", "syn-recv";
    /// We closed, our FIN is not acknowledged.
    FinWait1 = 4, "FIN-WAIT-1", "fin-wait-1";
    /// We closed, our FIN is acknowledged, the peer's has not arrived.
    FinWait2 = 5, "FIN-WAIT-2", "fin-wait-2";
    /// Both closed, late segments are waited for.
    TimeWait = 6, "TIME-WAIT", "time-wait";
    /// Not connected; also what the kernel says of sockets that are only bound, and in destroy events.
    Closed = 7, "UNCONN", "closed";
    /// The peer closed, we have not.
    CloseWait = 8, "CLOSE-WAIT", "close-wait";
    /// Peer and we closed, our FIN is not acknowledged.
    LastAck = 9, "LAST-ACK", "last-ack";
    /// Waits for connections.
    Listen = 10, "LISTEN", "listening";
    /// Both closed at once.
    Closing = 11, "CLOSING", "closing";
    /// A request socket inside the kernel; replies say [`State::SynReceived`] instead.
    NewSynReceived = 12, "UNDEF", "new-syn-recv";
    /// Bound, and neither connected nor listening. For requests only (Linux 6.8): replies say [`State::Closed`].
    BoundInactive = 13, "UNDEF", "bound-inactive";
}

impl State {
    /// The word of the filter language with `_` for `-`, as used in records and metrics.
    #[must_use]
    pub const fn snake(self) -> &'static str {
        match self {
            Self::SynSent => "syn_sent",
            Self::SynReceived => "syn_recv",
            Self::FinWait1 => "fin_wait_1",
            Self::FinWait2 => "fin_wait_2",
            Self::TimeWait => "time_wait",
            Self::CloseWait => "close_wait",
            Self::LastAck => "last_ack",
            Self::Listen => "listen",
            Self::NewSynReceived => "new_syn_recv",
            Self::BoundInactive => "bound_inactive",
            Self::Established | Self::Closed | Self::Closing | Self::Unknown(_) => self.word(),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.printed())
    }
}

/// A set of states, as in a request: bit N for state number N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct States(u32);

impl States {
    /// No state.
    pub const NONE: Self = Self(0);
    /// Every state, including bound sockets, and bit 0, which no state uses: `SS_ALL` of `ss`.
    pub const ALL: Self = Self((1 << 14) - 1);
    /// Only listening sockets.
    pub const LISTENING: Self = Self::of(State::Listen);
    /// Neither closed, nor bound, nor listening: the group `connected`.
    pub const CONNECTED: Self = Self(
        Self::ALL.0
            & !(Self::of(State::Closed).0
                | Self::of(State::Listen).0
                | Self::of(State::BoundInactive).0),
    );
    /// Connected sockets whose handshake has begun on both sides: the group `synchronized`.
    pub const SYNCHRONIZED: Self = Self(Self::CONNECTED.0 & !Self::of(State::SynSent).0);
    /// States that the kernel stores as minisockets: the group `bucket`.
    pub const BUCKET: Self = Self(Self::of(State::SynReceived).0 | Self::of(State::TimeWait).0);
    /// All except `bucket`: the group `big`.
    pub const BIG: Self = Self(Self::ALL.0 & !Self::BUCKET.0);
    /// What `ss` shows without options: neither closed, nor bound, nor listening, nor `bucket`.
    pub const DEFAULT: Self = Self(Self::CONNECTED.0 & !Self::BUCKET.0);

    /// The names of groups in the filter language, and their states.
    pub const GROUPS: &[(&str, Self)] = &[
        ("all", Self::ALL),
        ("connected", Self::CONNECTED),
        ("synchronized", Self::SYNCHRONIZED),
        ("bucket", Self::BUCKET),
        ("big", Self::BIG),
    ];

    /// The set of one state. A number above 31 has no bit and gives the empty set.
    #[must_use]
    pub const fn of(state: State) -> Self {
        match 1_u32.checked_shl(state.number() as u32) {
            Some(bit) => Self(bit),
            None => Self(0),
        }
    }

    /// The set with these bits.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// One bit per state, as in `idiag_states`.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether the state is in the set.
    #[must_use]
    pub const fn contains(self, state: State) -> bool {
        self.0 & Self::of(state).0 != 0
    }

    /// Whether no state is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The known states in the set, by number.
    pub fn iter(self) -> impl Iterator<Item = State> {
        State::KNOWN.iter().copied().filter(move |&state| self.contains(state))
    }

    /// Parses a state or group in the filter language of `ss`, in upper or lower case, with the alternative spellings
    /// that `ss` accepts (`close`, `unconnected`, `listen`, `syn-rcv`) and with `_` for `-`. `None` for any other word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase().replace('_', "-");
        let state = match word.as_str() {
            "close" | "unconnected" => Some(State::Closed),
            "listen" => Some(State::Listen),
            "syn-rcv" => Some(State::SynReceived),
            // The kernel never reports it; `ss` refuses it as well.
            "new-syn-recv" => None,
            _ => State::KNOWN.iter().copied().find(|state| state.word() == word),
        };

        let group = || Self::GROUPS.iter().find(|(name, _)| *name == word).map(|(_, group)| *group);
        state.map(Self::of).or_else(group)
    }
}

impl BitOr for States {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for States {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for States {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for States {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The complement within [`States::ALL`].
impl Not for States {
    type Output = Self;
    fn not(self) -> Self {
        Self::ALL - self
    }
}

impl From<State> for States {
    fn from(state: State) -> Self {
        Self::of(state)
    }
}

impl FromIterator<State> for States {
    fn from_iter<I: IntoIterator<Item = State>>(states: I) -> Self {
        states.into_iter().fold(Self::NONE, |set, state| set | Self::of(state))
    }
}

/// The running timer of the socket (`idiag_timer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    /// None.
    Off,
    /// Retransmission, tail loss probe or reordering timer; for a request entry, that of its SYN-ACK.
    Retransmit,
    /// Keepalive, or the end of FIN-WAIT-2.
    Keepalive,
    /// The end of TIME-WAIT.
    TimeWait,
    /// Zero-window probes.
    Probe,
    /// A delayed acknowledgment (Linux 7.1).
    DelayedAck,
    /// A number not sent by any known kernel.
    Unknown(u8),
}

impl Timer {
    /// The timer with this kernel number.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Off,
            1 => Self::Retransmit,
            2 => Self::Keepalive,
            3 => Self::TimeWait,
            4 => Self::Probe,
            5 => Self::DelayedAck,
            other => Self::Unknown(other),
        }
    }

    /// The kernel's number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Retransmit => 1,
            Self::Keepalive => 2,
            Self::TimeWait => 3,
            Self::Probe => 4,
            Self::DelayedAck => 5,
            Self::Unknown(number) => number,
        }
    }

    /// The text that `ss -o` prints.
    #[must_use]
    pub const fn printed(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Retransmit => "on",
            Self::Keepalive => "keepalive",
            Self::TimeWait => "timewait",
            Self::Probe => "persist",
            Self::DelayedAck => "delack",
            Self::Unknown(_) => "unknown",
        }
    }

    /// A word for the timer, as used in records.
    #[must_use]
    pub const fn snake(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Retransmit => "retransmit",
            Self::Keepalive => "keepalive",
            Self::TimeWait => "time_wait",
            Self::Probe => "probe",
            Self::DelayedAck => "delayed_ack",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.printed())
    }
}
