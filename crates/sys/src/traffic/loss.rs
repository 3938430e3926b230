use crate::socket::FilterInstruction;
use std::fmt;

/// The probability that a packet is dropped, in steps of 2⁻³², the resolution of the kernel's random numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Loss {
    /// A packet is dropped when a random `u32` is below this; 2³² drops everything.
    threshold: u64,
}

const RANDOM_VALUES: f64 = 4_294_967_296.0;

impl Loss {
    /// Drops nothing.
    pub const NONE: Loss = Loss { threshold: 0 };

    /// Drops everything.
    pub const ALL: Loss = Loss { threshold: 1 << 32 };

    /// Rounded down to the next step; `None` outside 0 to 1.
    pub fn from_probability(probability: f64) -> Option<Loss> {
        (0.0..=1.0)
            .contains(&probability)
            .then_some(Loss { threshold: (probability * RANDOM_VALUES) as u64 })
    }

    /// The probability after rounding, 0 to 1.
    pub fn probability(self) -> f64 {
        self.threshold as f64 / RANDOM_VALUES
    }

    /// For `cls_bpf` with direct action: drops IP packets with this probability, except ICMPv6; the rest passes.
    pub(super) fn ingress_program(self) -> Vec<FilterInstruction> {
        let mut program = vec![
            load_half(SKF_AD_OFF + SKF_AD_PROTOCOL),
            jump_if_equal(ETHERTYPE_IPV4, 5, 0), // yes: draw
            jump_if_equal(ETHERTYPE_IPV6, 0, 3), // no: pass
            load_byte(SKF_NET_OFF + IPV6_NEXT_HEADER_AT),
            jump_if_equal(ICMPV6, 1, 0), // yes: pass
            // Multicast listener reports, also ICMPv6, follow a hop-by-hop header.
            jump_if_equal(HOP_BY_HOP, 0, 1), // no: draw
            give(TC_ACT_OK),                 // pass
        ];
        program.extend(self.draw(TC_ACT_SHOT, TC_ACT_OK));
        program
    }

    /// For `SO_ATTACH_FILTER`: the number of bytes to keep, all or none.
    pub(super) fn socket_program(self) -> Vec<FilterInstruction> {
        self.draw(0, u32::MAX)
    }

    fn draw(self, dropped: u32, kept: u32) -> Vec<FilterInstruction> {
        match u32::try_from(self.threshold) {
            Ok(threshold) => vec![
                load_word(SKF_AD_OFF + SKF_AD_RANDOM),
                jump_if_at_least(threshold, 1, 0),
                give(dropped),
                give(kept),
            ],
            Err(_) => vec![give(dropped)],
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", (self.probability() * 1e6).round() / 1e4)
    }
}

/// Offsets at which a load finds packet metadata and the network header (linux/filter.h).
const SKF_AD_OFF: i32 = -0x1000;
const SKF_NET_OFF: i32 = -0x10_0000;
const SKF_AD_PROTOCOL: i32 = 0;
const SKF_AD_RANDOM: i32 = 56;
const IPV6_NEXT_HEADER_AT: i32 = 6;
const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86dd;
const HOP_BY_HOP: u32 = 0;
const ICMPV6: u32 = 58;
const TC_ACT_OK: u32 = 0;
const TC_ACT_SHOT: u32 = 2;

const fn instruction(code: u16, (jt, jf): (u8, u8), k: u32) -> FilterInstruction {
    FilterInstruction { code, jt, jf, k }
}

fn load_word(at: i32) -> FilterInstruction {
    instruction(0x20, (0, 0), at.cast_unsigned())
}

fn load_half(at: i32) -> FilterInstruction {
    instruction(0x28, (0, 0), at.cast_unsigned())
}

fn load_byte(at: i32) -> FilterInstruction {
    instruction(0x30, (0, 0), at.cast_unsigned())
}

fn jump_if_equal(k: u32, jt: u8, jf: u8) -> FilterInstruction {
    instruction(0x15, (jt, jf), k)
}

fn jump_if_at_least(k: u32, jt: u8, jf: u8) -> FilterInstruction {
    instruction(0x35, (jt, jf), k)
}

fn give(k: u32) -> FilterInstruction {
    instruction(0x06, (0, 0), k)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program on a packet with this ethertype and IPv6 next header, when the kernel draws `random`.
    fn run(program: &[FilterInstruction], ethertype: u32, next_header: u32, random: u32) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let FilterInstruction { code, jt, jf, k } = program[at];
            let jump = |yes| usize::from(if yes { jt } else { jf });
            at += 1;
            match (code, k.cast_signed()) {
                (0x28, place) if place == SKF_AD_OFF + SKF_AD_PROTOCOL => accumulator = ethertype,
                (0x30, place) if place == SKF_NET_OFF + 6 => accumulator = next_header,
                (0x20, place) if place == SKF_AD_OFF + SKF_AD_RANDOM => accumulator = random,
                (0x15, _) => at += jump(accumulator == k),
                (0x35, _) => at += jump(accumulator >= k),
                (0x06, _) => return k,
                _ => panic!("unknown instruction {code:#x} {k:#x}"),
            }
        }
    }

    #[test]
    fn ip_is_drawn_for_and_the_rest_passes() {
        let program = Loss::from_probability(0.25).unwrap().ingress_program();
        let below = 0x3fff_ffff;
        for (ethertype, next_header, expected) in [
            (0x0800, 0, TC_ACT_SHOT),
            (0x86dd, 6, TC_ACT_SHOT),
            (0x86dd, 17, TC_ACT_SHOT),
            (0x86dd, 44, TC_ACT_SHOT),
            (0x86dd, 58, TC_ACT_OK),
            (0x86dd, 0, TC_ACT_OK),
            (0x0806, 0, TC_ACT_OK),
            (0x0806, 17, TC_ACT_OK),
        ] {
            assert_eq!(run(&program, ethertype, next_header, below), expected);
            assert_eq!(run(&program, ethertype, next_header, below + 1), TC_ACT_OK);
        }
    }

    #[test]
    fn none_is_none_and_all_is_all() {
        for random in [0, u32::MAX] {
            assert_eq!(run(&Loss::NONE.ingress_program(), 0x0800, 0, random), TC_ACT_OK);
            assert_eq!(run(&Loss::ALL.ingress_program(), 0x0800, 0, random), TC_ACT_SHOT);
            assert_eq!(run(&Loss::NONE.socket_program(), 0, 0, random), u32::MAX);
            assert_eq!(run(&Loss::ALL.socket_program(), 0, 0, random), 0);
        }
    }

    #[test]
    fn a_probability_is_rounded_down_to_a_step() {
        assert_eq!(Loss::from_probability(0.0), Some(Loss::NONE));
        assert_eq!(Loss::from_probability(1.0), Some(Loss::ALL));
        assert_eq!(Loss::from_probability(1e-10), Some(Loss::NONE));
        let fifth = Loss::from_probability(0.2).unwrap();
        assert!(fifth.probability() <= 0.2 && 0.2 - fifth.probability() < 1.0 / RANDOM_VALUES);
        assert_eq!(fifth.to_string(), "20 %");
        for outside in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Loss::from_probability(outside), None);
        }
    }
}
