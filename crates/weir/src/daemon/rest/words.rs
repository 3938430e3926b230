//! Translates sFlow-RT's names for keys and filters into Weir's.
//!
//! Its names say more than Weir's fields: `tcpsourceport` is the source port of TCP only. The part beyond the field becomes a
//! condition of the definition's filter.

use flows::{Direction, Field, Kind};

/// Deepest nesting of brackets and parentheses.
const DEPTH_MAX: usize = 16;

/// Rows: sFlow-RT's name, Weir's field, and the condition that the name implies.
const WORDS: &[(&str, &str, &str)] = &[
    ("macsource", "src_mac", ""),
    ("macdestination", "dst_mac", ""),
    ("ethernetprotocol", "ethertype", ""),
    ("vlan", "vlan", ""),
    ("ipsource", "src", "ip_version = 4"),
    ("ipdestination", "dst", "ip_version = 4"),
    ("ip6source", "src", "ip_version = 6"),
    ("ip6destination", "dst", "ip_version = 6"),
    ("ipprotocol", "protocol", "ip_version = 4"),
    ("ip6nexthdr", "protocol", "ip_version = 6"),
    ("ipttl", "ttl", "ip_version = 4"),
    ("ip6hoplimit", "ttl", "ip_version = 6"),
    ("ipdscp", "dscp", "ip_version = 4"),
    ("tcpsourceport", "src_port", "protocol = 6"),
    ("tcpdestinationport", "dst_port", "protocol = 6"),
    ("tcpflags", "tcp_flags", "protocol = 6"),
    ("udpsourceport", "src_port", "protocol = 17"),
    ("udpdestinationport", "dst_port", "protocol = 17"),
    ("sctpsourceport", "src_port", "protocol = 132"),
    ("sctpdestinationport", "dst_port", "protocol = 132"),
    ("icmptype", "icmp_type", "protocol = 1"),
    ("icmpcode", "icmp_code", "protocol = 1"),
    ("icmp6type", "icmp_type", "protocol = 58"),
    ("icmp6code", "icmp_code", "protocol = 58"),
    ("ipsource.1", "inner_src", ""),
    ("ipdestination.1", "inner_dst", ""),
    ("ipprotocol.1", "inner_protocol", ""),
    ("tcpsourceport.1", "inner_src_port", "inner_protocol = 6"),
    ("tcpdestinationport.1", "inner_dst_port", "inner_protocol = 6"),
    ("udpsourceport.1", "inner_src_port", "inner_protocol = 17"),
    ("udpdestinationport.1", "inner_dst_port", "inner_protocol = 17"),
    ("vni", "vni", ""),
    ("inputifindex", "input", ""),
    ("outputifindex", "output", ""),
    ("agent", "agent", ""),
    ("bgpnexthop", "next_hop", ""),
    ("bgpsourceas", "src_as", ""),
    ("bgpdestinationas", "dst_as", ""),
    ("bgppeeras", "peer_as", ""),
    ("reason", "drop_reason", ""),
    ("transitdelay", "transit_delay_ns", ""),
    ("queuedepth", "queue_depth", ""),
    ("queue", "queue", ""),
];

/// sFlow-RT's names for the fields that Weir supports, sorted.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = WORDS.iter().map(|(name, ..)| *name).collect();
    names.sort_unstable();
    names
}

/// A key in Weir's terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Word {
    /// A part of a key, such as `src/24` or `group(src)`.
    pub(super) part: String,
    /// The condition that its name implies beyond the field, as a filter; may be empty.
    pub(super) condition: String,
}

/// Parses the keys of a definition: names and functions, separated by commas.
pub(super) fn keys(text: &str) -> Result<Vec<Word>, String> {
    split(text, ',')?.into_iter().map(|key| word(key, 0)).collect()
}

/// Parses a name or a function, such as `ipsource`, `group:ipsource:name`, `mask:ipsource:24`, `or:ipsource:ip6source`.
fn word(text: &str, depth: usize) -> Result<Word, String> {
    if depth > DEPTH_MAX {
        return Err(format!("brackets are nested more than {DEPTH_MAX} deep"));
    }
    let text = text.trim();
    if let Some(inside) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return word(inside, depth + 1);
    }
    if let Some((_, field, condition)) = WORDS.iter().find(|(name, ..)| *name == text) {
        return Ok(Word { part: (*field).into(), condition: (*condition).into() });
    }

    let arguments = split(text, ':')?;
    let inner = |at: usize| match arguments.get(at) {
        Some(key) => word(key, depth + 1),
        None => Err(format!("\"{}\" lacks an argument", shown(text))),
    };
    match (arguments[0], arguments.len()) {
        ("group", 2..) => {
            let key = inner(1)?;
            Ok(Word { part: format!("group({})", key.part), ..key })
        }
        ("country" | "asn", 2..) => {
            let key = inner(1)?;
            Ok(Word { part: format!("{}({})", arguments[0], key.part), ..key })
        }
        ("mask", 3) => {
            let key = inner(1)?;
            let bits = arguments[2].parse::<u8>().map_err(|_| wrong_mask(text))?;
            // A single number applies to the one address family that the name implies.
            let bits = if key.condition == "ip_version = 6" {
                format!("32/{bits}")
            } else {
                format!("{bits}")
            };
            Ok(Word { part: format!("{}/{bits}", key.part), ..key })
        }
        ("or", 2..) => {
            let keys = (1..arguments.len()).map(inner).collect::<Result<Vec<_>, _>>()?;
            either(text, keys)
        }
        (_, 1) => {
            Err(format!("there is no key \"{}\" here; /flowkeys/json lists them", shown(text)))
        }
        _ => {
            Err(format!("\"{}\": the functions are group, mask, or, country and asn", shown(text)))
        }
    }
}

fn wrong_mask(text: &str) -> String {
    format!("\"{}\": expected the bits of a network, as mask:ipsource:24", shown(text))
}

/// Joins several names for the same field into one key.
fn either(text: &str, keys: Vec<Word>) -> Result<Word, String> {
    let part = keys[0].part.clone();
    if keys.iter().any(|key| key.part != part) {
        return Err(format!("\"{}\": only names of one field can be joined here", shown(text)));
    }

    let mut conditions: Vec<String> = keys.into_iter().map(|key| key.condition).collect();
    conditions.sort_unstable();
    conditions.dedup();
    // IPv4 or IPv6 covers every packet that has the field.
    let is_any_ip = conditions == ["ip_version = 4", "ip_version = 6"];
    let condition = if is_any_ip || conditions.iter().any(String::is_empty) {
        String::new()
    } else if conditions.len() == 1 {
        conditions.remove(0)
    } else {
        format!("({})", conditions.join(" or "))
    };
    Ok(Word { part, condition })
}

/// Parses a filter into Weir's terms, and the interface direction that it asks for.
pub(super) fn filter(text: &str) -> Result<(String, Direction), String> {
    let mut parser = Parser { rest: text.trim(), direction: Direction::Any };
    let filter = parser.any(0)?;
    if parser.rest.is_empty() {
        Ok((filter, parser.direction))
    } else {
        Err(format!("filter: expected & or | at \"{}\"", shown(parser.rest)))
    }
}

struct Parser<'a> {
    rest: &'a str,
    direction: Direction,
}

impl<'a> Parser<'a> {
    fn takes(&mut self, what: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(what) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn any(&mut self, depth: usize) -> Result<String, String> {
        let before = self.direction;
        let mut parts = vec![self.all(depth)?];
        while self.takes("|") {
            parts.push(self.all(depth)?);
        }
        // The direction belongs to the whole definition, so it cannot be one of several alternatives.
        if self.direction != before && (parts.len() > 1 || depth > 0) {
            return Err(
                "filter: direction can only stand among conditions that all must hold".into()
            );
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { format!("({})", parts.join(" or ")) })
    }

    fn all(&mut self, depth: usize) -> Result<String, String> {
        let mut parts = vec![self.one(depth)?];
        while self.takes("&") {
            parts.push(self.one(depth)?);
        }
        parts.retain(|part| !part.is_empty());
        Ok(parts.join(" and "))
    }

    fn one(&mut self, depth: usize) -> Result<String, String> {
        if depth > DEPTH_MAX {
            return Err(format!("filter: more than {DEPTH_MAX} levels"));
        }
        if self.takes("(") {
            let inside = self.any(depth + 1)?;
            return match self.takes(")") {
                // Alternatives are in parentheses already.
                true => Ok(inside),
                false => Err(format!("filter: expected ) at \"{}\"", shown(self.rest))),
            };
        }

        let key = self.until(&['=', '!', '~']);
        let operator = ["!=", "!~", "=", "~"].into_iter().find(|one| self.takes(one));
        let operator = operator
            .ok_or_else(|| format!("filter: expected =, !=, ~ or !~ after \"{}\"", shown(key)))?;
        let values = self.until(&['&', '|', ')']);
        if key == "direction" {
            return self.side(operator, values);
        }
        comparison(key, operator, values)
    }

    fn side(&mut self, operator: &str, values: &str) -> Result<String, String> {
        self.direction = match (operator, values) {
            ("=", "ingress") | ("!=", "egress") => Direction::Ingress,
            ("=", "egress") | ("!=", "ingress") => Direction::Egress,
            _ => return Err("filter: expected direction=ingress or direction=egress".into()),
        };
        Ok(String::new())
    }

    fn until(&mut self, ends: &[char]) -> &'a str {
        let at = self.rest.find(|one| ends.contains(&one)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(at);
        self.rest = rest;
        text.trim()
    }
}

fn comparison(key: &str, operator: &str, values: &str) -> Result<String, String> {
    // Old names for groups of addresses.
    let key = match key {
        "sourcegroup" => "group:[or:ipsource:ip6source]",
        "destinationgroup" => "group:[or:ipdestination:ip6destination]",
        key => key,
    };
    let Word { part, condition } = word(key, 0).map_err(|why| format!("filter: {why}"))?;
    let compared = match (part.as_str(), operator) {
        // Frames that leave by no interface have no output.
        ("output", "!=") if values == "discard" => "output >= 0".into(),
        (_, "=" | "!=") => {
            let values = values.split(',').map(|one| value(&part, one.trim()));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            format!("{part} {operator} {}", values.join(","))
        }
        ("tcp_flags", operator) => flags(operator, values)?,
        _ => {
            return Err(format!(
                "filter: patterns (~) are known for tcpflags alone, not for \"{}\"",
                shown(key)
            ));
        }
    };
    Ok(if condition.is_empty() { compared } else { format!("({condition} and {compared})") })
}

/// Checks that a value can stand in a filter as it is; writes a MAC address with colons.
fn value(part: &str, text: &str) -> Result<String, String> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "._:/-".contains(one);
    if text.is_empty() || !text.chars().all(is_plain) {
        return Err(format!("filter: \"{}\" is not a value", shown(text)));
    }
    let is_mac = Field::named(part).is_some_and(|field| field.kind() == Kind::Mac);
    if is_mac && text.len() == 12 && text.is_ascii() {
        let bytes: Vec<&str> = (0..6).map(|at| &text[2 * at..2 * at + 2]).collect();
        return Ok(bytes.join(":"));
    }
    Ok(text.into())
}

/// A pattern of TCP flags: one character each for NS, CWR, ECE, URG, ACK, PSH, RST, SYN and FIN, which is 0, 1 or a dot.
fn flags(operator: &str, pattern: &str) -> Result<String, String> {
    let wrong = || {
        format!(
            "filter: \"{}\": expected 9 places with 0, 1 or a dot, as .......1.",
            shown(pattern)
        )
    };
    if pattern.len() != 9 {
        return Err(wrong());
    }

    let mut conditions = Vec::new();
    for (at, place) in pattern.chars().enumerate() {
        let bit = 1 << (8 - at);
        match place {
            '.' => {}
            '1' => conditions.push(format!("tcp_flags has {bit}")),
            '0' => conditions.push(format!("not tcp_flags has {bit}")),
            _ => return Err(wrong()),
        }
    }
    let all =
        if conditions.is_empty() { "tcp_flags >= 0".into() } else { conditions.join(" and ") };
    Ok(if operator == "~" { format!("({all})") } else { format!("not ({all})") })
}

/// Splits text at separators outside brackets.
fn split(text: &str, separator: char) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1).ok_or("a ] without a [")?,
            letter if letter == separator && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + letter.len_utf8();
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err("a [ without a ]".into());
    }
    parts.push(&text[start..]);
    Ok(parts)
}

/// Foreign text for a message: shortened, with control characters escaped so that no terminal acts on them.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flows::{Filter, Groups, Network, Part};

    #[test]
    fn every_name_is_a_field() {
        for (name, field, condition) in WORDS {
            assert!(Field::named(field).is_some(), "{name}");
            let parsed = Filter::parse(condition, &Groups::default());
            assert!(condition.is_empty() || parsed.is_ok(), "{name}");
        }
    }

    fn key(text: &str, part: &str, condition: &str) {
        let word = Word { part: part.into(), condition: condition.into() };
        assert_eq!(keys(text), Ok(vec![word]), "{text}");
        if !part.starts_with("country") {
            Part::parse(part).unwrap();
        }
    }

    #[test]
    fn keys_are_read() {
        key("ipsource", "src", "ip_version = 4");
        key("udpdestinationport", "dst_port", "protocol = 17");
        key("mask:ipsource:24", "src/24", "ip_version = 4");
        key("mask:ip6source:64", "src/32/64", "ip_version = 6");
        key("group:ipsource:ddos", "group(src)", "ip_version = 4");
        key("or:ipsource:ip6source", "src", "");
        key("group:[or:ipdestination:ip6destination]:ddos", "group(dst)", "");
        key("or:tcpsourceport:udpsourceport", "src_port", "(protocol = 17 or protocol = 6)");
        key(" inputifindex ", "input", "");
        key("country:ipsource", "country(src)", "ip_version = 4");
        assert_eq!(keys("ipsource,[or:macsource:macsource],vlan").unwrap().len(), 3);
    }

    #[test]
    fn wrong_keys() {
        for (text, why) in [
            ("", "no key \"\""),
            ("ipsrc", "no key \"ipsrc\""),
            ("null:vlan:-", "the functions are"),
            ("or:ipsource:macsource", "one field"),
            ("mask:ipsource", "the functions are"),
            ("mask:ipsource:x", "bits"),
            ("[ipsource", "a [ without"),
            ("ipsource]", "a ] without"),
            ("\u{1b}[31m", "a [ without"),
            ("\u{1b}31m", "\\u{1b}31m"),
        ] {
            let told = keys(text).unwrap_err();
            assert!(told.contains(why), "{text:?}: {told}");
            assert!(!told.contains('\u{1b}'));
        }
        let deep = "[".repeat(10_000) + "ipsource" + &"]".repeat(10_000);
        assert!(keys(&deep).unwrap_err().contains("nested"));
    }

    fn filtered(text: &str, expected: &str, side: Direction) {
        let read = filter(text);
        assert_eq!(read, Ok((expected.to_owned(), side)), "{text}");
        let mut groups = Groups::default();
        for name in ["external", "internal"] {
            groups.add(name, Network::parse("10.0.0.0/8").unwrap());
        }
        if !expected.is_empty() {
            Filter::parse(expected, &groups).unwrap();
        }
    }

    /// From published scripts: blog.sflow.com 2013/08 (ddos), 2014/07 (syn flood), ddos-protect.
    #[test]
    fn filters_are_read() {
        filtered("ipsource=10.0.0.1", "(ip_version = 4 and src = 10.0.0.1)", Direction::Any);
        filtered("outputifindex!=discard&direction=ingress", "output >= 0", Direction::Ingress);
        filtered(
            "sourcegroup=external&destinationgroup=internal&outputifindex!=discard",
            "group(src) = external and group(dst) = internal and output >= 0",
            Direction::Any,
        );
        filtered(
            "tcpflags~.......1.&(tcpdestinationport=80,443|udpdestinationport!=53)",
            "(protocol = 6 and (tcp_flags has 2)) and ((protocol = 6 and dst_port = 80,443) or (protocol = 17 and dst_port != 53))",
            Direction::Any,
        );
        filtered(
            "tcpflags~000010010",
            "(protocol = 6 and (not tcp_flags has 256 and not tcp_flags has 128 and not tcp_flags has 64 and not tcp_flags has 32 and tcp_flags has 16 and not tcp_flags has 8 and not tcp_flags has 4 and tcp_flags has 2 and not tcp_flags has 1))",
            Direction::Any,
        );
        filtered("macsource=080027AABBCC", "src_mac = 08:00:27:AA:BB:CC", Direction::Any);
        filtered("direction=egress", "", Direction::Egress);
    }

    #[test]
    fn wrong_filters() {
        for (text, why) in [
            ("", "expected =, !=, ~ or !~"),
            ("ipsource", "expected =, !=, ~ or !~"),
            ("ipsource=", "not a value"),
            ("ipsource=10.0.0.1 or src = 10.0.0.2", "not a value"),
            ("ipsource=a)b", "expected & or |"),
            ("(ipsource=10.0.0.1", "expected )"),
            ("direction=ingress|vlan=3", "direction can only"),
            ("ipsource~10.*", "patterns"),
            ("tcpflags~1", "9 places"),
            ("nothing=3", "no key"),
            ("link:inputifindex=3", "the functions are"),
        ] {
            let told = filter(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
        assert!(filter(&"(".repeat(10_000)).unwrap_err().contains("levels"));
    }
}
