//! `[[listener.target]]`: where a listener's datagrams go.

mod file;
mod udp;
mod weir;

pub use file::FileTarget;
pub use udp::{PreserveSource, UdpTarget};
pub use weir::{BitRate, WeirTarget};

use crate::address::TargetAddress;
use crate::document::Table;
use crate::form::{Choice, Kind, PREFIXES, per_sec, whole};
use crate::host::{self, Finding, Severity};
use crate::keys::{Key, Section, Values, keys};
use crate::listener::{Listen, ListenerConfig, ReadListener, who_hears};
use crate::mistyped;
use crate::name::{NAME, name_of};
use crate::paths::is_same_file;
use crate::reader::{Placed, Reader, Report, repeated};
use relay::{Prefix, Sample, SampleBy, TargetOptions};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use sys::socket::SEND_BUFFER_BYTES;

pub(crate) const SECTION: Section = Section {
    path: "listener.target",
    header: "[[listener.target]]",
    tables: &[TargetConfig::TABLE, UdpTarget::TABLE, FileTarget::TABLE, WeirTarget::TABLE],
    subsections: &[],
};

keys! {
    /// A target.
    pub struct TargetConfig in "listener.target" {
        /// Name in the ledger and in metrics. No two targets of a listener share one.
        name => name: String = NAME, derived("the text of `to`", name_of(&to));
        /// Where the datagrams go. A UDP address may be a broadcast address or a multicast group. A file
        /// belongs to one target alone; when another program moves or removes it, a new one is begun. `stdout:` (or `-`) is standard output, in the
        /// format that a file has; the daemon ends when nobody reads it any more. `weir:` is another Weir, by a link that repairs what is lost
        /// on the way. `null:` counts and forgets.
        to => to: Target = TO, chosen();
        /// The target takes datagrams of these sources only; the others are counted as filtered.
        only_sources => only_sources: Vec<Prefix> = PREFIXES, empty("all sources");
        /// The target takes one datagram in N of what `only_sources` lets through.
        sample => sample_one_in: Option<NonZeroU32> = whole(1, u32::MAX as u64), unset("every datagram");
        /// What chooses them: chance, or a hash of the source address, so that one source in N passes
        /// with all its datagrams. Needs `sample`.
        sample_by => sample_by: SampleBy =
            Choice(&[("random", SampleBy::Random), ("source", SampleBy::Source)]),
            default(SampleBy::Random)
            where |target| target.sample_one_in.is_some(),
            "there is nothing to sample. Fix: add sample = 10 for one in ten";
        /// The most datagrams a second that the target takes, after the filter and the sample. Bursts of a
        /// tenth of a second's worth pass.
        rate_limit => rate_limit_per_sec: Option<NonZeroU32> = per_sec(1, u32::MAX as u64), unset("no limit");
    }
}

/// Where a target's datagrams go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A UDP address: unicast, multicast or broadcast.
    Udp(UdpTarget),
    /// The unix datagram socket at this path.
    Unix(PathBuf),
    /// A file, or standard output.
    File(FileTarget),
    /// Another Weir, over a repaired link.
    Weir(WeirTarget),
    /// Nowhere.
    Null,
}

const TO: Kind<Target> = Kind {
    form: || {
        "`udp://HOST:PORT`, `HOST:PORT`, `unix:/path`, `file:/path`, `stdout:`, `weir://HOST:PORT` or `null:`"
            .to_owned()
    },
    read: |slot| match slot
        .parse(|text| text.parse().map_err(|error| mistyped::target_or_sink(text, error)))?
    {
        TargetAddress::Udp(addr) => UdpTarget::read(slot.reader, addr).map(Target::Udp),
        TargetAddress::Unix(path) => Some(Target::Unix(path)),
        TargetAddress::File(path) => FileTarget::read(slot.reader, Some(path)).map(Target::File),
        TargetAddress::Stdout => FileTarget::read(slot.reader, None).map(Target::File),
        TargetAddress::Weir(addr) => WeirTarget::read(slot.reader, addr).map(Target::Weir),
        TargetAddress::Null => Some(Target::Null),
    },
};

impl Target {
    /// Most memory of the kernel's send buffers for it, in bytes.
    pub(crate) fn kernel_send_bytes(&self) -> u64 {
        match self {
            Target::Udp(udp) => {
                let one = udp.send_buffer_bytes.unwrap_or(SEND_BUFFER_BYTES);
                one as u64 * udp.sockets_max() as u64
            }
            // The default of net.core.wmem_default.
            Target::Unix(_) => 212_992,
            Target::Weir(_) => SEND_BUFFER_BYTES as u64,
            Target::File(_) | Target::Null => 0,
        }
    }

    fn values(&self) -> Values {
        match self {
            Target::Udp(udp) => udp.values(),
            Target::File(file) => file.values(),
            Target::Weir(weir) => weir.values(),
            Target::Unix(_) | Target::Null => Vec::new(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Udp(udp) => write!(f, "udp://{}", udp.addr),
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
            Target::File(FileTarget { path: None, .. }) => f.write_str("stdout:"),
            Target::File(FileTarget { path: Some(path), .. }) => {
                write!(f, "file:{}", path.display())
            }
            Target::Weir(weir) => write!(f, "weir://{}", weir.addr),
            Target::Null => f.write_str("null:"),
        }
    }
}

/// Whether a process listens on a unix socket.
fn unix_receiver(what: &str, path: &Path) -> Finding {
    let shown = path.display();
    match sys::socket::connect_unix(path) {
        Ok(_) => Finding::new(Severity::Ok, what, format!("somebody listens at {shown}")),
        Err(error) => {
            Finding::new(Severity::Warning, what, format!("nobody listens at {shown}: {error}"))
                .because("everything for it is dropped until its owner is there")
                .fixed_by(format!("ss -xl src {shown}"))
        }
    }
}

impl TargetConfig {
    /// The settings of a UDP target.
    pub fn udp(&self) -> Option<&UdpTarget> {
        match &self.to {
            Target::Udp(udp) => Some(udp),
            _ => None,
        }
    }

    /// Checks what it needs of this host. Its datagrams must not go to any of `listen_addrs`.
    pub(crate) fn examine(&self, listen_addrs: &[SocketAddr], findings: &mut Vec<Finding>) {
        let what = format!("target {}", self.name);
        match &self.to {
            Target::Udp(udp) => udp.examine(&what, listen_addrs, findings),
            Target::Unix(path) => findings.push(unix_receiver(&what, path)),
            Target::File(file) => {
                findings.extend(file.path.iter().map(|path| host::file(&what, path)));
            }
            Target::Weir(weir) => match host::resolved(&what, &weir.addr, Severity::Warning) {
                Ok(_) => {}
                Err(finding) => findings.push(finding),
            },
            Target::Null => {}
        }
    }

    /// The relay's options for this target.
    pub fn target_options(&self) -> TargetOptions {
        TargetOptions {
            name: self.name.clone(),
            only_sources: self.only_sources.clone(),
            sample: self.sample_one_in.map(|one_in| Sample { one_in, by: self.sample_by }),
            rate_limit_per_sec: self.rate_limit_per_sec,
        }
    }
}

/// Reads the targets of the listener at `place`.
pub(crate) fn read_all(
    report: &Report,
    listener: &Table,
    place: &str,
) -> Vec<Placed<TargetConfig>> {
    let tables = repeated(report, listener, "target", &SECTION).into_iter().enumerate();
    tables.filter_map(|(at, table)| read(report, table, &format!("{place}.target[{at}]"))).collect()
}

/// Reads a target.
pub(crate) fn read(report: &Report, table: &Table, place: &str) -> Option<Placed<TargetConfig>> {
    let reader = Reader::open(report, table, &SECTION, place);
    let target = TargetConfig::read(&reader)?;

    reader.refuse_others(&target.to, |_| None);
    if let Target::Udp(udp) = &target.to {
        udp.check(&reader);
    }
    Some(Placed { place: place.to_owned(), thing: target })
}

/// Checks targets against each other and against the listeners.
pub(crate) fn check(report: &Report, all: &[ReadListener]) {
    let listeners = all.iter().map(|one| &one.listener.thing);
    for ReadListener { listener, targets } in all {
        for (at, target) in targets.iter().enumerate() {
            name_is_taken(report, &listener.thing.name, &targets[..at], target);
            comes_back(report, listeners.clone(), &listener.thing, target);
            udp::port_is_taken(report, listeners.clone(), target);
            has_no_sources(report, &listener.thing, target);
        }
    }
}

fn name_is_taken(
    report: &Report,
    listener: &str,
    earlier: &[Placed<TargetConfig>],
    target: &Placed<TargetConfig>,
) {
    const NAMES: (&Key, &Key) = (&TargetConfig::name, &TargetConfig::to);

    let name = &target.thing.name;
    if earlier.iter().any(|earlier| earlier.thing.name == *name) {
        let message = format!(
            "\"{name}\" is the name of another target of listener {listener} too. Fix: give each its own"
        );
        target.name_error(report, NAMES, &message);
    }
}

/// `from` is the listener that the target belongs to.
fn comes_back<'a>(
    report: &Report,
    mut listeners: impl Iterator<Item = &'a ListenerConfig> + Clone,
    from: &ListenerConfig,
    target: &Placed<TargetConfig>,
) {
    let owner = match &target.thing.to {
        Target::Udp(udp) => who_hears(listeners, &udp.addr),
        Target::Weir(weir) => who_hears(listeners, &weir.addr),
        Target::Unix(path) => {
            listeners.find(|one| one.unix_path().is_some_and(|on| is_same_file(on, path)))
        }
        Target::File(_) | Target::Null => None,
    };
    let Some(owner) = owner else { return };

    let (to, listen) = (target.thing.to.to_string(), owner.listen.to_string());
    let receiver = match (owner.name == listen, to == listen) {
        (true, true) => "the relay itself".to_owned(),
        (true, false) => format!("listener {listen}"),
        (false, true) => format!("listener {}", owner.name),
        (false, false) => format!("listener {} ({listen})", owner.name),
    };
    let follows = if owner.listen == from.listen {
        "its datagrams would come back for ever. Fix: send them elsewhere"
    } else {
        "its datagrams would come back to this relay. Fix: send them where they are to go in the end"
    };
    let message = format!("{to} is where {receiver} receives: {follows}");
    target.error(report, &TargetConfig::to, message);
}

/// Refuses options that need source addresses on a listener without any.
fn has_no_sources(report: &Report, listener: &ListenerConfig, placed: &Placed<TargetConfig>) {
    let (Listen::Unix(_) | Listen::Stdin) = listener.listen else { return };
    let target = &placed.thing;
    let by_source = target.sample_one_in.is_some() && target.sample_by == SampleBy::Source;

    let used = [
        (&TargetConfig::only_sources, !target.only_sources.is_empty()),
        (&TargetConfig::sample_by, by_source),
        (&UdpTarget::preserve_source, target.udp().is_some_and(UdpTarget::keeps_source)),
        (&UdpTarget::header, target.udp().is_some_and(|udp| udp.header.is_some())),
    ];

    for (key, _) in used.into_iter().filter(|(_, is_used)| *is_used) {
        let listen = &listener.listen;
        let message = format!("datagrams of {listen} have no source address. Fix: remove the key");
        placed.error(report, key, message);
    }
}
