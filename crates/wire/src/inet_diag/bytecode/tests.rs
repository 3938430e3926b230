use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A small xorshift generator, so that every run has the same cases.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    fn address(&mut self) -> IpAddr {
        let v4 = Ipv4Addr::new(10, self.one_of(&[0, 128]), 0, self.one_of(&[1, 2]));
        match self.below(3) {
            0 => v4.into(),
            1 => v4.to_ipv6_mapped().into(),
            _ => Ipv6Addr::new(
                0x2001,
                0xdb8,
                self.one_of(&[0, 0x8000]),
                0,
                0,
                0,
                0,
                self.one_of(&[1, 2]),
            )
            .into(),
        }
    }

    fn prefix(&mut self) -> Prefix {
        let address = self.address();
        let bits = match address {
            IpAddr::V4(_) => self.one_of(&[0, 8, 9, 16, 31, 32]),
            IpAddr::V6(_) => self.one_of(&[0, 32, 33, 96, 127, 128]),
        };
        Prefix { address, bits }
    }

    fn condition(&mut self) -> Condition {
        let end = self.one_of(&[End::Source, End::Destination]);
        let port = self.one_of(&[0, 79, 80, 81, 65535]);
        match self.below(7) {
            0 | 1 => Condition::Port(
                end,
                self.one_of(&[PortTest::Equal, PortTest::AtLeast, PortTest::AtMost]),
                port,
            ),
            2 => Condition::Host(end, Some(self.prefix()), None),
            3 => {
                let prefix = if self.below(2) == 0 { None } else { Some(self.prefix()) };
                Condition::Host(end, prefix, Some(port).filter(|_| port != 0))
            }
            4 => Condition::Autobound,
            5 => Condition::Device(self.one_of(&[0, 1, 2])),
            _ => match self.below(2) {
                0 => Condition::Mark {
                    value: self.one_of(&[0, 1, 3]),
                    mask: self.one_of(&[0, 1, 3, u32::MAX]),
                },
                _ => Condition::Cgroup(self.one_of(&[0, 1, 1 << 40])),
            },
        }
    }

    fn expression(&mut self, depth: u32) -> Expression {
        let leaf = depth == 0 || self.below(4) == 0;
        match self.below(if leaf { 8 } else { 4 }) {
            0 => Expression::Not(Box::new(self.expression(depth.saturating_sub(1)))),
            1 if !leaf => Expression::All(self.expressions(depth)),
            2 | 3 if !leaf => Expression::Any(self.expressions(depth)),
            1 => Expression::Constant(self.below(2) == 0),
            _ => Expression::Condition(self.condition()),
        }
    }

    fn expressions(&mut self, depth: u32) -> Vec<Expression> {
        (0..self.below(5)).map(|_| self.expression(depth - 1)).collect()
    }

    fn entry(&mut self) -> Entry {
        let source = self.address();
        let mut destination = self.address();
        while destination.is_ipv4() != source.is_ipv4() {
            destination = self.address();
        }
        Entry {
            source,
            destination,
            source_port: self.one_of(&[0, 79, 80, 81, 65535]),
            destination_port: self.one_of(&[0, 79, 80, 81, 65535]),
            interface_index: self.one_of(&[0, 1, 2]),
            autobound: self.below(2) == 0,
            mark: self.one_of(&[0, 1, 2, 3, 7]),
            cgroup_id: self.one_of(&[0, 1, 1 << 40]),
        }
    }
}

/// The meaning of an expression, implemented independently without bytecode.
fn meaning(expression: &Expression, entry: &Entry) -> bool {
    match expression {
        Expression::Constant(value) => *value,
        Expression::Not(inner) => !meaning(inner, entry),
        Expression::All(parts) => parts.iter().all(|part| meaning(part, entry)),
        Expression::Any(parts) => parts.iter().any(|part| meaning(part, entry)),
        Expression::Condition(condition) => condition_meaning(condition, entry),
    }
}

fn condition_meaning(condition: &Condition, entry: &Entry) -> bool {
    match *condition {
        Condition::Port(end, test, wanted) => {
            let (_, port) = end_of(end, entry);
            match test {
                PortTest::Equal => port == wanted,
                PortTest::AtLeast => port >= wanted,
                PortTest::AtMost => port <= wanted,
            }
        }
        Condition::Host(end, prefix, wanted) => {
            let (address, port) = end_of(end, entry);
            wanted.is_none_or(|wanted| wanted == port)
                && prefix.is_none_or(|prefix| inside(address, prefix))
        }
        Condition::Autobound => entry.autobound,
        Condition::Device(index) => entry.interface_index == index,
        Condition::Mark { value, mask } => entry.mark & mask == value,
        Condition::Cgroup(id) => entry.cgroup_id == id,
    }
}

fn end_of(end: End, entry: &Entry) -> (IpAddr, u16) {
    match end {
        End::Source => (entry.source, entry.source_port),
        End::Destination => (entry.destination, entry.destination_port),
    }
}

fn inside(address: IpAddr, prefix: Prefix) -> bool {
    let high =
        |value: u128, width: u32| value.checked_shr(width - u32::from(prefix.bits)).unwrap_or(0);
    match (prefix.address, address.to_canonical(), address) {
        (IpAddr::V4(a), IpAddr::V4(b), _) => {
            high(a.to_bits().into(), 32) == high(b.to_bits().into(), 32)
        }
        (IpAddr::V6(a), _, IpAddr::V6(b)) => high(a.to_bits(), 128) == high(b.to_bits(), 128),
        _ => false,
    }
}

#[test]
fn programs_decide_as_the_expressions_they_come_from() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut accepted = 0;
    for round in 0..20_000 {
        let expression = random.expression(round % 7);
        let program = compile(&expression, Operations::ALL).unwrap();
        if program.is_empty() {
            assert!((0..20).all(|_| meaning(&expression, &random.entry())), "{expression:?}");
            continue;
        }
        assert_eq!(audit(&program, Privilege::NetAdmin), Ok(()), "{expression:?}: {program:?}");
        for _ in 0..20 {
            let entry = random.entry();
            let wanted = meaning(&expression, &entry);
            accepted += u32::from(wanted);
            assert_eq!(run(&program, &entry), wanted, "{expression:?} on {entry:?}: {program:?}");
        }
    }
    assert!(
        (50_000..350_000).contains(&accepted),
        "{accepted} acceptances: the cases lean to one side"
    );
}

#[test]
fn a_kernel_without_port_equality_gets_a_host_condition() {
    let wanted = Expression::Condition(Condition::Port(End::Source, PortTest::Equal, 80));
    let program = compile(&wanted, Operations::BASIC).unwrap();
    assert_eq!(program.first(), Some(&code::SOURCE));
    let mut random = Random(7);
    for _ in 0..1_000 {
        let entry = random.entry();
        assert_eq!(run(&program, &entry), entry.source_port == 80);
    }
}

#[test]
fn long_programs_jump_over_more_than_yes_can_hold() {
    let host = |last: u8| {
        let address = Ipv4Addr::new(10, 0, last, 1).into();
        Expression::Condition(Condition::Host(
            End::Destination,
            Some(Prefix { address, bits: 32 }),
            None,
        ))
    };
    let any = Expression::Any((0..=255).map(host).collect());
    let port = Expression::Condition(Condition::Port(End::Destination, PortTest::AtMost, 79));
    let both = Expression::All(vec![Expression::Not(Box::new(any)), port]);
    let program = compile(&both, Operations::ALL).unwrap();
    assert!(program.len() > 4_000);
    assert_eq!(audit(&program, Privilege::None), Ok(()));
    let mut random = Random(11);
    for _ in 0..1_000 {
        let entry = random.entry();
        assert_eq!(run(&program, &entry), meaning(&both, &entry), "{entry:?}");
    }
}

#[test]
fn limits_are_errors() {
    let autobound = || Expression::Condition(Condition::Autobound);
    let long = Expression::Any((0..5_000).map(|_| autobound()).collect());
    assert_eq!(compile(&long, Operations::ALL), Err(CompileError::TooLong));
    let deep = (0..=MAX_DEPTH).fold(autobound(), |inner, _| Expression::Not(Box::new(inner)));
    assert_eq!(compile(&deep, Operations::ALL), Err(CompileError::TooDeep));
    let mark = Condition::Mark { value: 1, mask: 1 };
    assert_eq!(
        compile(&Expression::Condition(mark), Operations::BASIC),
        Err(CompileError::Unsupported(mark))
    );
    let prefix = Prefix { address: Ipv4Addr::LOCALHOST.into(), bits: 33 };
    let host = Expression::Condition(Condition::Host(End::Source, Some(prefix), None));
    assert_eq!(compile(&host, Operations::ALL), Err(CompileError::BadPrefix(prefix)));
}

#[test]
fn the_ends_of_the_scale() {
    assert_eq!(compile(&Expression::Constant(true), Operations::ALL), Ok(vec![]));
    let none = compile(&Expression::Constant(false), Operations::ALL).unwrap();
    let mut expected = vec![code::JUMP, 4];
    expected.extend(8_u16.to_ne_bytes());
    assert_eq!(none, expected);
    assert_eq!(audit(&none, Privilege::None), Ok(()));
    assert!(!run(&none, &Random(3).entry()));
}

#[test]
fn the_check_refuses_what_the_kernel_refuses() {
    let jump = |no: u16| [[code::JUMP, 4], no.to_ne_bytes()].concat();
    let check = |program: &[u8], expected| {
        assert_eq!(audit(program, Privilege::None), expected, "{program:?}")
    };
    check(&jump(4), Ok(()));
    check(&jump(8), Ok(()));
    check(&jump(0), Err(AuditError::Invalid(0)));
    check(&jump(6), Err(AuditError::Invalid(0)));
    check(&jump(12), Err(AuditError::Invalid(0)));
    check(&[], Err(AuditError::Invalid(0)));
    check(&[14, 4, 8, 0], Err(AuditError::Invalid(0)));
    check(&[code::SOURCE, 12, 16, 0, 9, 0, 0, 0, 0, 0, 0, 0], Err(AuditError::Invalid(0)));
    check(&[code::SOURCE, 12, 16, 0, 2, 0, 0, 0, 0, 0, 0, 0], Err(AuditError::Invalid(0)));
    check(&[code::MARK, 12, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0], Err(AuditError::Forbidden));
    // A jump into the data of another operation.
    check(
        &[jump(8), vec![code::DEVICE, 8, 12, 0, 0, 0, 0, 0]].concat(),
        Err(AuditError::Invalid(0)),
    );
}
