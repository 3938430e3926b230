//! Finds words that need information which is not available where the filter is used.

use super::error::FilterError;
use super::{Filter, Needs};

/// What a filter may need, the message when it is not available, and the help.
const QUESTIONS: &[(Needs, &str, &str)] = &[
    (
        Needs::TCP_INFO,
        "UDP sockets have no such figure: it is one of a TCP connection",
        "use an address, a port, `drops`, `recv_q`, `send_q`, `rmem`, `rcvbuf`, `uid`, `process` or `unit`",
    ),
    (
        Needs::CONGESTION,
        "UDP sockets have no congestion control",
        "leave out `--udp` for TCP sockets",
    ),
    (
        Needs::PROCESSES,
        "which process holds a socket is not looked up here",
        "use `cgroup`, `unit`, `container`, `pod` or `uid`; or `weir sockets` without --closed, which knows processes",
    ),
    (
        Needs::AGE,
        "how long a socket has been there is not known to a single look",
        "add `--watch 1s`",
    ),
    (
        Needs::ATTRIBUTION,
        "whose cgroup a socket is in is not known here",
        "leave this out: a capture has only ids, which are those of the host that it was made on",
    ),
    (
        Needs::CGROUP_ID,
        "which cgroup a path stands for is not known here",
        "leave this out: a capture has only ids, which are those of the host that it was made on",
    ),
    (
        Needs::NETNS,
        "which network namespace a socket is in is not known here",
        "leave this out: a capture does not say",
    ),
    (
        Needs::INTERFACE,
        "which interface has this name is not known here",
        "write its index, such as `dev = 2`",
    ),
    (Needs::MARK, "marks are shown to CAP_NET_ADMIN only", "run it as root"),
];

impl Filter {
    /// Reports the first word that needs more than `available`: no socket would ever pass it, nor its opposite.
    ///
    /// ```
    /// use sockets::filter::{Filter, Needs, NoNames};
    /// let filter = Filter::parse_with("rtt > 1ms and age > 1min", &NoNames).unwrap();
    /// assert!(filter.check_known(Needs::ALL).is_ok());
    /// assert_eq!(filter.check_known(Needs::ALL.without(Needs::AGE)).unwrap_err().span, 14..17);
    /// ```
    ///
    /// # Errors
    ///
    /// [`FilterError`] at the word.
    pub fn check_known(&self, available: Needs) -> Result<(), FilterError> {
        let unknown = self.asks.iter().find(|(needs, _)| !available.contains(*needs));
        let Some((needs, span)) = unknown else { return Ok(()) };
        let question = QUESTIONS.iter().find(|(asked, ..)| needs.contains(*asked));
        let (message, help) = match question {
            Some((_, message, help)) => (*message, Some((*help).to_owned())),
            None => ("what this asks for is not known here", None),
        };
        Err(FilterError::new(&self.text, span.clone(), message, help))
    }
}
