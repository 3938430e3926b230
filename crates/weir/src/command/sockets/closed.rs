//! `--closed`: connections as they end.

use super::args::{Args, tell};
use super::out::Out;
use super::stream::Stream;
use ledger::{HopKind, Meter, Reason};
use record::{FieldSet, PollTotals, RecordKind, SocketRecord};
use sockets::attribution::{Host, HostOptions};
use sockets::filter::Filter;
use sockets::{Closes, Collector, Options, Output, Problem, Served, Undecided};
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use sys::signal::stop_flag;
use text::plural;
use wire::inet_diag::States;

/// Time between two polls of open connections, which show how long a connection has existed and who owned it.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Pieces of output that may wait for a slow reader.
const QUEUE_PIECES: usize = 256;
/// Bytes kept beyond that queue before records are dropped.
const PENDING_BYTES_MAX: usize = 16 << 20;
/// Room for some 6,000 closes between two reads, if the kernel grants it.
const EVENT_BUFFER_BYTES: usize = 8 << 20;

pub(super) fn run(args: &Args, filter: &Filter) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let mut stream = Stream::new(args)?;
    let mut out = Out::to_stdout();
    out.with(|buffer| stream.begin(buffer));
    out.flush();

    let (sender, pieces) = sync_channel(QUEUE_PIECES);
    let counts = Arc::new(Counts::default());
    let outlet = Outlet {
        stream,
        pieces: sender,
        pending: Vec::new(),
        left: args.count,
        sequence: 0,
        counts: Arc::clone(&counts),
    };

    let host = Host::read(HostOptions::default());
    let access = args.make_access()?;
    let collector = Collector::start_with(options(args, filter), host, Box::new(outlet), access)?;
    let meter = collector.meter();

    while !stop.load(Ordering::Relaxed) && !out.is_over() {
        match pieces.recv_timeout(Duration::from_millis(100)) {
            Ok(piece) => {
                out.push(&piece);
                pieces.try_iter().for_each(|piece| out.push(&piece));
                out.flush();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if args.count.is_some_and(|count| counts.shown.load(Ordering::Relaxed) >= count) {
            break;
        }
    }

    // Clears the terminal's `^C` before the rest of the output.
    crate::live::end();
    let outlet = collector.stop();
    drain(&pieces, &mut out);
    // Dropping it hands over what had no room before.
    drop(outlet);
    drain(&pieces, &mut out);

    out.finish()?;
    tell(format_args!("{}", summary(&counts, meter.as_ref())));
    Ok(ExitCode::SUCCESS)
}

fn drain(pieces: &Receiver<Vec<u8>>, out: &mut Out) {
    pieces.try_iter().for_each(|piece| out.push(&piece));
}

fn options(args: &Args, filter: &Filter) -> Options {
    let is_all = filter.states().is_none() && filter.expression().is_none();

    Options {
        name: "sockets".to_owned(),
        interval: POLL_INTERVAL,
        jitter: Duration::ZERO,
        scope: args.scope(),
        states: States::CONNECTED,
        filter: (!is_all).then(|| filter.clone()),
        listen_every: NonZeroU32::MAX,
        // Poll records are not shown, so make as few as possible.
        keyframe_every: Some(NonZeroU32::MAX),
        sample: NonZeroU32::MIN,
        closes: Closes::On,
        closes_undecided: if args.undecided { Undecided::Keep } else { Undecided::Drop },
        event_buffer_bytes: EVENT_BUFFER_BYTES,
        served: Served::default(),
        namespaces_max: 65_536,
        table_entries_max: 131_072,
        processes: args.wants_processes(),
        fields: FieldSet::ALL,
    }
}

#[derive(Default)]
struct Counts {
    shown: AtomicU64,
    dropped: AtomicU64,
}

/// Receives the collector's records on its thread, and must not block it.
struct Outlet {
    stream: Stream,
    pieces: SyncSender<Vec<u8>>,
    /// Output that had no room in the queue.
    pending: Vec<u8>,
    /// Number of records still wanted.
    left: Option<u64>,
    /// Sequence number of the next record.
    sequence: u64,
    counts: Arc<Counts>,
}

impl Outlet {
    fn hand_over(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        match self.pieces.try_send(std::mem::take(&mut self.pending)) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(piece)) => self.pending = piece,
        }
    }
}

impl Output for Outlet {
    fn record(&mut self, record: &SocketRecord<'_>) {
        if record.record_kind != Some(RecordKind::CLOSE) || self.left == Some(0) {
            return;
        }

        if self.pending.len() >= PENDING_BYTES_MAX {
            self.sequence += 1;
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }

        // Renumber: poll records are not shown, and a gap would look like a lost record.
        let record = SocketRecord { sequence: Some(self.sequence), ..*record };
        // Remove differences to a record that is not shown, for the same reason.
        let record = &sockets::without_delta(&record);

        self.stream.record(record, &mut self.pending);
        self.sequence += 1;
        self.left = self.left.map(|left| left - 1);
        self.hand_over();
        self.counts.shown.fetch_add(1, Ordering::Relaxed);
    }

    fn end_of_poll(&mut self, _: &PollTotals<'_>) {
        self.hand_over();
    }

    fn flush(&mut self) {
        self.hand_over();
    }

    fn problem(&mut self, problem: &Problem) {
        tell(format_args!("{problem}"));
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.stream.end(&mut self.pending);
        self.hand_over();
    }
}

fn summary(counts: &Counts, meter: &dyn Meter) -> String {
    let shown = counts.shown.load(Ordering::Relaxed);
    let mut text = format!("{} ended", plural(shown, "connection", "connections"));

    let dropped = counts.dropped.load(Ordering::Relaxed);
    if dropped > 0 {
        text += &format!("; {dropped} more are missing: the output was too slow");
    }

    let mut hops = Vec::new();
    meter.read(&mut hops);
    let undecided = hops.iter().filter(|hop| hop.hop == HopKind::Close);
    let undecided: u64 = undecided.map(|hop| hop.dropped_for(Reason::Undecided).count).sum();
    if undecided > 0 {
        text += &format!(
            "; {} left out: no look had seen them, and their close does not say what the filter asks for (--undecided shows them)",
            plural(undecided, "more was", "more were")
        );
    }

    let lost = hops.iter().filter(|hop| hop.hop == HopKind::Close);
    let lost: u64 = lost.map(|hop| hop.dropped_for(Reason::EventBuffer).count).sum();
    if lost > 0 {
        text += &format!(
            "; {} lost in the kernel: they came faster than they were read; CAP_NET_ADMIN allows a larger buffer",
            plural(lost, "close was", "closes were")
        );
    }

    text
}
