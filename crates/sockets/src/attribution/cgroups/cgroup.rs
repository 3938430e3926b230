use crate::attribution::cgroup_path::{self, MAX_PATH_BYTES, Runtime};
use std::fmt::Write;

/// A cgroup, and what its path says. Names are unescaped, and their length is limited by the path's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    id: u64,
    /// The path, followed by the names whose unescaped form is not part of it.
    text: Box<str>,
    path: Span,
    pod_uid: Option<Span>,
    container_id: Option<Span>,
    container_runtime: Option<Runtime>,
    systemd_unit: Option<Span>,
    systemd_user_unit: Option<Span>,
    systemd_slice: Option<Span>,
    session: Option<Span>,
    owner_uid: Option<u32>,
}

/// A range of the text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u16,
    len: u16,
}

impl Cgroup {
    /// Parses the path. A path longer than [`MAX_PATH_BYTES`] is truncated, and nothing is derived from it.
    pub fn new(id: u64, path: &str) -> Cgroup {
        let said = cgroup_path::parse(path);
        let path = path.get(..path.floor_char_boundary(MAX_PATH_BYTES)).unwrap_or(path);

        // A name with escapes is appended without them; everything else is a range of the path.
        let mut text = path.to_owned();
        let mut append = |name: cgroup_path::Name<'_>| match name.as_plain() {
            Some(plain) => Span::within(path, plain),
            None => {
                let start = text.len();
                // Writing to a string cannot fail.
                let _ = write!(text, "{name}");
                Span::between(start, text.len())
            }
        };

        let pod_uid = said.pod_uid.and_then(&mut append);
        let container_id = said.container_id.and_then(&mut append);
        let within = |slice: Option<&str>| slice.and_then(|slice| Span::within(path, slice));

        Cgroup {
            id,
            path: Span::between(0, path.len()).unwrap_or(Span { start: 0, len: 0 }),
            pod_uid,
            container_id,
            container_runtime: said.container_runtime,
            systemd_unit: within(said.systemd_unit),
            systemd_user_unit: within(said.systemd_user_unit),
            systemd_slice: within(said.systemd_slice),
            session: within(said.session),
            owner_uid: said.owner_uid,
            text: text.into_boxed_str(),
        }
    }

    /// The kernel's id: the inode number of the directory.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Path from the root of the hierarchy, as far as this process's mounts reach, at most [`MAX_PATH_BYTES`] long. Bytes that
    /// are not UTF-8 are replaced; control characters are kept as they are.
    pub fn path(&self) -> &str {
        self.text(self.path)
    }

    /// Uid of the Kubernetes pod.
    pub fn pod_uid(&self) -> Option<&str> {
        self.pod_uid.map(|span| self.text(span))
    }

    /// Id or name of the innermost container.
    pub fn container_id(&self) -> Option<&str> {
        self.container_id.map(|span| self.text(span))
    }

    /// The runtime of that container.
    pub fn container_runtime(&self) -> Option<Runtime> {
        self.container_runtime
    }

    /// The systemd unit, escaped as `systemctl` shows it.
    pub fn systemd_unit(&self) -> Option<&str> {
        self.systemd_unit.map(|span| self.text(span))
    }

    /// Unit of the user's own manager.
    pub fn systemd_user_unit(&self) -> Option<&str> {
        self.systemd_user_unit.map(|span| self.text(span))
    }

    /// The deepest slice above the unit.
    pub fn systemd_slice(&self) -> Option<&str> {
        self.systemd_slice.map(|span| self.text(span))
    }

    /// Login session.
    pub fn session(&self) -> Option<&str> {
        self.session.map(|span| self.text(span))
    }

    /// Owner of the user slice.
    pub fn owner_uid(&self) -> Option<u32> {
        self.owner_uid
    }

    /// Heap memory of the cgroup, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.text.len()
    }

    fn text(&self, span: Span) -> &str {
        let start = usize::from(span.start);
        self.text.get(start..start + usize::from(span.len)).unwrap_or_default()
    }
}

impl Span {
    fn between(start: usize, end: usize) -> Option<Span> {
        Some(Span {
            start: u16::try_from(start).ok()?,
            len: u16::try_from(end.checked_sub(start)?).ok()?,
        })
    }

    /// The range of `slice` within `text`.
    fn within(text: &str, slice: &str) -> Option<Span> {
        // By address, without unsafe code. `None` for a slice that is not part of `text`.
        let start = slice.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        Span::between(start, start.checked_add(slice.len())?)
            .filter(|_| start + slice.len() <= text.len())
    }
}
