//! Lines that somebody else wrote, at a rate: each goes to every target, without check data.

use super::flow::Halt;
use super::options::SIZE_MAX_BYTES;
use super::schedule::Schedule;
use super::sender::Sender;
use super::{Error, Options, Progress, Rate, Report, report};
use crate::random;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::poll::{Interest, PollSet};

/// How long input is waited for before [`Halt`] is asked again.
const INPUT_WAIT: Duration = Duration::from_millis(100);

/// Sends each line of `input` without its line feed to every target, until it ends, the limit is reached or `stop` is set. A line
/// of more than 65,507 bytes is given up as `EMSGSIZE`, like any other that the kernel refuses. Sizes, payload and heartbeats mean nothing here.
///
/// # Errors
/// The options contradict each other, a socket cannot be opened, or the input cannot be read.
pub fn lines(
    options: &Options,
    input: impl Read + AsFd,
    stop: &AtomicBool,
    progress: &Progress,
) -> Result<Report, Error> {
    let options = &Options { flows: 1, senders: 1, heartbeat: None, ..options.clone() };
    if matches!(options.rate, Rate::BitsPerSec(_)) {
        return Err(Error::RateOfLines);
    }
    options.validate()?;

    let run = options.run.unwrap_or_else(random::fresh_run_id);
    let mut sender = Sender::open(options, run, 0)?;
    let start_ns = sys::clock::monotonic_ns();
    let mut input = BufReader::new(input);
    sender.run_lines(&mut input, start_ns, stop, progress).map_err(Error::Input)?;
    Ok(report::collect(options, run, sender.elapsed(), &[sender]))
}

impl Sender {
    fn run_lines(
        &mut self,
        input: &mut BufReader<impl Read + AsFd>,
        start_ns: u64,
        stop: &AtomicBool,
        progress: &Progress,
    ) -> io::Result<()> {
        let mut schedule = Schedule::new(&self.options, self.run, 0, start_ns);
        let end_ns = self.options.limit.duration.map(|time| start_ns + time.as_nanos() as u64);
        let halt = &Halt { stop, at_ns: end_ns };
        let mut line = Vec::new();
        (self.start_ns, self.end_ns) = (start_ns, start_ns);

        // A slot is taken before its line, so that a line which was read is sent.
        while let Some(slot) = schedule.peek().filter(|_| !halt.is_now()) {
            let now_ns = sys::clock::monotonic_ns();
            if slot.due_ns > now_ns {
                self.wait_until(slot.due_ns, now_ns);
                continue;
            }

            line.clear();
            if !next_line(input, &mut line, halt)? {
                break;
            }
            for flow in &mut self.flows {
                match flow.send_line(&line, halt) {
                    true => progress.sent_datagrams.fetch_add(1, Ordering::Relaxed),
                    false => progress.failed_datagrams.fetch_add(1, Ordering::Relaxed),
                };
            }
            schedule.advance();
            self.end_ns = sys::clock::monotonic_ns();
        }
        Ok(())
    }
}

/// Reads a line without its line feed. Of a line that no datagram holds, it keeps one byte more than a datagram may have, so that
/// memory is bounded whatever the input is. Returns whether there is one: not at the end of the input, and not if `halt` came first.
fn next_line(
    input: &mut BufReader<impl Read + AsFd>,
    line: &mut Vec<u8>,
    halt: &Halt<'_>,
) -> io::Result<bool> {
    loop {
        if input.buffer().is_empty() && !wait_for(input.get_ref(), halt) {
            return Ok(false);
        }
        let buffer = match input.fill_buf() {
            Ok([]) => return Ok(!line.is_empty()),
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        match buffer.iter().position(|&byte| byte == b'\n') {
            Some(at) => {
                extend(line, &buffer[..at]);
                input.consume(at + 1);
                return Ok(true);
            }
            None => {
                extend(line, buffer);
                let taken = buffer.len();
                input.consume(taken);
            }
        }
    }
}

fn extend(line: &mut Vec<u8>, bytes: &[u8]) {
    let room = (SIZE_MAX_BYTES + 1).saturating_sub(line.len());
    line.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

/// Waits until there is something to read, or the end; `false`: `halt` came first.
fn wait_for(input: &impl AsFd, halt: &Halt<'_>) -> bool {
    let mut set = PollSet::default();
    loop {
        if halt.is_now() {
            return false;
        }
        set.clear();
        set.add(input.as_fd(), Interest::Readable);
        // An error of poll(2) is a signal, after which `halt` is asked.
        if set.wait(INPUT_WAIT).is_ok_and(|ready| ready > 0) {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::thread;

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_a_datagram() {
        const LINE_BYTES: usize = 8 << 20;
        let (input, mut output) = io::pipe().unwrap();
        let writing = thread::spawn(move || {
            output.write_all(&vec![b'x'; LINE_BYTES]).unwrap();
            output.write_all(b"\nnext\n").unwrap();
        });
        let stop = AtomicBool::new(false);
        let halt = Halt { stop: &stop, at_ns: None };
        let (mut input, mut line) = (BufReader::new(input), Vec::new());
        assert!(next_line(&mut input, &mut line, &halt).unwrap());
        assert_eq!(line.len(), SIZE_MAX_BYTES + 1);
        assert!(line.capacity() < 4 * SIZE_MAX_BYTES, "{} bytes", line.capacity());
        line.clear();
        assert!(next_line(&mut input, &mut line, &halt).unwrap());
        assert_eq!(line, b"next");
        writing.join().unwrap();
    }
}
