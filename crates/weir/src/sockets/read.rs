//! `--read`: what a capture holds, instead of the running kernel.

use super::args::{Args, tell};
use super::assemble::{Assembler, Place, Polls, Take};
use super::live::plural;
use crate::exit::Failure;
use ::sockets::filter::Filter;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Instant;
use wire::capture::{self, Captured};
use wire::inet_diag::{decode, is_socket};

/// Hands on every socket in a file.
///
/// # Errors
/// The file cannot be read, or is no capture. Broken parts of a capture are counted and told.
pub(super) fn read(
    args: &Args,
    filter: &Filter,
    path: &Path,
    assembler: &mut Assembler,
    take: &mut dyn Take,
) -> anyhow::Result<()> {
    let shown = path.display();
    let bytes = content(path)
        .map_err(|error| Failure::InputMissing.error(format!("cannot read {shown}: {error}")))?;
    let mut reader = capture::read(&bytes).map_err(|error| {
        Failure::InputMissing.error(format!("{shown} is no capture of sockets: {error}"))
    })?;
    assembler.begin_poll();
    let states = filter.states().unwrap_or(args.states());
    let mut broken: BTreeMap<&str, u64> = BTreeMap::new();
    for captured in &mut reader {
        let decoded = captured.and_then(|Captured { message, time_unix_ns }| {
            if !is_socket(&message) {
                return Ok(None);
            }
            decode(message.body).map(|socket| Some((socket, message.raw, time_unix_ns)))
        });
        match decoded {
            Ok(Some((socket, raw, time_unix_ns))) if states.contains(socket.state) => {
                let place = Place {
                    found: None,
                    is_own: false,
                    rest: filter.expression(),
                    time_unix_ns,
                    now: Instant::now(),
                };
                assembler.socket(&socket, raw, &place, take);
            }
            Ok(Some(_)) => assembler.counts.filtered += 1,
            // A request, or the end of a dump.
            Ok(None) => {}
            Err(error) => *broken.entry(error.class()).or_default() += 1,
        }
    }
    tell_parts(path, &broken, reader.skipped_packets());
    Ok(())
}

/// An assembler for a file: nothing of this host is joined with it.
pub(super) fn assembler(filter: &Filter) -> Assembler {
    Assembler::new(filter, false, Polls::One)
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    fs::read(path)
}

fn tell_parts(path: &Path, broken: &BTreeMap<&str, u64>, skipped_packets: u64) {
    let shown = path.display();
    if !broken.is_empty() {
        let total: u64 = broken.values().sum();
        let classes: Vec<_> =
            broken.iter().map(|(class, count)| format!("{class} {count}")).collect();
        tell(format_args!(
            "{shown}: {} could not be decoded ({}); what they say is missing",
            plural(total, "part", "parts"),
            classes.join(", ")
        ));
    }
    if skipped_packets > 0 {
        let packets = plural(skipped_packets, "packet is", "packets are");
        tell(format_args!("{shown}: {packets} of another protocol"));
    }
}
