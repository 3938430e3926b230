//! Sockets that receive aggregated datagrams (UDP GRO), and who counts the kernel's drops of them.

use crate::refused::program;
use config::{ListenerConfig, ReceiveMode};
use relay::Receive;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use sys::Errno;
use sys::gro::{self, Counter};

/// Sets a listener's socket to single or aggregated datagrams, as configured, and logs when that is not possible.
pub(super) fn of(
    config: &ListenerConfig,
    socket: BorrowedFd<'_>,
    helper: Option<&Path>,
) -> Receive {
    let Some(udp) = config.udp() else { return Receive::Single };
    let name = &config.name;
    if gro::is_aggregating(socket) {
        // It cannot be turned off while anything is queued, and we cannot know whether the earlier process counted the drops.
        tracing::warn!(
            "listener {name}: an earlier process made its socket receive datagrams in batches; those that the kernel drops are counted \
             as a lower bound. Fix: restart the .socket unit"
        );
        return Receive::Aggregates(None);
    }

    if udp.receive == ReceiveMode::Single {
        return Receive::Single;
    }

    match (counted(socket, helper), udp.receive) {
        (Ok(receive), _) => receive,
        (Err(why), ReceiveMode::Gro) => {
            tracing::warn!(
                "listener {name}: of the datagrams that the kernel drops, only a lower bound is counted, because {why}"
            );
            let is_aggregating = gro::aggregate(socket).is_ok();
            if is_aggregating { Receive::Aggregates(None) } else { Receive::Single }
        }
        (Err(why), _) => {
            tracing::info!("listener {name}: each datagram is received alone, because {why}");
            Receive::Single
        }
    }
}

/// Sets a joining socket to the same mode as the listener's first socket.
///
/// # Errors
/// The first socket's mode is not available for this one.
pub(super) fn as_first(
    first: BorrowedFd<'_>,
    socket: BorrowedFd<'_>,
    helper: Option<&Path>,
) -> io::Result<Receive> {
    if !gro::is_aggregating(first) {
        return Ok(Receive::Single);
    }
    match counted(socket, helper) {
        Ok(receive) => Ok(receive),
        // Drops of the first socket are not counted either.
        Err(Uncounted::NotPermitted | Uncounted::Unsettled(_)) => {
            gro::aggregate(socket).map(|()| Receive::Aggregates(None))
        }
        Err(why) => Err(io::Error::other(why.to_string())),
    }
}

/// Why the kernel's drops of aggregated datagrams cannot be counted.
enum Uncounted {
    NotPermitted,
    Helper(io::Error),
    /// We cannot wait for the kernel to finish with the packets it is processing (see [`gro::settle`]).
    Unsettled(Errno),
    Kernel(io::Error),
}

impl fmt::Display for Uncounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uncounted::NotPermitted => write!(
                f,
                "counting them takes CAP_BPF. Fix: setcap cap_bpf=+ep {}, AmbientCapabilities=CAP_BPF in the unit, or run weir \
                 namespace-helper and write helper = \"PATH\" in [daemon]",
                program()
            ),
            Uncounted::Helper(error) => write!(
                f,
                "the helper does not count them: {error}. Fix: systemctl status weir-namespace-helper"
            ),
            Uncounted::Unsettled(errno) => write!(
                f,
                "this kernel does not say when a count is complete (membarrier): {errno}. Fix: receive = \"single\""
            ),
            Uncounted::Kernel(error) => {
                write!(
                    f,
                    "this kernel cannot count them: {error}. Fix: receive = \"single\", or Linux 5.7"
                )
            }
        }
    }
}

/// Turns on aggregation, with drops counted in the kernel. Counting starts first, so that none goes uncounted.
fn counted(socket: BorrowedFd<'_>, helper: Option<&Path>) -> Result<Receive, Uncounted> {
    gro::can_settle().map_err(Uncounted::Unsettled)?;
    let counter = match (Counter::make(), helper) {
        (Ok(counter), _) => counter,
        (Err(Errno::PERM), Some(path)) => {
            sockets::helper::counter(path).map_err(Uncounted::Helper)?
        }
        (Err(Errno::PERM), None) => return Err(Uncounted::NotPermitted),
        (Err(errno), _) => return Err(Uncounted::Kernel(errno.into())),
    };

    counter.attach(socket).map_err(Uncounted::Kernel)?;
    gro::aggregate(socket).map_err(Uncounted::Kernel)?;
    Ok(Receive::Aggregates(Some(counter)))
}
