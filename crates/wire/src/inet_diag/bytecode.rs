//! Filter programs that the kernel runs on each socket of a dump (`INET_DIAG_REQ_BYTECODE`).
//!
//! A program is a list of operations `{u8 code, u8 yes, u16 no}`, each followed by its data. `yes` and `no` are forward
//! distances in bytes. A program accepts by ending exactly at its length, and rejects by jumping four bytes beyond it
//! (`net/ipv4/inet_diag.c`, `inet_diag_bc_run`). The kernel's check also walks the program by `yes`
//! (`inet_diag_bc_audit`), so here it is always the operation's own size, and a far jump is a separate operation.

mod interpreter;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

pub use interpreter::{AuditError, Entry, Privilege, audit, run};

/// Longest program that [`compile`] makes, in bytes. The kernel's check walks a program once per jump, so its cost is
/// quadratic; up to this length it takes less than a few milliseconds.
pub const MAX_PROGRAM_BYTES: usize = 16 * 1024;

/// Deepest nesting of an [`Expression`] that [`compile`] accepts.
pub const MAX_DEPTH: usize = 128;

const ADDRESS_FAMILY_UNSPECIFIED: u8 = 0;
const ADDRESS_FAMILY_INET: u8 = 2;
const ADDRESS_FAMILY_INET6: u8 = 10;

/// `include/uapi/linux/inet_diag.h`, `INET_DIAG_BC_*`.
mod code {
    pub(super) const NOP: u8 = 0;
    pub(super) const JUMP: u8 = 1;
    pub(super) const SOURCE_PORT_AT_LEAST: u8 = 2;
    pub(super) const SOURCE_PORT_AT_MOST: u8 = 3;
    pub(super) const DESTINATION_PORT_AT_LEAST: u8 = 4;
    pub(super) const DESTINATION_PORT_AT_MOST: u8 = 5;
    pub(super) const AUTOBOUND: u8 = 6;
    pub(super) const SOURCE: u8 = 7;
    pub(super) const DESTINATION: u8 = 8;
    pub(super) const DEVICE: u8 = 9;
    pub(super) const MARK: u8 = 10;
    pub(super) const SOURCE_PORT_EQUAL: u8 = 11;
    pub(super) const DESTINATION_PORT_EQUAL: u8 = 12;
    pub(super) const CGROUP: u8 = 13;
}

/// The end of a connection that a condition tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The local end.
    Source,
    /// The peer.
    Destination,
}

/// How a port is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortTest {
    /// The port equals this one.
    Equal,
    /// The port is this one or higher.
    AtLeast,
    /// The port is this one or lower.
    AtMost,
}

/// Addresses that share a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The address. An IPv4 one also matches IPv4-mapped addresses of IPv6 sockets; an IPv6 one matches IPv6 sockets only.
    pub address: IpAddr,
    /// How many leading bits count, 0 to 32 or 128. With 0, every socket of the address's family matches (for IPv4,
    /// IPv4-mapped ones too).
    pub bits: u8,
}

/// A condition that the kernel can test on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Condition {
    /// A comparison of a port, in host byte order.
    Port(End, PortTest, u16),
    /// An address, a port, or both. With neither, every socket matches.
    Host(End, Option<Prefix>, Option<u16>),
    /// The local port was not chosen by `bind` (`SOCK_BINDPORT_LOCK` is off). True for accepted sockets and TIME-WAIT.
    Autobound,
    /// The socket is bound to the interface with this index; 0 means not bound to any.
    Device(u32),
    /// `mark & mask == value`. The kernel refuses the program without CAP_NET_ADMIN.
    Mark {
        /// The required value of the masked mark.
        value: u32,
        /// Bits of the mark that count.
        mask: u32,
    },
    /// The socket belongs to the cgroup with this id (version 2 hierarchy), not to a descendant. Since Linux 5.8.
    Cgroup(u64),
}

/// A boolean tree of conditions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Expression {
    /// Every socket (`true`) or none (`false`).
    Constant(bool),
    /// A single condition.
    Condition(Condition),
    /// Negation.
    Not(Box<Expression>),
    /// All of them; with none, every socket.
    All(Vec<Expression>),
    /// At least one of them; with none, no socket.
    Any(Vec<Expression>),
}

/// Operations that not every kernel has or permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations {
    /// Comparing ports for equality (Linux 4.16). Without it, a host condition does the same in four more bytes.
    pub port_equal: bool,
    /// [`Condition::Mark`]: needs CAP_NET_ADMIN over the namespace.
    pub mark: bool,
    /// [`Condition::Cgroup`]: Linux 5.8 with cgroup socket data.
    pub cgroup: bool,
}

impl Operations {
    /// Everything that Linux 6.18 knows, with CAP_NET_ADMIN.
    pub const ALL: Operations = Operations { port_equal: true, mark: true, cgroup: true };
    /// What every kernel since 4.4 accepts from every user.
    pub const BASIC: Operations = Operations { port_equal: false, mark: false, cgroup: false };

    /// Whether the kernel accepts this condition.
    #[must_use]
    pub fn allow(self, condition: &Condition) -> bool {
        match condition {
            Condition::Mark { .. } => self.mark,
            Condition::Cgroup(_) => self.cgroup,
            Condition::Port(..)
            | Condition::Host(..)
            | Condition::Autobound
            | Condition::Device(_) => true,
        }
    }
}

/// Why an expression could not be compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompileError {
    /// The program would be longer than [`MAX_PROGRAM_BYTES`].
    TooLong,
    /// The expression nests deeper than [`MAX_DEPTH`].
    TooDeep,
    /// A condition not included in [`Operations`].
    Unsupported(Condition),
    /// A prefix longer than its address.
    BadPrefix(Prefix),
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CompileError::TooLong => {
                write!(f, "the program is longer than {MAX_PROGRAM_BYTES} bytes")
            }
            CompileError::TooDeep => write!(f, "the expression nests deeper than {MAX_DEPTH}"),
            CompileError::Unsupported(condition) => {
                write!(f, "the kernel does not take {condition:?}")
            }
            CompileError::BadPrefix(prefix) => {
                write!(f, "{}/{} is longer than its address", prefix.address, prefix.bits)
            }
        }
    }
}

impl std::error::Error for CompileError {}

/// Compiles an expression into a program for `INET_DIAG_REQ_BYTECODE`. Empty when the expression is true for every socket:
/// omit the attribute then, because the kernel refuses an empty one.
///
/// # Errors
///
/// [`CompileError`] says what is impossible; the caller must then evaluate the expression itself.
pub fn compile(expression: &Expression, operations: Operations) -> Result<Vec<u8>, CompileError> {
    let mut program =
        Program { bytes: Vec::new(), jumps: Vec::new(), labels: Vec::new(), operations };
    // Both are resolved at the end: they are beyond the program.
    let accept = program.label();
    let reject = program.label();
    program.expression(expression, Ways { yes: accept, no: reject, next: accept }, 0)?;

    let len = program.bytes.len();
    program.place(accept);
    // Four bytes beyond the end, where the kernel rejects.
    program.labels[reject.0] = Some(len + size_of::<u32>());
    program.link()
}

/// A position in the program that is only known once everything before it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Label(usize);

/// Where control goes after an expression.
#[derive(Clone, Copy)]
struct Ways {
    yes: Label,
    no: Label,
    /// The label directly after the expression, which needs no jump.
    next: Label,
}

struct Jump {
    /// Where the operation begins.
    from: usize,
    to: Label,
}

struct Program {
    bytes: Vec<u8>,
    jumps: Vec<Jump>,
    labels: Vec<Option<usize>>,
    operations: Operations,
}

impl Program {
    fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.bytes.len());
    }

    fn expression(
        &mut self,
        expression: &Expression,
        ways: Ways,
        depth: usize,
    ) -> Result<(), CompileError> {
        if depth > MAX_DEPTH {
            return Err(CompileError::TooDeep);
        }
        if self.bytes.len() > MAX_PROGRAM_BYTES {
            return Err(CompileError::TooLong);
        }

        match expression {
            Expression::Constant(true) => self.go(ways.yes, ways.next),
            Expression::Constant(false) => self.go(ways.no, ways.next),
            Expression::Condition(condition) => self.condition(condition, ways)?,
            Expression::Not(inner) => {
                let opposite = Ways { yes: ways.no, no: ways.yes, next: ways.next };
                self.expression(inner, opposite, depth + 1)?;
            }
            Expression::All(parts) => self.all(parts, ways, depth)?,
            Expression::Any(parts) => self.any(parts, ways, depth)?,
        }
        Ok(())
    }

    fn all(&mut self, parts: &[Expression], ways: Ways, depth: usize) -> Result<(), CompileError> {
        let Some((last, earlier)) = parts.split_last() else {
            self.go(ways.yes, ways.next);
            return Ok(());
        };

        for part in earlier {
            // If this part is true, control continues with the next one, directly after it.
            let following = self.label();
            self.expression(
                part,
                Ways { yes: following, no: ways.no, next: following },
                depth + 1,
            )?;
            self.place(following);
        }

        self.expression(last, ways, depth + 1)
    }

    fn any(&mut self, parts: &[Expression], ways: Ways, depth: usize) -> Result<(), CompileError> {
        let Some((last, earlier)) = parts.split_last() else {
            self.go(ways.no, ways.next);
            return Ok(());
        };

        for part in earlier {
            // If this part is false, control continues with the next one, directly after it.
            let following = self.label();
            self.expression(
                part,
                Ways { yes: ways.yes, no: following, next: following },
                depth + 1,
            )?;
            self.place(following);
        }

        self.expression(last, ways, depth + 1)
    }

    fn condition(&mut self, condition: &Condition, ways: Ways) -> Result<(), CompileError> {
        if !self.operations.allow(condition) {
            return Err(CompileError::Unsupported(*condition));
        }

        match *condition {
            Condition::Port(end, PortTest::Equal, port) if !self.operations.port_equal => {
                self.host(end, None, Some(port), ways.no)?;
            }
            Condition::Port(end, test, port) => {
                self.operation(port_code(end, test), &port_data(port), ways.no)
            }
            Condition::Host(_, None, None) => {}
            Condition::Host(end, prefix, port) => self.host(end, prefix, port, ways.no)?,
            Condition::Autobound => self.operation(code::AUTOBOUND, &[], ways.no),
            Condition::Device(index) => self.operation(code::DEVICE, &index.to_ne_bytes(), ways.no),
            Condition::Mark { value, mask } => {
                let [value, mask] = [value.to_ne_bytes(), mask.to_ne_bytes()];
                self.operation(code::MARK, &[value, mask].concat(), ways.no);
            }
            Condition::Cgroup(id) => self.operation(code::CGROUP, &id.to_ne_bytes(), ways.no),
        }

        self.go(ways.yes, ways.next);
        Ok(())
    }

    /// `struct inet_diag_hostcond`: family, prefix length, two bytes of padding, port (-1 for any) and address.
    fn host(
        &mut self,
        end: End,
        prefix: Option<Prefix>,
        port: Option<u16>,
        no: Label,
    ) -> Result<(), CompileError> {
        let (family, bits, address) = match prefix {
            None => (ADDRESS_FAMILY_UNSPECIFIED, 0, Vec::new()),
            Some(Prefix { address: IpAddr::V4(v4), bits }) => {
                (ADDRESS_FAMILY_INET, bits, v4.octets().to_vec())
            }
            Some(Prefix { address: IpAddr::V6(v6), bits }) => {
                (ADDRESS_FAMILY_INET6, bits, v6.octets().to_vec())
            }
        };

        // The kernel refuses a program with such a prefix (`valid_hostcond`).
        if let Some(prefix) = prefix.filter(|_| usize::from(bits) > 8 * address.len()) {
            return Err(CompileError::BadPrefix(prefix));
        }

        let mut data = vec![family, bits, 0, 0];
        data.extend(port.map_or(-1, i32::from).to_ne_bytes());
        data.extend(address);
        self.operation(host_code(end), &data, no);
        Ok(())
    }

    /// Writes an operation that continues after itself when true, and at `no` when false.
    fn operation(&mut self, code: u8, data: &[u8], no: Label) {
        let size = u8::try_from(4 + data.len()).expect("the longest operation has 28 bytes");
        self.jumps.push(Jump { from: self.bytes.len(), to: no });
        // `yes` leads directly after the operation; `link` fills in `no`.
        self.bytes.extend([code, size, 0, 0]);
        self.bytes.extend(data);
    }

    fn go(&mut self, to: Label, next: Label) {
        // The next label is reached without a jump.
        if to != next {
            self.operation(code::JUMP, &[], to);
        }
    }

    fn link(mut self) -> Result<Vec<u8>, CompileError> {
        if self.bytes.len() > MAX_PROGRAM_BYTES {
            return Err(CompileError::TooLong);
        }

        for jump in &self.jumps {
            let target =
                self.labels[jump.to.0].expect("every label is placed before the program is linked");
            let distance =
                u16::try_from(target - jump.from).expect("MAX_PROGRAM_BYTES is below 65535");
            self.bytes[jump.from + 2..jump.from + 4].copy_from_slice(&distance.to_ne_bytes());
        }

        Ok(self.bytes)
    }
}

fn port_code(end: End, test: PortTest) -> u8 {
    match (end, test) {
        (End::Source, PortTest::Equal) => code::SOURCE_PORT_EQUAL,
        (End::Source, PortTest::AtLeast) => code::SOURCE_PORT_AT_LEAST,
        (End::Source, PortTest::AtMost) => code::SOURCE_PORT_AT_MOST,
        (End::Destination, PortTest::Equal) => code::DESTINATION_PORT_EQUAL,
        (End::Destination, PortTest::AtLeast) => code::DESTINATION_PORT_AT_LEAST,
        (End::Destination, PortTest::AtMost) => code::DESTINATION_PORT_AT_MOST,
    }
}

fn host_code(end: End) -> u8 {
    match end {
        End::Source => code::SOURCE,
        End::Destination => code::DESTINATION,
    }
}

/// The port is in the `no` field of a second operation.
fn port_data(port: u16) -> [u8; 4] {
    let [low, high] = port.to_ne_bytes();
    [0, 0, low, high]
}
