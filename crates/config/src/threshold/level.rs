//! The level of a figure: a number, a bit rate, a share or a time, depending on what is watched.

use ::flows::{AgentFigure, Measure, PortFigure};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use text::units::{display_duration, parse_bit_rate, parse_duration, parse_per_sec};

/// A level, with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Frames, samples or discards per second.
    Count(u64),
    /// Bits per second.
    Bits(u64),
    /// A share, in millionths.
    Share(u32),
    /// A time.
    Time(Duration),
}

/// The unit of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelUnit {
    Count,
    Bits,
    Share,
    Time,
}

impl LevelUnit {
    /// The unit of flows with this measure.
    pub const fn of_measure(measure: Measure) -> LevelUnit {
        match measure {
            Measure::Bytes => LevelUnit::Bits,
            Measure::Frames | Measure::Samples => LevelUnit::Count,
        }
    }

    /// The unit of a figure of interfaces.
    pub const fn of_port(figure: PortFigure) -> LevelUnit {
        match figure {
            PortFigure::InBits | PortFigure::OutBits => LevelUnit::Bits,
            PortFigure::InUse | PortFigure::OutUse => LevelUnit::Share,
            PortFigure::InFrames | PortFigure::OutFrames => LevelUnit::Count,
            PortFigure::Discards | PortFigure::Errors => LevelUnit::Count,
        }
    }

    /// The unit of a figure of agents.
    pub const fn of_agent(figure: AgentFigure) -> LevelUnit {
        match figure {
            AgentFigure::Loss | AgentFigure::SampleLoss => LevelUnit::Share,
            AgentFigure::Silent => LevelUnit::Time,
        }
    }

    /// The form of a level in this unit.
    pub const fn form(self) -> &'static str {
        match self {
            LevelUnit::Count => "a number per second, such as \"500k\"",
            LevelUnit::Bits => "a bit rate, such as \"2Gbit/s\"",
            LevelUnit::Share => "a share, such as \"90%\"",
            LevelUnit::Time => "a time, such as \"30s\"",
        }
    }
}

impl Level {
    /// Its unit.
    pub const fn unit(self) -> LevelUnit {
        match self {
            Level::Count(_) => LevelUnit::Count,
            Level::Bits(_) => LevelUnit::Bits,
            Level::Share(_) => LevelUnit::Share,
            Level::Time(_) => LevelUnit::Time,
        }
    }

    /// The amount: per second, bits per second, a fraction of 1, or seconds.
    pub fn amount(self) -> f64 {
        match self {
            Level::Count(number) | Level::Bits(number) => number as f64,
            Level::Share(millionths) => f64::from(millionths) / 1e6,
            Level::Time(time) => time.as_secs_f64(),
        }
    }

    /// Four fifths of the level.
    pub(super) fn lower(self) -> Level {
        match self {
            Level::Count(number) => Level::Count(number - number / 5),
            Level::Bits(number) => Level::Bits(number - number / 5),
            Level::Share(millionths) => Level::Share(millionths - millionths / 5),
            Level::Time(time) => Level::Time(time - time / 5),
        }
    }

    pub(super) fn is_nothing(self) -> bool {
        self.amount() <= 0.0
    }
}

const WRONG: &str = "it is not a figure. Fix: write a number (500k), a bit rate (2Gbit/s), a share (90%) or a time (30s)";

impl FromStr for Level {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Level, &'static str> {
        let text = text.trim();
        if let Some(percent) = text.strip_suffix('%') {
            return share(percent.trim_end()).ok_or(WRONG);
        }
        if let Ok(bits) = parse_bit_rate(text) {
            return Ok(Level::Bits(bits));
        }
        // The suffixes of times and numbers differ, except for "m": a minute here, while "M" is a million.
        let other = parse_duration(text).map(Level::Time);
        other.or_else(|_| parse_per_sec(text).map(Level::Count)).map_err(|_| WRONG)
    }
}

/// Parses a percentage up to 100 with up to four decimals.
fn share(percent: &str) -> Option<Level> {
    let (whole, part) = percent.split_once('.').unwrap_or((percent, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 4 {
        return None;
    }
    let part = part.parse::<u32>().ok()? * 10_u32.pow(4 - part.len() as u32);
    let millionths = whole.parse::<u32>().ok()?.checked_mul(10_000)?.checked_add(part)?;
    (millionths <= 1_000_000).then_some(Level::Share(millionths))
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Count(number) => number.fmt(f),
            Level::Bits(bits) => {
                const FACTORS: [(&str, u64); 4] = [
                    ("T", 1_000_000_000_000),
                    ("G", 1_000_000_000),
                    ("M", 1_000_000),
                    ("k", 1_000),
                ];
                let largest = FACTORS.iter().find(|(_, factor)| bits.is_multiple_of(*factor));
                let (name, factor) = largest.filter(|_| *bits > 0).unwrap_or(&("", 1));
                write!(f, "{}{name}bit/s", bits / factor)
            }
            Level::Share(millionths) => {
                let (whole, part) = (millionths / 10_000, millionths % 10_000);
                let part = format!("{part:04}");
                match part.trim_end_matches('0') {
                    "" => write!(f, "{whole}%"),
                    part => write!(f, "{whole}.{part}%"),
                }
            }
            Level::Time(time) => f.write_str(&display_duration(*time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_and_shown_so_that_they_are_read_again() {
        let check = |text: &str, level: Level| {
            assert_eq!(text.parse(), Ok(level), "{text}");
            assert_eq!(level.to_string().parse(), Ok(level), "{text}");
        };
        check("500k", Level::Count(500_000));
        check("1000000", Level::Count(1_000_000));
        check("5M", Level::Count(5_000_000));
        check("10k/s", Level::Count(10_000));
        check("2Gbit/s", Level::Bits(2_000_000_000));
        check("1MB/s", Level::Bits(8_000_000));
        check("90%", Level::Share(900_000));
        check("0.5 %", Level::Share(5_000));
        check("100%", Level::Share(1_000_000));
        check("30s", Level::Time(Duration::from_secs(30)));
        check("5m", Level::Time(Duration::from_secs(300)));
        for wrong in [
            "",
            "x",
            "%",
            "101%",
            "1.00001%",
            "-1%",
            "4294967295%",
            "1 apple",
            "99999999999999999999",
        ] {
            assert!(wrong.parse::<Level>().is_err(), "{wrong}");
        }
        assert_eq!(Level::Bits(1_500_000_000).to_string(), "1500Mbit/s");
        assert_eq!(Level::Bits(0).to_string(), "0bit/s");
        assert_eq!(Level::Count(1).lower(), Level::Count(1));
    }
}
