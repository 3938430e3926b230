use super::TcpInfo;

/// How a kernel lays out the last four bytes of a 280-byte `tcp_info`, which hold the state of accurate ECN (RFC 9768). Nothing
/// in the structure reveals the layout, because both end at the same byte. Only the kernel's release does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccEcnLayout {
    /// Linux 6.18 and 6.19: two numbers of 16 bits, `tcpi_accecn_fail_mode` and `tcpi_accecn_opt_seen`.
    Halves,
    /// Linux 7.0 and later: `tcpi_ecn_mode`, `tcpi_accecn_opt_seen`, `tcpi_accecn_fail_mode` and `tcpi_options2` of 2, 2, 4 and
    /// 24 bits.
    Bits,
}

impl AccEcnLayout {
    /// The layout for a kernel release, as printed by `uname -r`: `6.18.44-amd64`. `None` for an older kernel, which lacks the
    /// bytes or has them from a patch, and for a text that is not a release.
    #[must_use]
    pub fn of_release(release: &str) -> Option<Self> {
        let mut numbers = release.splitn(3, |byte: char| !byte.is_ascii_digit());
        let mut number = || numbers.next()?.parse::<u32>().ok();
        match (number()?, number()?) {
            (6, 18..=19) => Some(Self::Halves),
            (7.., _) => Some(Self::Bits),
            _ => None,
        }
    }
}

/// What a kernel reports about explicit congestion notification on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccEcn {
    /// ECN in use: 0 none, 1 classic (RFC 3168), 2 accurate, 3 being negotiated. `None` in [`AccEcnLayout::Halves`].
    pub ecn_mode: Option<u8>,
    /// Whether the peer's accurate ECN option arrived: 0 not, 1 empty, 2 with counters, 3 it failed.
    pub opt_seen: u8,
    /// Parts of accurate ECN that failed, as a bit set: 1 sending ACE, 2 receiving ACE, 4 sending the option, 8 receiving it.
    pub fail_mode: u8,
    /// More options, 24 bits. `None` in [`AccEcnLayout::Halves`].
    pub options2: Option<u32>,
}

impl TcpInfo<'_> {
    /// The fields of [`accecn_word`](Self::accecn_word) in the layout of the kernel that wrote it. `None` if the structure ends
    /// before them, or if they hold values impossible in this layout: the bytes then come from a different kernel.
    #[must_use]
    pub fn accecn(&self, layout: AccEcnLayout) -> Option<AccEcn> {
        let bytes = self.accecn_word()?.to_ne_bytes();
        match layout {
            AccEcnLayout::Halves => {
                let [a, b, c, d] = bytes;
                let [fail_mode, opt_seen] = [[a, b], [c, d]].map(u16::from_ne_bytes);
                // The kernel stores 4 and 2 bits of them (`struct tcp_sock`).
                let is_possible = fail_mode < 16 && opt_seen < 4;
                is_possible.then_some(AccEcn {
                    ecn_mode: None,
                    opt_seen: opt_seen as u8,
                    fail_mode: fail_mode as u8,
                    options2: None,
                })
            }
            AccEcnLayout::Bits => {
                // Compilers put the first bit field lowest on little-endian hosts, highest on big-endian ones.
                let word = u32::from_ne_bytes(bytes);
                let part = |shift: u32, bits: u32| {
                    let shift =
                        if cfg!(target_endian = "little") { shift } else { 32 - shift - bits };
                    word >> shift & ((1 << bits) - 1)
                };
                Some(AccEcn {
                    ecn_mode: Some(part(0, 2) as u8),
                    opt_seen: part(2, 2) as u8,
                    fail_mode: part(4, 4) as u8,
                    options2: Some(part(8, 24)),
                })
            }
        }
    }
}
