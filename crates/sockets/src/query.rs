//! Questions to a running collector: the current sockets, as JSON.
//!
//! One walk answers a list ([`listing`]) or all rankings that wait ([`ranking`]), datagram by datagram of the kernel's dump,
//! between everything else that the collector's thread does: a poll that is due comes first, and close events are read as always.
//! A reader of a list that takes nothing holds up the next answer for two seconds; then its own is ended, and set aside until it is
//! taken.

pub(crate) mod listing;
mod pipe;
pub(crate) mod ranking;
mod round;

pub use pipe::Answer;
pub use ranking::{Figure, Group, Order, RANKED_MAX, Ranked};

use crate::runner::Runner;
use listing::{Cut, Listing};
use pipe::{Pen, Waiting};
use ranking::Ranking;
use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// Lists that wait for their turn; further ones are refused as [`QueryError::Busy`].
pub(crate) const LISTS_WAITING_MAX: usize = 8;
/// The same of rankings, all of which the next walk answers.
pub(crate) const RANKINGS_WAITING_MAX: usize = 16;
/// From the beginning of one answer to that of the next, at least: each is a walk of everything.
const GAP: Duration = Duration::from_secs(1);
/// How long the thread works on an answer before it turns to its other work.
const TURN: Duration = Duration::from_millis(5);
/// Maximum time from the first to the last socket of an answer.
const WALK_MAX: Duration = Duration::from_secs(5);
/// How long a reader may take nothing while the maximum waits for it.
const READER_WAIT_MAX: Duration = Duration::from_secs(2);
/// Maximum time until the reader has taken everything.
const TAKEN_MAX: Duration = Duration::from_secs(9);
/// Maximum number of finished answers that wait for their readers, in addition to the current one. One more revokes the oldest.
const UNTAKEN_MAX: usize = 2;
/// How long answers skip the search for namespaces after one has failed: a helper that hangs already delays the thread in each
/// poll.
const SEARCH_PAUSE: Duration = Duration::from_secs(10);

/// Why a question has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueryError {
    /// Too many questions wait already.
    Busy,
    /// The question's turn did not come in time: others were ahead of it, or a poll takes long.
    Timeout,
    /// The answer was cut off, because nobody took it or the collector's thread is gone.
    Broken,
    /// The collector has stopped or is stopping.
    Stopped,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueryError::Busy => {
                "too many questions are waiting: one a second is answered. Fix: try again"
            }
            QueryError::Timeout => {
                "the collector did not answer in time: other questions or a poll are under way. Fix: try again"
            }
            QueryError::Broken => "the answer was broken off",
            QueryError::Stopped => "the collector has stopped",
        })
    }
}

impl std::error::Error for QueryError {}

/// A question on its way to the thread.
pub(crate) struct Asker<Wanted, Answer> {
    pub(crate) wanted: Wanted,
    /// Nobody waits for the answer after this.
    pub(crate) deadline: Instant,
    pub(crate) reach: Reach,
    pub(crate) answer: Sender<Answer>,
}

/// The namespaces whose sockets an answer shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reach {
    /// All that are collected.
    #[default]
    All,
    /// This process's own, whose sockets each process in it can list.
    Own,
}

/// Where the thread finds questions.
pub(crate) struct Asked {
    pub(crate) lists: Receiver<listing::Question>,
    pub(crate) rankings: Receiver<ranking::Question>,
}

/// The answers of a collector: one walk under way at most.
#[derive(Default)]
pub(crate) struct Answers {
    under_way: Option<UnderWay>,
    /// Lists that are made and not taken yet, and when they began.
    untaken: VecDeque<(Pen, Instant)>,
    /// When the last walk began.
    began: Option<Instant>,
    /// When the last search for namespaces failed.
    search_failed: Option<Instant>,
    /// Whose turn it is if both wait.
    next: Kind,
}

/// A walk, and for whom.
enum UnderWay {
    List(Box<Listing>),
    Rankings(Box<Ranking>),
}

/// Kinds of answers, which take turns.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    List,
    Rankings,
}

/// Whether work on an answer can continue at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// There is more to do.
    More,
    /// Nothing to do until something happens or this time is over.
    Wait(Duration),
}

/// Nothing to do until the next question.
const IDLE: Turn = Turn::Wait(Duration::MAX);

impl Answers {
    /// Takes the next question if it is time for it, and goes on with the answer that is under way.
    pub(crate) fn turn(runner: &mut Runner<'_>, asked: &Asked) -> Turn {
        let untaken = runner.answers.take_back();
        match Answers::work(runner, asked) {
            Turn::More => Turn::More,
            Turn::Wait(wait) => Turn::Wait(wait.min(untaken)),
        }
    }

    fn work(runner: &mut Runner<'_>, asked: &Asked) -> Turn {
        if runner.answers.under_way.is_none() {
            let left =
                runner.answers.began.map_or(Duration::ZERO, |at| GAP.saturating_sub(at.elapsed()));
            if !left.is_zero() {
                return Turn::Wait(left);
            }
            if !Answers::begin(runner, asked) {
                return IDLE;
            }
        }

        // Taken out while it works: it needs the whole runner.
        let Some(mut under_way) = runner.answers.under_way.take() else { return Turn::More };
        let turn = match &mut under_way {
            UnderWay::List(listing) => listing.turn(runner),
            UnderWay::Rankings(ranking) => ranking.turn(runner),
        };

        let answers = &mut runner.answers;
        match (turn, under_way) {
            (Some(_), under_way) => answers.under_way = Some(under_way),
            (None, UnderWay::List(listing)) => answers.set_aside(*listing),
            (None, UnderWay::Rankings(_)) => {}
        }
        turn.unwrap_or(Turn::More)
    }

    /// Takes the next questions, and says whether there were any.
    fn begin(runner: &mut Runner<'_>, asked: &Asked) -> bool {
        match runner.answers.next {
            Kind::List => {
                Answers::begin_list(runner, asked) || Answers::begin_rankings(runner, asked)
            }
            Kind::Rankings => {
                Answers::begin_rankings(runner, asked) || Answers::begin_list(runner, asked)
            }
        }
    }

    fn begin_list(runner: &mut Runner<'_>, asked: &Asked) -> bool {
        let now = Instant::now();
        // Nobody waits any more for one whose time is over.
        let mut waiting = asked.lists.try_iter().filter(|question| question.deadline > now);
        let Some(question) = waiting.next() else { return false };
        runner.answers.next = Kind::Rankings;
        let listing = Listing::begin(runner, question);
        runner.answers.under_way = listing.map(|listing| UnderWay::List(Box::new(listing)));
        true
    }

    fn begin_rankings(runner: &mut Runner<'_>, asked: &Asked) -> bool {
        let now = Instant::now();
        let waiting = asked.rankings.try_iter().filter(|question| question.deadline > now);
        let questions: Vec<_> = waiting.take(RANKINGS_WAITING_MAX).collect();
        if questions.is_empty() {
            return false;
        }
        runner.answers.next = Kind::List;
        let ranking = Ranking::begin(runner, questions);
        runner.answers.under_way = Some(UnderWay::Rankings(Box::new(ranking)));
        true
    }

    fn set_aside(&mut self, listing: Listing) {
        if self.untaken.len() >= UNTAKEN_MAX
            && let Some((oldest, _)) = self.untaken.pop_front()
        {
            oldest.break_off();
        }
        let began = listing.began;
        self.untaken.push_back((listing.into_pen(), began));
    }

    /// Forgets answers that were taken, and revokes those that have waited too long. Returns how long the rest may still wait.
    fn take_back(&mut self) -> Duration {
        self.untaken.retain(|(pen, began)| {
            let is_late = began.elapsed() >= TAKEN_MAX;
            if is_late {
                pen.break_off();
            }
            !is_late && !matches!(pen.waiting(), Waiting::Nothing | Waiting::Nobody)
        });
        let left = |(_, began): &(Pen, Instant)| TAKEN_MAX.saturating_sub(began.elapsed());
        self.untaken.iter().map(left).min().unwrap_or(Duration::MAX)
    }

    /// Ends the list that is under way as it is: its reader gets what there is, which says that it is cut. Rankings are broken off.
    pub(crate) fn stop(&mut self) {
        if let Some(UnderWay::List(mut listing)) = self.under_way.take() {
            listing.end(Some(Cut::Stop));
        }
    }
}
