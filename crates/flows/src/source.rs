//! Where samples come from, whatever protocol brings them.

use crate::definition::{Direction, Traffic};
use crate::sampler::Reading;
use std::fmt;

/// What an agent samples: an interface, or something else that it has a number for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Source {
    /// The kind of source that `index` refers to: 0 is an interface.
    pub class: u32,
    /// Index of the source among those of its kind.
    pub index: u32,
}

impl Source {
    /// The interface with this index (`ifIndex`).
    pub const fn interface(index: u32) -> Source {
        Source { class: 0, index }
    }

    /// The index, if it is an interface.
    pub const fn if_index(self) -> Option<u32> {
        if self.class == 0 { Some(self.index) } else { None }
    }
}

/// The kind of a structure in a protocol of many vendors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Structure {
    /// Whose numbers `number` is one of. 0 for those of the protocol itself.
    pub enterprise: u32,
    /// Its number.
    pub number: u32,
}

impl fmt::Display for Structure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.enterprise, self.number)
    }
}

/// A sample before its content is read: who numbered it, and what it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// Which frames it is one of.
    pub(crate) traffic: Traffic,
    /// What was sampled.
    pub(crate) source: Source,
    /// The interface by which the frame came in, if it is one.
    pub(crate) input: Option<u32>,
    /// The interface by which it left, if it is one.
    pub(crate) output: Option<u32>,
    /// Its number, and what it stands for.
    pub(crate) reading: Reading,
}

impl Head {
    /// The side of its interface on which the frame was sampled: the end that is its source.
    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        self.source.if_index().map_or(Direction::Any, |index| self.direction_at(index))
    }

    /// The same for a source that is known as an interface of another index.
    #[inline]
    pub(crate) fn direction_at(&self, if_index: u32) -> Direction {
        match (self.input, self.output) {
            (Some(index), _) if index == if_index => Direction::Ingress,
            (_, Some(index)) if index == if_index => Direction::Egress,
            _ => Direction::Any,
        }
    }
}

/// How the length of a frame agrees with that of the packet in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    /// Nothing speaks against it.
    Plausible,
    /// More of the frame is said to be than was sampled: the agent states lengths of frames.
    Stated,
    /// The packet is longer than the frame.
    Short {
        /// The frame's length, by that of the packet.
        frame_bytes: u32,
    },
}
