//! What limited the sending of a connection most.

/// Why a connection did not send faster, with the share of its busy time in percent if the kernel measures it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The peer's receive window.
    PeerWindow(u64),
    /// Our send buffer.
    SendBuffer(u64),
    /// The application sent too little.
    Application,
    /// The congestion window, or pacing.
    Path,
}

impl Limit {
    /// The words for all of them.
    pub const WORDS: [&str; 4] = ["rwnd", "sndbuf", "app", "path"];

    /// Derived from the fields of `tcp_info`, with times in microseconds. `None` for a connection that was never busy.
    #[must_use]
    pub fn of(
        busy_us: Option<u64>,
        rwnd_limited_us: Option<u64>,
        sndbuf_limited_us: Option<u64>,
        is_app_limited: Option<bool>,
    ) -> Option<Limit> {
        let busy_us = busy_us.filter(|&us| us > 0)?;
        let percent = |us: Option<u64>| us.unwrap_or(0).saturating_mul(100) / busy_us;
        let (window, buffer) = (percent(rwnd_limited_us), percent(sndbuf_limited_us));
        Some(match is_app_limited {
            _ if window.max(buffer) > 0 && window >= buffer => Limit::PeerWindow(window.min(100)),
            _ if buffer > 0 => Limit::SendBuffer(buffer.min(100)),
            Some(true) => Limit::Application,
            _ => Limit::Path,
        })
    }

    /// The word in tables and filters.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Limit::PeerWindow(_) => "rwnd",
            Limit::SendBuffer(_) => "sndbuf",
            Limit::Application => "app",
            Limit::Path => "path",
        }
    }
}
