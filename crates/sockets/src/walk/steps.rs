//! A walk done one datagram at a time, by a caller that has other work in between.

use super::{Ask, Progress, Visitor, WalkError, Walked, Walker};
use sys::Errno;
use sys::netlink::Socket;
use wire::inet_diag::{Family, Kind};

/// Progress of such a walk. The kernel keeps its position for as long as the socket is open.
#[derive(Debug)]
pub(crate) struct Steps {
    kind: Kind,
    walked: Walked,
}

impl Walker {
    /// Starts a walk that [`Self::step`] continues. A walker does only one walk at a time.
    ///
    /// # Errors
    /// The request cannot be sent.
    pub(crate) fn begin(&mut self, socket: &Socket, ask: &Ask<'_>) -> Result<Steps, WalkError> {
        let mut steps = Steps { kind: Kind::Both, walked: Walked::default() };
        self.request(socket, steps.kind, ask, &mut steps.walked)?;
        Ok(steps)
    }

    /// Reads the next datagram. The request for both families at once falls back to one per family, as in [`Self::walk`].
    ///
    /// # Errors
    /// See [`WalkError`]. What was visited before remains visited.
    pub(crate) fn step(
        &mut self,
        steps: &mut Steps,
        socket: &Socket,
        ask: &Ask<'_>,
        visitor: &mut impl Visitor,
    ) -> Result<Progress, WalkError> {
        let next = match (self.datagram(socket, visitor, &mut steps.walked), steps.kind) {
            (
                Err(WalkError::Refused(Errno::INVAL | Errno::OPNOTSUPP) | WalkError::NoDiag(_)),
                Kind::Both,
            ) if steps.walked.datagrams <= 1 => Family::Inet,
            (Ok(Progress::Done), Kind::Family(Family::Inet)) => Family::Inet6,
            (result, _) => return result,
        };

        steps.kind = Kind::Family(next);
        self.request(socket, steps.kind, ask, &mut steps.walked)?;
        Ok(Progress::GoesOn)
    }
}
