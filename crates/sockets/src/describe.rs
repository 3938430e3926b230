//! Turns the kernel's messages into records, for polls, closes, answers, the command line and files alike.

use crate::assemble::{fill, fill_close, own_accecn_layout, unknown_attributes};
use crate::attribution::{Cgroup, Process};
use crate::namespaces::Known;
use record::{RecordKind, SocketRecord};
use wire::inet_diag::SocketMessage;

/// What is known about a socket besides the kernel's message. Unknown parts are `None`.
#[derive(Clone, Copy, Default)]
pub struct Whose<'a> {
    /// Whether the message is from this machine's kernel and not from a file. Only then are fields read whose layout depends on
    /// the release.
    pub is_of_this_host: bool,
    /// Inode of its network namespace.
    pub netns_inode: Option<u64>,
    /// The kernel's cookie of the namespace.
    pub netns_cookie: Option<u64>,
    /// Name or path of the namespace.
    pub netns_name: Option<&'a str>,
    /// Id of the namespace as seen from ours.
    pub netns_id: Option<u32>,
    /// The cgroup of the process that created the socket.
    pub cgroup: Option<&'a Cgroup>,
    /// A process that holds the socket.
    pub process: Option<Process<'a>>,
}

impl<'a> Whose<'a> {
    /// What the collector knows about a namespace.
    pub(crate) fn of(namespace: Option<&'a Known>, cgroup: Option<&'a Cgroup>) -> Whose<'a> {
        Whose {
            is_of_this_host: true,
            netns_inode: namespace.map(|known| known.id.inode),
            netns_cookie: namespace.and_then(|known| known.cookie),
            netns_name: namespace.and_then(|known| known.name.as_deref()),
            netns_id: namespace
                .and_then(|known| known.nsid)
                .and_then(|nsid| u32::try_from(nsid).ok()),
            cgroup,
            process: None,
        }
    }
}

/// Fills a record with the content of a message about a socket, and with its owner. A record of kind `close` describes a close
/// event, whose cleared fields are left out; any other kind describes a row of a dump. `scratch` holds the attributes without a
/// name here.
pub fn describe<'a>(
    record: &mut SocketRecord<'a>,
    message: &SocketMessage<'a>,
    whose: &Whose<'a>,
    scratch: &'a mut Vec<u8>,
) {
    // The kernel that wrote a file is unknown.
    let accecn = if whose.is_of_this_host { own_accecn_layout() } else { None };
    match record.record_kind {
        Some(RecordKind::CLOSE) => fill_close(record, message, accecn),
        _ => fill(record, message, accecn),
    }
    record.netns_inode = whose.netns_inode;
    record.netns_cookie = whose.netns_cookie;
    record.netns_name = whose.netns_name;
    record.netns_id = whose.netns_id;
    if let Some(cgroup) = whose.cgroup {
        record.cgroup_path = Some(cgroup.path());
        record.pod_uid = cgroup.pod_uid();
        record.container_id = cgroup.container_id();
        record.systemd_unit = cgroup.systemd_unit();
    }
    if let Some(process) = whose.process {
        record.process_id = Some(process.pid);
        record.process_name = Some(process.name).filter(|name| !name.is_empty());
    }
    scratch.clear();
    unknown_attributes(message, scratch);
    record.unknown_attributes = Some(scratch.as_slice()).filter(|raw| !raw.is_empty());
}
