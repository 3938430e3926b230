//! Which samples a definition counts.
//!
//! ```text
//! protocol = udp and src_port = 53,123 and not src in 10.0.0.0/8, group(dst) = servers
//! ```
//!
//! A comparison with a field that a sample does not have is false, even with `!=`.

use crate::field::{Facts, Field, Kind, Value, Word};
use crate::key::{Part, PartError};
use crate::lookup::{Groups, Network};
use crate::places::{self, Country};
use text::units::{parse_count, parse_duration, parse_size};

/// Maximum nesting of parentheses and `not`.
const DEPTH_MAX: usize = 32;

/// Maximum number of words, operators and commas in a filter: about 8,000 values. Each sample may be compared with all of them.
const WORDS_MAX: usize = 16_384;

/// A parsed filter.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter(Node);

#[derive(Clone, PartialEq, Debug)]
enum Node {
    Any(Vec<Node>),
    All(Vec<Node>),
    Not(Box<Node>),
    Is(Part, Vec<Operand>),
    IsNot(Part, Vec<Operand>),
    Has(Part, u64),
}

/// What a value is compared with.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Operand {
    /// A number range, both ends included.
    Range(u64, u64),
    Network(Network),
    Mac([u8; 6]),
    Word(Word),
}

/// A filter that cannot be parsed, with the position in its text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("at \"{at}\": {what}")]
pub struct FilterError {
    /// The word at which parsing failed, or the end.
    pub at: String,
    /// What is wrong there.
    pub what: String,
}

impl Filter {
    /// Parses a filter. The groups that it names must be known.
    ///
    /// # Errors
    /// It is not a filter, or it has more than 16,384 words or 32 levels.
    pub fn parse(text: &str, groups: &Groups) -> Result<Filter, FilterError> {
        let words = words(text);
        if let Some(word) = words.get(WORDS_MAX) {
            let what = format!("more than {WORDS_MAX} words; what has many networks is a group");
            return Err(error(word, &what));
        }
        let mut parser = Parser { words, at: 0, groups };
        let node = parser.any(0)?;
        match parser.next() {
            None => Ok(Filter(node)),
            Some(word) => Err(error(&word, "expected \"and\", \"or\" or the end")),
        }
    }

    /// Whether a sample passes.
    pub fn passes(&self, facts: &impl Facts, groups: &Groups) -> bool {
        self.0.passes(facts, groups)
    }
}

impl Node {
    fn passes(&self, facts: &impl Facts, groups: &Groups) -> bool {
        match self {
            Node::Any(nodes) => nodes.iter().any(|node| node.passes(facts, groups)),
            Node::All(nodes) => nodes.iter().all(|node| node.passes(facts, groups)),
            Node::Not(node) => !node.passes(facts, groups),
            Node::Is(part, operands) => {
                let holds = |value| operands.iter().any(|operand| operand.holds(value));
                part.any(facts, groups, holds)
            }
            Node::IsNot(part, operands) => {
                let holds = |value| operands.iter().any(|operand| operand.holds(value));
                part.value(facts, groups) != Value::Absent && !part.any(facts, groups, holds)
            }
            Node::Has(part, bits) => {
                matches!(part.value(facts, groups), Value::Number(number) if number & bits == *bits)
            }
        }
    }
}

impl Operand {
    fn holds(&self, value: Value) -> bool {
        match (self, value) {
            (Operand::Range(low, high), Value::Number(number)) => (*low..=*high).contains(&number),
            (Operand::Network(network), Value::Address(address)) => network.contains(address),
            (Operand::Mac(mac), Value::Mac(other)) => *mac == other,
            (Operand::Word(word), Value::Word(other)) => *word == other,
            _ => false,
        }
    }
}

struct Parser<'a> {
    words: Vec<String>,
    at: usize,
    groups: &'a Groups,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<String> {
        let word = self.words.get(self.at).cloned();
        self.at += usize::from(word.is_some());
        word
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_it = self.words.get(self.at).is_some_and(|next| next == word);
        self.at += usize::from(is_it);
        is_it
    }

    fn any(&mut self, depth: usize) -> Result<Node, FilterError> {
        let mut nodes = vec![self.all(depth)?];
        while self.takes("or") || self.takes("||") {
            nodes.push(self.all(depth)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Any(nodes) })
    }

    fn all(&mut self, depth: usize) -> Result<Node, FilterError> {
        let mut nodes = vec![self.one(depth)?];
        while self.takes("and") || self.takes("&&") {
            nodes.push(self.one(depth)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::All(nodes) })
    }

    fn one(&mut self, depth: usize) -> Result<Node, FilterError> {
        if depth > DEPTH_MAX {
            return Err(error("(", &format!("more than {DEPTH_MAX} levels")));
        }
        if self.takes("not") || self.takes("!") {
            return Ok(Node::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.takes("(") {
            let node = self.any(depth + 1)?;
            return if self.takes(")") { Ok(node) } else { Err(self.unexpected("expected \")\"")) };
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Node, FilterError> {
        let mut word = self.next().ok_or_else(|| {
            error("", "expected a field. Fix: use one that `weir flows --fields` lists")
        })?;
        if Part::FUNCTIONS.iter().any(|(name, _)| *name == word) && self.takes("(") {
            let field = self.next().unwrap_or_default();
            if !self.takes(")") {
                return Err(self.unexpected("expected \")\""));
            }
            word = format!("{word}({field})");
        }
        let part =
            Part::parse(&word).map_err(|wrong: PartError| error(&word, &wrong.to_string()))?;
        if part.needs_places() && !self.groups.has_places() {
            return Err(error(
                &word,
                "there is no MMDB file that says where addresses are. Fix: give one with mmdb (--mmdb FILE)",
            ));
        }
        let operator = self.next().unwrap_or_default();

        match operator.as_str() {
            "=" | "==" | "in" => Ok(Node::Is(part, self.operands(part)?)),
            "!=" => Ok(Node::IsNot(part, self.operands(part)?)),
            "has" => Ok(Node::Has(part, self.number(part)?)),
            "<" | "<=" | ">" | ">=" => {
                let number = self.number(part)?;
                let range = match operator.as_str() {
                    "<" if number == 0 => Operand::Range(1, 0),
                    "<" => Operand::Range(0, number - 1),
                    "<=" => Operand::Range(0, number),
                    ">" if number == u64::MAX => Operand::Range(1, 0),
                    ">" => Operand::Range(number + 1, u64::MAX),
                    _ => Operand::Range(number, u64::MAX),
                };
                Ok(Node::Is(part, vec![range]))
            }
            _ => Err(error(&operator, "expected =, !=, <, <=, >, >=, in or has")),
        }
    }

    /// Parses values separated by commas.
    fn operands(&mut self, part: Part) -> Result<Vec<Operand>, FilterError> {
        let mut operands = vec![self.operand(part)?];
        while self.takes(",") {
            operands.push(self.operand(part)?);
        }
        Ok(operands)
    }

    fn operand(&mut self, part: Part) -> Result<Operand, FilterError> {
        let word = self.next().ok_or_else(|| error("", "expected a value"))?;
        let (field, kind) = match part {
            Part::Group(_) => {
                let group = self.groups.named(&word);
                let group = group.ok_or_else(|| error(&word, "there is no group of this name. Fix: define it as a group, or correct the name"))?;
                return Ok(Operand::Range(group.into(), group.into()));
            }
            Part::Asn(_) => {
                let number = places::asn(&word).map(u64::from);
                let number = number.ok_or_else(|| {
                    error(&word, "expected a number. Fix: write for example AS64496")
                })?;
                return Ok(Operand::Range(number, number));
            }
            Part::Country(_) => {
                let country = Country::parse(&word).map(Country::number);
                let country = country.ok_or_else(|| {
                    error(&word, "expected two letters. Fix: write for example DE")
                })?;
                return Ok(Operand::Range(country, country));
            }
            Part::Field(field) | Part::Prefix(field, ..) => (field, field.kind()),
        };
        if let Some(word) = Word::named(field, &word) {
            return Ok(Operand::Word(word));
        }
        match kind {
            Kind::Community => {
                let number = community(&word).map(u64::from);
                let number = number.ok_or_else(|| {
                    error(&word, "expected a community. Fix: write for example 64500:100")
                })?;
                Ok(Operand::Range(number, number))
            }
            Kind::Address => Network::parse(&word).map(Operand::Network).ok_or_else(|| {
                error(&word, "expected an address or a network. Fix: write for example 10.0.0.0/8")
            }),
            Kind::Mac => mac(&word).map(Operand::Mac).ok_or_else(|| {
                error(
                    &word,
                    "expected an Ethernet address. Fix: write for example 00:1b:21:3c:4d:5e",
                )
            }),
            Kind::Number => {
                let (low, high) = match word.split_once('-') {
                    Some((low, high)) => (number(field, low), number(field, high)),
                    None => (number(field, &word), number(field, &word)),
                };
                match (low, high) {
                    (Some(low), Some(high)) if low <= high => Ok(Operand::Range(low, high)),
                    _ => Err(error(
                        &word,
                        "expected a number or a range. Fix: write for example 53 or 1024-65535",
                    )),
                }
            }
        }
    }

    fn number(&mut self, part: Part) -> Result<u64, FilterError> {
        let word = self.next().unwrap_or_default();
        match part {
            Part::Field(field) if field.kind() == Kind::Number => number(field, &word)
                .ok_or_else(|| error(&word, "expected a number. Fix: write for example 53")),
            part => Err(error(&word, &format!("\"{}\" is not a number", part.word()))),
        }
    }

    fn unexpected(&self, what: &str) -> FilterError {
        error(self.words.get(self.at).map_or("", String::as_str), what)
    }
}

fn error(at: &str, what: &str) -> FilterError {
    let at = if at.is_empty() { "the end" } else { at };
    FilterError { at: at.chars().take(64).collect(), what: what.into() }
}

/// Splits a text into words, operators and commas.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_open = false;
    for letter in text.chars() {
        let is_operator = "=!<>&|".contains(letter);
        let was_operator =
            words.last().is_some_and(|word| word.chars().all(|one| "=!<>&|".contains(one)));
        match letter {
            ' ' | '\t' | '\n' | '\r' => {}
            '(' | ')' | ',' => words.push(letter.into()),
            _ => match words.last_mut() {
                Some(word) if is_open && is_operator == was_operator => word.push(letter),
                _ => words.push(letter.into()),
            },
        }
        is_open = !" \t\n\r(),".contains(letter);
    }
    words
}

/// Parses a number with the units of its field, or a name for one.
fn number(field: Field, word: &str) -> Option<u64> {
    let word = word.trim();
    if let Some(hex) = word.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }

    let count = parse_count(word).ok();
    let number = match field {
        Field::FrameSize | Field::QueueDepth => count.or_else(|| parse_size(word).ok()),
        Field::TransitDelay => count.or_else(|| {
            parse_duration(word).ok().and_then(|time| u64::try_from(time.as_nanos()).ok())
        }),
        _ => count,
    };
    number.or_else(|| named(field, word))
}

fn named(field: Field, word: &str) -> Option<u64> {
    Some(match (field, word) {
        (Field::Protocol | Field::InnerProtocol, _) => match word {
            "icmp" => 1,
            "igmp" => 2,
            "ipip" => 4,
            "tcp" => 6,
            "udp" => 17,
            "ipv6" => 41,
            "gre" => 47,
            "esp" => 50,
            "icmp6" => 58,
            "ospf" => 89,
            "sctp" => 132,
            _ => return None,
        },
        (Field::TcpFlags, _) => match word {
            "fin" => 1,
            "syn" => 2,
            "rst" => 4,
            "psh" => 8,
            "ack" => 16,
            "urg" => 32,
            _ => return None,
        },
        (Field::Ethertype, _) => match word {
            "ipv4" => 0x0800,
            "arp" => 0x0806,
            "ipv6" => 0x86dd,
            "lldp" => 0x88cc,
            _ => return None,
        },
        _ => return None,
    })
}

fn community(word: &str) -> Option<u32> {
    let (high, low) = word.split_once(':')?;
    Some(u32::from(high.parse::<u16>().ok()?) << 16 | u32::from(low.parse::<u16>().ok()?))
}

fn mac(word: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut bytes = word.split(':');
    for place in &mut mac {
        *place = u8::from_str_radix(bytes.next()?, 16).ok()?;
    }
    bytes.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sample;

    impl Facts for Sample {
        fn value(&self, field: Field) -> Value {
            match field {
                Field::Src => Value::Address("192.0.2.77".parse().unwrap()),
                Field::Dst => Value::Address("2001:db8::1".parse().unwrap()),
                Field::Protocol => Value::Number(6),
                Field::SrcPort => Value::Number(0),
                Field::DstPort => Value::Number(443),
                Field::TcpFlags => Value::Number(18),
                Field::SrcMac => Value::Mac([0, 1, 2, 0xab, 0xcd, 0xef]),
                Field::Output => Value::Word(Word::Several),
                Field::IcmpType => Value::Word(Word::None),
                Field::Community => Value::Number(0xfbf4_0064),
                _ => Value::Absent,
            }
        }
    }

    fn groups() -> Groups {
        let mut groups = Groups::default();
        groups.add("lab", Network::parse("192.0.2.0/24").unwrap());
        groups.add("office", Network::parse("198.51.100.0/24").unwrap());
        groups
    }

    #[test]
    fn filters_pass_what_they_say() {
        let groups = groups();
        let check = |text: &str, expected: bool| {
            let filter =
                Filter::parse(text, &groups).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
            assert_eq!(filter.passes(&Sample, &groups), expected, "{text}");
        };
        check("protocol = tcp", true);
        check("protocol=6", true);
        check("protocol != tcp", false);
        check("protocol = udp or dst_port = 80,443", true);
        check("protocol=udp||dst_port=80,443", true);
        check("protocol = udp and dst_port = 443 or protocol = tcp", true);
        check("protocol = udp and (dst_port = 443 or protocol = tcp)", false);
        check("not protocol = udp", true);
        check("not not protocol = udp", false);
        check("!(protocol=udp)&&dst_port>=443", true);
        check("dst_port < 443", false);
        check("dst_port <= 443 and dst_port > 442", true);
        check("src_port < 0", false);
        check("dst_port = 400-500", true);
        check("src in 192.0.2.0/24, 10.0.0.0/8", true);
        check("src in 10.0.0.0/8", false);
        check("dst = 2001:db8::1", true);
        check("tcp_flags has syn and tcp_flags has ack", true);
        check("tcp_flags has rst", false);
        check("group(src) = lab", true);
        check("group( src ) = office", false);
        check("group(dst) = lab", false);
        check("src_mac = 00:01:02:AB:cd:ef", true);
        check("ethertype = 0x0800", false);
        check("output = several", true);
        check("output = 7, internal, several", true);
        check("output = internal", false);
        check("output != internal", true);
        check("output > 0", false);
        check("icmp_type = none", true);
        check("icmp_type = -", true);
        check("icmp_type != none", false);
        check("community = 64500:100", true);
        check("community = 64500:101", false);
        check("community != 64500:101", true);
        // A missing value is neither equal nor unequal.
        check("vlan = 5", false);
        check("vlan != 5", false);
        check("not vlan = 5", true);
    }

    #[test]
    fn what_is_no_filter_is_told() {
        let told = |text: &str| Filter::parse(text, &groups()).unwrap_err().to_string();
        assert_eq!(
            told(""),
            "at \"the end\": expected a field. Fix: use one that `weir flows --fields` lists"
        );
        assert!(told("prtocol = 1").contains("did you mean \"protocol\"?"));
        assert!(told("protocol ~ 1").contains("expected =, !="));
        assert!(told("protocol = xyz").contains("expected a number"));
        assert!(told("protocol = 9-1").contains("expected a number"));
        assert!(told("output = none").contains("expected a number"));
        assert!(told("protocol = internal").contains("expected a number"));
        assert!(told("community = 64500").contains("expected a community"));
        assert!(told("src = 300.1.1.1").contains("expected an address"));
        assert!(told("src > 5").contains("is not a number"));
        assert!(told("(protocol = 1").contains("expected \")\""));
        assert!(told("protocol = 1 dst_port = 2").contains("expected \"and\""));
        assert!(told("group(src) = nobody").contains("no group of this name"));
        assert!(told(&"(".repeat(1_000)).contains("more than 32 levels"));
        assert!(told(&"not ".repeat(1_000)).contains("more than 32 levels"));
        assert!(told(&"(".repeat(100_000)).contains("more than 16384 words"));
        let ports = (0..9_000).map(|port| port.to_string()).collect::<Vec<_>>();
        assert!(told(&format!("dst_port = {}", ports.join(","))).contains("what has many"));
        let most = format!("dst_port = {}", ports[..8_191].join(","));
        assert!(Filter::parse(&most, &groups()).is_ok());
    }
}
