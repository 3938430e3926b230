//! A router (bird) and a BGP speaker, each in a separate network namespace, peered, with their logs.

use mitigate::speaker::{ExaBgp, GoBgp};
use mitigate::{Control, Entry, Options, Policy, Speaker};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
pub(crate) use testkit::BgpProgram as Program;
use testkit::{Routers, find_tool, need_tool, wait_for};

pub(crate) struct Rig {
    program: Program,
    routers: Routers,
    pub(crate) entries: Arc<Mutex<Vec<Entry>>>,
}

/// `None`, with a message, if this machine lacks something.
pub(crate) fn rig(program: Program) -> Option<Rig> {
    if !need_tool("socat") {
        return None;
    }
    let socat = find_tool("socat").unwrap();
    let bridge = format!("{} STDIO UNIX-CONNECT:SOCKET,forever,interval=0.2", socat.display());
    let routers = Routers::start(program, &bridge)?;
    Some(Rig { program, routers, entries: Arc::default() })
}

impl Deref for Rig {
    type Target = Routers;

    fn deref(&self) -> &Routers {
        &self.routers
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Routers {
        &mut self.routers
    }
}

impl Rig {
    /// Starts a control thread, and waits until speaker and router see each other.
    pub(crate) fn control(&self, policy: Policy) -> Control {
        let control = self.control_at_once(policy);
        self.wait_for_session();
        control
    }

    fn control_at_once(&self, policy: Policy) -> Control {
        let entries = Arc::clone(&self.entries);
        let observer = Box::new(move |entry: &Entry| entries.lock().unwrap().push(entry.clone()));
        let speaker = || -> Box<dyn Speaker> {
            match self.program {
                Program::ExaBgp => Box::new(ExaBgp::listen(self.socket().as_ref()).unwrap()),
                _ => Box::new(GoBgp::new("127.0.0.1:50051").unwrap()),
            }
        };
        // Threads that it starts stay in the namespace.
        self.ours.inside(|| {
            let (policies, speaker) = (vec![policy], speaker());
            Control::start(Options { policies, speaker, observer, journal: None }).unwrap()
        })
    }

    pub(crate) fn wait_for_session(&self) {
        let is_connected = |entry: &Entry| matches!(entry, Entry::Connected { .. });
        wait_for("the speaker's interface", || {
            self.entries.lock().unwrap().iter().any(is_connected).then_some(())
        });
        self.routers.wait_for_session();
    }

    pub(crate) fn log(&self) -> String {
        self.entries.lock().unwrap().iter().map(|entry| format!("{}\n", entry.to_json())).collect()
    }
}
