//! The faults of a history.

/// Every fault, and how often each occurred over all histories.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    MakeFails,
    MakePanics,
    GivenBack,
    SubmitPanics,
    PollPanics,
    ClosePanics,
    Rejected,
    DroppedByIt,
    FailedUnsent,
    FailedMaybe,
    FailedMaybeStored,
    Slow,
    Hangs,
    Split,
    AnsweredTwice,
    UnknownBatch,
    LateAnswer,
    RowSkipped,
    FormPanics,
    PushPanics,
    FinishPanics,
    ClockStepped,
    QueueFull,
    Expired,
    EndedUncertain,
    EndedByDeadline,
    GivenUp,
    Crashed,
    DiskFails,
    Recovered,
    CircuitOpened,
    StoredTwice,
    DiskTakesTime,
    EndedUnsynced,
    SyncFails,
    PowerCut,
}

pub(super) const FAULTS: usize = Fault::PowerCut as usize + 1;

#[derive(Clone, Copy, Debug)]
pub(super) struct Fired(pub(super) [u64; FAULTS]);

impl Default for Fired {
    fn default() -> Fired {
        // Not derived, because arrays of more than 32 elements have no `Default`.
        Fired([0; FAULTS])
    }
}

impl Fired {
    pub(super) fn add(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }
}

/// The current fault rates of the destination and the encoder, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mood {
    pub(super) make_fails: u64,
    pub(super) panics: u64,
    pub(super) gives_back: u64,
    pub(super) rejects: u64,
    pub(super) drops: u64,
    pub(super) fails: u64,
    pub(super) hangs: u64,
    pub(super) splits: u64,
    pub(super) noise: u64,
    pub(super) skips: u64,
    pub(super) encoder_panics: u64,
    pub(super) sync_fails: u64,
    pub(super) delay_ms: u64,
}
