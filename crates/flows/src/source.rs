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

/// An end of a frame's way through an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The interface with this index.
    Port(u32),
    /// None: the agent made the frame, kept it, or threw it away.
    Inside,
    /// The agent does not know, or names no single interface.
    Unknown,
}

impl End {
    /// The index, if it is an interface.
    pub(crate) const fn if_index(self) -> Option<u32> {
        match self {
            End::Port(index) => Some(index),
            End::Inside | End::Unknown => None,
        }
    }
}

/// A sample before its content is read: who numbered it, and what it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// Which frames it is one of.
    pub(crate) traffic: Traffic,
    /// What was sampled.
    pub(crate) source: Source,
    /// Where the frame came in.
    pub(crate) input: End,
    /// Where it left.
    pub(crate) output: End,
    /// Its number, and what it stands for.
    pub(crate) reading: Reading,
}

impl Head {
    /// The side of its interface on which the frame was sampled: the end that is its source.
    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        self.source.if_index().map_or(Direction::Any, |index| self.direction_at(index))
    }

    /// The other end of the way of a frame that was sampled on this side.
    #[inline]
    pub(crate) fn other_end(&self, side: Direction) -> End {
        match side {
            Direction::Ingress => self.output,
            Direction::Egress => self.input,
            Direction::Any => End::Unknown,
        }
    }

    /// The side of a source that is known as an interface of another index.
    #[inline]
    pub(crate) fn direction_at(&self, if_index: u32) -> Direction {
        match (self.input, self.output) {
            (End::Port(index), _) if index == if_index => Direction::Ingress,
            (_, End::Port(index)) if index == if_index => Direction::Egress,
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
