//! Logs when file targets repaired or set aside files that a killed process or a power failure had left torn.

use ledger::{Event, HopKind, Snapshot};
use std::collections::BTreeMap;

/// Follows the file targets.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Files repaired and set aside as of the last look, by listener and target.
    seen: BTreeMap<(String, String), [u64; 2]>,
}

impl Files {
    /// Log lines for the time since the last look. There are few, because both happen only when a file is opened.
    pub(crate) fn look(&mut self, snapshot: &Snapshot) -> Vec<String> {
        let mut lines = Vec::new();
        for hop in snapshot.hops.iter().filter(|hop| hop.hop == HopKind::Target) {
            let now = [Event::FileTailsMended, Event::FilesSetAside].map(|event| hop.event(event));
            let name = hop.target.clone().unwrap_or_default();
            let key = (hop.origin.clone(), name.clone());

            // A target that was removed and added again counts from 0.
            let before = self.seen.insert(key, now).unwrap_or_default();

            if now[0] > before[0] {
                lines.push(format!(
                    "target {name}: its file ended in a torn record, as a killed process or a power failure leaves it; \
                     the torn part was cut off (lines: ended with a line feed), what is whole is kept"
                ));
            }
            if now[1] > before[1] {
                lines.push(format!(
                    "target {name}: its file could not be continued and has another name now (.1 with rotate_size, \
                     .aside-N without); a new one was begun. It is too long to be checked, or of another format"
                ));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Amount, HopBuilder};

    fn target(mended: u64, set_aside: u64) -> Snapshot {
        let nothing = Amount::default();
        let hop = HopBuilder::new(HopKind::Target, "in", Some("copy"), nothing)
            .event(Event::FileTailsMended, mended)
            .event(Event::FilesSetAside, set_aside)
            .finish(nothing);
        Snapshot { hops: vec![hop], ..Snapshot::default() }
    }

    #[test]
    fn each_is_said_once() {
        let mut files = Files::default();
        let mut said = |mended, set_aside| files.look(&target(mended, set_aside)).len();
        assert_eq!((said(0, 0), said(1, 0), said(1, 0), said(1, 1)), (0, 1, 0, 1));
        assert_eq!((said(0, 0), said(1, 1), said(1, 1)), (0, 2, 0));
    }
}
