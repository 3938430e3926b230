//! `weir man`: the manual, one page per command.

use crate::command::version::VERSION;
use crate::exit::{self, Failure};
use crate::{Cli, refused};
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print the manual page of a command, or write all pages into a folder
///
/// To read one: weir man config check | man -l -
/// To install all: weir man --out /usr/local/share/man/man1
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The command, such as `config check`; without one, the page is that of weir itself
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    words: Vec<String>,
    /// Write the pages of all commands into this folder: weir.1, weir-config-check.1 and so on
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// One page of the manual.
struct Page {
    /// Such as `weir-config-check`.
    name: String,
    /// The text, as roff.
    text: Vec<u8>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command();
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages)?;

    if let Some(folder) = &args.out {
        write_all(&pages, folder)?;
        return Ok(ExitCode::SUCCESS);
    }

    let name = ["weir"].into_iter().chain(args.words.iter().map(String::as_str));
    let name = name.collect::<Vec<_>>().join("-");
    let page = pages.into_iter().find(|page| page.name == name).ok_or_else(|| {
        let words = args.words.join(" ");
        Failure::Usage.error(format!(
            "there is no command `weir {words}`. Fix: `weir help` lists the commands"
        ))
    })?;
    exit::print_and_end(&String::from_utf8(page.text)?, ExitCode::SUCCESS)
}

fn write_all(pages: &[Page], folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .map_err(|error| refused::unwritable("cannot make the folder", folder, &error))?;
    for page in pages {
        let path = folder.join(format!("{}.1", page.name));
        fs::write(&path, &page.text)
            .map_err(|error| refused::unwritable("cannot write", &path, &error))?;
    }
    Ok(())
}

/// Adds the page of a command and of its visible subcommands.
fn add_pages(command: &Command, pages: &mut Vec<Page>) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut text = Vec::new();
    let man = Man::new(command.clone()).source(format!("weir {VERSION}")).manual("Weir");
    man.render(&mut text).and_then(|()| exit_status(&mut text)).context("cannot write a page")?;
    pages.push(Page { name, text });

    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add_pages(below, pages)?;
    }
    Ok(())
}

/// The section on exit codes, which all commands share.
fn exit_status(text: &mut Vec<u8>) -> io::Result<()> {
    writeln!(text, ".SH \"EXIT STATUS\"")?;
    for (code, meaning) in exit::codes() {
        writeln!(text, ".TP\n\\fB{code}\\fR\n{}", meaning.replace('-', "\\-"))?;
    }
    Ok(())
}
