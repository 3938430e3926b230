//! Checks and runs programs by the kernel's rules (`net/ipv4/inet_diag.c`).
//!
//! For captures, where no kernel is involved, and for testing [`compile`](super::compile).

use super::{ADDRESS_FAMILY_INET, ADDRESS_FAMILY_INET6, ADDRESS_FAMILY_UNSPECIFIED, code};
use std::net::IpAddr;

/// What a program can see of a socket (`struct inet_diag_entry`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Local address. Both addresses have the same family; an IPv4-mapped one stays IPv6.
    pub source: IpAddr,
    /// The peer's address; all zero without a peer.
    pub destination: IpAddr,
    /// Local port, in host byte order.
    pub source_port: u16,
    /// The peer's port, in host byte order; 0 without a peer.
    pub destination_port: u16,
    /// Interface that the socket is bound to; 0 for none.
    pub interface_index: u32,
    /// The local port was not chosen by `bind`.
    pub autobound: bool,
    /// `SO_MARK`.
    pub mark: u32,
    /// Id of the version 2 cgroup; 0 for a minisocket.
    pub cgroup_id: u64,
}

/// Why the kernel would refuse a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditError {
    /// EINVAL: the operation at this offset is unknown, truncated, or jumps to a place where no operation begins.
    Invalid(usize),
    /// EPERM: a condition on the mark without CAP_NET_ADMIN.
    Forbidden,
}

/// Whether the caller holds CAP_NET_ADMIN over the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// It does.
    NetAdmin,
    /// It does not.
    None,
}

struct Operation<'a> {
    code: u8,
    yes: usize,
    no: usize,
    data: &'a [u8],
}

impl<'a> Operation<'a> {
    fn at(program: &'a [u8], offset: usize) -> Option<Self> {
        let rest = program.get(offset..)?;
        let (&[code, yes, low, high], data) = rest.split_first_chunk::<4>()?;
        Some(Self { code, yes: yes.into(), no: u16::from_ne_bytes([low, high]).into(), data })
    }

    /// Bytes that the operation needs, including its header; `None` for an unknown operation or a wrong address.
    fn size(&self) -> Option<usize> {
        let data = match self.code {
            code::NOP | code::JUMP | code::AUTOBOUND => 0,
            code::SOURCE | code::DESTINATION => 8 + self.address_bytes()?,
            code::MARK | code::CGROUP => 8,
            code::SOURCE_PORT_AT_LEAST..=code::DESTINATION_PORT_AT_MOST
            | code::SOURCE_PORT_EQUAL
            | code::DESTINATION_PORT_EQUAL
            | code::DEVICE => 4,
            _ => return None,
        };
        (self.data.len() >= data).then_some(4 + data)
    }

    fn address_bytes(&self) -> Option<usize> {
        let bytes = match *self.data.first()? {
            ADDRESS_FAMILY_UNSPECIFIED => 0,
            ADDRESS_FAMILY_INET => 4,
            ADDRESS_FAMILY_INET6 => 16,
            _ => return None,
        };
        (usize::from(*self.data.get(1)?) <= 8 * bytes).then_some(bytes)
    }
}

/// The kernel's check of a program before it runs (`inet_diag_bc_audit`).
///
/// # Errors
///
/// [`AuditError`] is the error that the request would get.
pub fn audit(program: &[u8], privilege: Privilege) -> Result<(), AuditError> {
    let len = program.len();
    let mut offset = 0;
    if len < 4 {
        return Err(AuditError::Invalid(0));
    }

    while offset < len {
        let refused = AuditError::Invalid(offset);
        let operation = Operation::at(program, offset).ok_or(refused)?;
        if operation.code == code::MARK && privilege == Privilege::None {
            return Err(AuditError::Forbidden);
        }

        let size = operation.size().ok_or(refused)?;
        let left = len - offset;
        let fits = |distance: usize| {
            distance >= size && distance <= left + 4 && distance.is_multiple_of(4)
        };
        // There are no operations beyond the program: a jump there accepts or rejects.
        let lands = operation.no >= left || begins_operation(program, offset + operation.no);
        // The kernel ignores the `no` of a NOP.
        if !fits(operation.yes) || (operation.code != code::NOP && !(fits(operation.no) && lands)) {
            return Err(refused);
        }

        offset += operation.yes;
    }

    if offset == len { Ok(()) } else { Err(AuditError::Invalid(len)) }
}

/// `valid_cc`: whether the walk by `yes` reaches this offset.
fn begins_operation(program: &[u8], target: usize) -> bool {
    let mut offset = 0;
    while offset < target {
        match Operation::at(program, offset) {
            Some(operation) if operation.yes >= 4 && operation.yes.is_multiple_of(4) => {
                offset += operation.yes
            }
            _ => return false,
        }
    }
    offset == target
}

/// Whether a program accepts a socket (`inet_diag_bc_run`). An empty program accepts all; the result for a program
/// that [`audit`] refuses is meaningless.
#[must_use]
pub fn run(program: &[u8], entry: &Entry) -> bool {
    let mut offset = 0;
    while offset < program.len() {
        let Some(operation) = Operation::at(program, offset) else { return false };
        let yes = holds(&operation, entry).unwrap_or(false);
        // An audited program advances at least four bytes; an unaudited one must not loop forever.
        offset += if yes { operation.yes } else { operation.no }.max(4);
    }
    offset == program.len()
}

fn holds(operation: &Operation<'_>, entry: &Entry) -> Option<bool> {
    let data = operation.data;
    Some(match operation.code {
        code::NOP => true,
        code::SOURCE_PORT_EQUAL => entry.source_port == port(data)?,
        code::SOURCE_PORT_AT_LEAST => entry.source_port >= port(data)?,
        code::SOURCE_PORT_AT_MOST => entry.source_port <= port(data)?,
        code::DESTINATION_PORT_EQUAL => entry.destination_port == port(data)?,
        code::DESTINATION_PORT_AT_LEAST => entry.destination_port >= port(data)?,
        code::DESTINATION_PORT_AT_MOST => entry.destination_port <= port(data)?,
        code::AUTOBOUND => entry.autobound,
        code::SOURCE => host_holds(data, entry.source, entry.source_port)?,
        code::DESTINATION => host_holds(data, entry.destination, entry.destination_port)?,
        code::DEVICE => entry.interface_index == word(data, 0)?,
        code::MARK => entry.mark & word(data, 4)? == word(data, 0)?,
        code::CGROUP => entry.cgroup_id.to_ne_bytes().as_slice() == data.get(..8)?,
        // A jump takes its `no`; the kernel's check lets nothing else get here.
        _ => false,
    })
}

fn host_holds(data: &[u8], address: IpAddr, port: u16) -> Option<bool> {
    let (&[family, bits, ..], rest) = data.split_first_chunk::<8>()?;
    let wanted_port = i32::from_ne_bytes(*data.get(4..8)?.first_chunk()?);
    if wanted_port != -1 && wanted_port != i32::from(port) {
        return Some(false);
    }

    let bits = usize::from(bits);
    Some(match (family, address) {
        (ADDRESS_FAMILY_UNSPECIFIED, _) => true,
        (ADDRESS_FAMILY_INET, IpAddr::V4(v4)) => same_bits(&v4.octets(), rest, bits),
        (ADDRESS_FAMILY_INET, IpAddr::V6(v6)) => {
            v6.to_ipv4_mapped().is_some_and(|v4| same_bits(&v4.octets(), rest, bits))
        }
        (ADDRESS_FAMILY_INET6, IpAddr::V6(v6)) => same_bits(&v6.octets(), rest, bits),
        _ => false,
    })
}

/// `bitstring_match`, on bytes.
fn same_bits(a: &[u8], b: &[u8], bits: usize) -> bool {
    let (whole, left) = (bits / 8, bits % 8);
    if a.get(..whole).is_none() || a.get(..whole) != b.get(..whole) {
        return false;
    }
    let mask = !(u8::MAX >> left);
    match (a.get(whole), b.get(whole)) {
        (Some(a), Some(b)) => (a ^ b) & mask == 0,
        _ => left == 0,
    }
}

fn port(data: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*data.get(2..4)?.first_chunk()?))
}

fn word(data: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*data.get(offset..)?.first_chunk()?))
}
