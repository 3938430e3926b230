//! What an agent says against what it says elsewhere: which of the two is used is fixed here, and how often is counted.

/// Rows are `Name = "word", "what the agent does", "what is done about it";`.
macro_rules! discrepancies {
    ($($name:ident = $word:literal, $says:literal, $used:literal;)+) => {
        /// A way in which an agent contradicts itself.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Discrepancy { $(#[doc = $says] $name,)+ }

        impl Discrepancy {
            /// All of them, in the order of the documentation.
            pub const ALL: &'static [Discrepancy] = &[$(Discrepancy::$name,)+];

            /// Its word in JSON and in metrics.
            pub const fn word(self) -> &'static str {
                match self { $(Discrepancy::$name => $word,)+ }
            }

            /// What the agent does, as the predicate of a sentence.
            pub const fn says(self) -> &'static str {
                match self { $(Discrepancy::$name => $says,)+ }
            }

            /// What is used instead, as a sentence without its full stop.
            pub const fn used(self) -> &'static str {
                match self { $(Discrepancy::$name => $used,)+ }
            }
        }

        const COUNT: usize = [$($word,)+].len();
    };
}

discrepancies! {
    FrameLength = "frame_length", "says that frames are shorter than their packets",
        "lengths of the packets are used";
    PacketLength = "packet_length", "sends packets that claim to be longer than their frames",
        "lengths of the frames are used, as its other frames are right";
    LinkType = "link_type", "calls headers Ethernet that begin with IP", "they are read as IP";
    NoRate = "no_rate", "states no sampling rate", "the pool says what a sample stands for";
    NoPool = "no_pool", "states neither a sampling rate nor a pool", "each sample counts as one frame";
    RareSamples = "rare_samples", "samples so rarely that a full interface gives less than a sample a second",
        "figures of single samples are wide; sample one frame in fewer";
    SampleNumbers = "sample_numbers", "gives the samples of one source the same numbers",
        "all of them count, by the rate it states";
    Senders = "senders", "is heard from several addresses at once",
        "senders that number their datagrams apart are agents with the address that they send from";
    Speed = "speed", "counts more on an interface than its speed allows", "the counters are believed";
    Clock = "clock", "has a clock that is slow by the arrival of its datagrams",
        "the time of arrival is used";
}

/// How often an agent contradicted itself, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Discrepancies([u64; COUNT]);

impl Discrepancies {
    /// Counts one.
    #[inline]
    pub(crate) fn note(&mut self, of: Discrepancy) {
        self.0[of as usize] += 1;
    }

    /// How often this was seen.
    pub fn count(&self, of: Discrepancy) -> u64 {
        self.0[of as usize]
    }

    /// Those that were seen, with how often.
    pub fn seen(&self) -> impl Iterator<Item = (Discrepancy, u64)> {
        Discrepancy::ALL.iter().map(|of| (*of, self.count(*of))).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_generated_row() {
        let mut text = String::from("\n| kind | an agent | what is done |\n|---|---|---|\n");
        for of in Discrepancy::ALL {
            text.push_str(&format!("| `{}` | {} | {} |\n", of.word(), of.says(), of.used()));
        }
        let marks = ["<!-- discrepancies -->\n", "<!-- end of discrepancies -->"];
        testkit::generated_part("docs/flows.md", marks, &format!("{text}\n"));
    }
}
