//! `weir query-helper`: the process in which a daemon answers one question to its history. What a statement takes is limited from
//! outside it, and nothing that it could make of SQLite reaches the daemon.

use crate::exit::Failure;
use crate::question::errand::{Errand, Head, Obstacle};
use crate::question::{as_json, with_units};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use store::{Audience, Error, Named, Reader};
use sys::landlock;
use sys::process::{
    CAP_DAC_READ_SEARCH, capability_set, close_descriptors_from, die_with_parent, effective_uid,
    forbid_growing_files, forbid_tracing, keep_capabilities, limit_cpu_seconds, limit_descriptors,
    limit_more_memory,
};
use sys::seccomp::{Calls, Otherwise, allow_only};

/// Answer one question to a store, as a daemon asks it on standard input
#[derive(clap::Args)]
pub(crate) struct Args {}

/// The first descriptor after the standard ones.
const FIRST_OTHER: i32 = 3;
/// The database with its log and index, twice, the answer, and sealed files: one at a time for each table in FROM, of which a
/// statement has at most 64.
const DESCRIPTORS_MAX: u64 = 256;
/// Processor time beyond the statement's own: to start and to write the answer.
const MORE_SECONDS: u64 = 3;

pub(crate) fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    // What the daemon left open is none of this process's.
    close_descriptors_from(FIRST_OTHER)?;
    die_with_parent().map_err(io::Error::from)?;
    let Some(errand) = Errand::read(io::stdin().lock()) else {
        return Err(Failure::Usage.error(
            "query-helper is started by a daemon, which asks it on standard input. Fix: weir query",
        ));
    };

    let answered = confined(&errand).and_then(|reader| answer(&reader, &errand));
    let (head, body) = match answered {
        Ok(body) => (Head::Answer(body.len() as u64), body),
        Err(head) => (head, Vec::new()),
    };
    // A daemon that no longer listens wants no answer.
    let mut out = io::stdout().lock();
    let _ = head.write(&mut out).and_then(|()| out.write_all(&body)).and_then(|()| out.flush());
    Ok(ExitCode::SUCCESS)
}

/// Opens the store, and gives up everything else. Whatever cannot be given up is a refusal: without its limits no statement runs.
fn confined(errand: &Errand) -> Result<Reader, Head> {
    let confining = |error: io::Error| {
        Head::Refusal(
            Obstacle::Failure,
            format!(
                "the process that answers questions cannot be confined: {error}. Fix: let the daemon call setrlimit, prlimit64 and \
                 seccomp (SystemCallFilter= of its unit)"
            ),
        )
    };
    // Where memory runs out all the same, this process ends and not the daemon. Raising the figure needs no privilege.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    let seconds = errand.limits.time.as_secs().saturating_add(MORE_SECONDS);
    limit_cpu_seconds(seconds)
        .and_then(|()| limit_descriptors(DESCRIPTORS_MAX))
        .and_then(|()| forbid_tracing())
        .map_err(|errno| confining(errno.into()))?;

    // SQLite opens its log and its index now, the latter for writing: readers keep their marks there, and the first one after a crash
    // makes it anew.
    let reader =
        Reader::open_without_files(&errand.folder).map_err(|error| refusal(&error, errand))?;
    forbid_growing_files().map_err(|errno| confining(errno.into()))?;
    limit_more_memory(errand.memory_bytes_max).map_err(confining)?;
    give_up_files(&errand.folder).map_err(confining)?;
    allow_only(&[Calls::RUN, Calls::READ_FILES], Otherwise::Refuse)
        .map_err(|errno| confining(errno.into()))?;
    Ok(reader)
}

/// Leaves this process only files below the folder, to read: sealed segments are opened as a statement comes to them. On a kernel
/// without Landlock it can still open what the daemon's user may read, and write nothing.
fn give_up_files(folder: &Path) -> io::Result<()> {
    // The superuser without capabilities reads its own files, as everybody does.
    let is_own = fs::metadata(folder)?.uid() == effective_uid();
    let kept = if is_own { 0 } else { capability_set(&[CAP_DAC_READ_SEARCH]) };
    keep_capabilities(kept)?;
    if landlock::is_there() { landlock::read_only_below(folder) } else { Ok(()) }
}

fn answer(reader: &Reader, errand: &Errand) -> Result<Vec<u8>, Head> {
    let answer = reader.ask_with(errand.clearance, &errand.statement, errand.limits);
    let answer = answer.map_err(|error| refusal(&error, errand))?;
    let named = errand.named.as_deref().and_then(Named::find);
    Ok(format!("{}\n", as_json(&with_units(answer, named))).into_bytes())
}

fn refusal(error: &Error, errand: &Errand) -> Head {
    let obstacle = match error {
        Error::Statement(_) | Error::Refused(_) => Obstacle::Statement,
        Error::NotForAnyone(Audience::Known) => Obstacle::Contents,
        Error::NotForAnyone(_) => Obstacle::Sockets,
        Error::Timeout { .. } => {
            return Head::Refusal(Obstacle::Time, too_long(errand.limits.time));
        }
        Error::OutOfMemory => {
            return Head::Refusal(Obstacle::Memory, too_much(errand.memory_bytes_max));
        }
        Error::NoStore(_) => Obstacle::NoStore,
        _ => Obstacle::Failure,
    };
    let text = match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    Head::Refusal(obstacle, text)
}

/// The sentence for a statement that took too long.
pub(crate) fn too_long(time: Duration) -> String {
    format!(
        "stopped after {} s, the limit of a question here. Fix: ask for less of the time (since=, until=) or for fewer rows; on this \
         machine `weir query --timeout` has a limit of its own",
        time.as_secs_f64()
    )
}

/// The sentence for a statement that needed too much memory.
pub(crate) fn too_much(memory_bytes_max: u64) -> String {
    format!(
        "it needed more than {} MiB, the limit of a question here. Fix: ask for less of the time (since=, until=) or for fewer rows; \
         on this machine `weir query` has no such limit",
        memory_bytes_max >> 20
    )
}
