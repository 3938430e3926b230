//! `--write`: the kernel's messages as a file, without the keys in them.

use super::args::{Args, tell};
use super::assemble::Take;
use super::columns::View;
use crate::exit::Failure;
use crate::refused;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use sys::clock::realtime_ns;
use text::plural;
use wire::capture::{Format, Writer};

/// A capture being written.
pub(super) struct CaptureFile {
    path: PathBuf,
    file: Box<dyn Write>,
    writer: Writer,
    scratch: Vec<u8>,
    written: u64,
    failure: Option<io::Error>,
}

impl CaptureFile {
    /// Creates the file, or overwrites it.
    ///
    /// # Errors
    /// The file cannot be created, or it is the terminal.
    pub(super) fn create(args: &Args, path: &Path) -> anyhow::Result<CaptureFile> {
        let file: Box<dyn Write> = if path == Path::new("-") {
            if io::stdout().is_terminal() {
                return Err(Failure::Usage.error(
                    "a capture is not text, and this is a terminal: name a file, or send it to a program",
                ));
            }
            Box::new(io::stdout().lock())
        } else {
            let created = File::create(path);
            Box::new(created.map_err(|error| refused::unwritable("cannot create", path, &error))?)
        };

        let mut scratch = Vec::new();
        let writer = Writer::begin(args.write_format, &mut scratch);
        let file: Box<dyn Write> = Box::new(BufWriter::with_capacity(256 * 1024, file));
        Ok(CaptureFile { path: path.to_owned(), file, writer, scratch, written: 0, failure: None })
    }

    /// Ends the file, and reports what is in it.
    ///
    /// # Errors
    /// A write failed.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.writer.end(realtime_ns(), &mut self.scratch);
        self.finish_without_end()
    }

    /// Ends a file that is incomplete: without the end of the dump, which a reader notices and reports.
    ///
    /// # Errors
    /// A write failed.
    pub(super) fn finish_without_end(mut self) -> anyhow::Result<()> {
        self.write();
        if self.failure.is_none() {
            self.failure = self.file.flush().err();
        }

        let shown = self.path.display();
        match self.failure {
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Some(error) => Err(anyhow::Error::new(error).context(format!("cannot write {shown}"))),
            None => {
                tell(format_args!(
                    "{} written to {shown}",
                    plural(self.written, "socket", "sockets")
                ));
                Ok(())
            }
        }
    }

    fn write(&mut self) {
        if self.failure.is_none() {
            self.failure = self.file.write_all(&self.scratch).err();
        }
        self.scratch.clear();
    }
}

impl Take for CaptureFile {
    fn take(&mut self, view: &View<'_>, raw: &[u8]) {
        let time_unix_ns = view.record.time_unix_ns.unwrap_or_else(realtime_ns);
        self.writer.message(time_unix_ns, raw, &mut self.scratch);
        self.written += 1;
        self.write();
    }
}

/// Parses the name of a format.
pub(super) fn parse_format(text: &str) -> Result<Format, String> {
    match text {
        "ss" => Ok(Format::Ss),
        "pcap" => Ok(Format::Pcap),
        _ => Err("it is neither ss nor pcap. Fix: write one of them".to_owned()),
    }
}
