//! Upper-layer protocols on a socket (`INET_DIAG_ULP_INFO`, net/ipv4/tcp_diag.c): kernel TLS and MPTCP.

use super::attribute::{ULP_INFO, prefix};
use crate::DecodeError;
use crate::netlink::{Attributes, MessageWriter};

/// `INET_ULP_INFO_…`.
const NAME: u16 = 1;
const TLS: u16 = 2;
const MPTCP: u16 = 3;

/// The upper-layer protocol on top of TCP inside the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ulp<'a> {
    /// `tls`, `mptcp`, `espintcp`, `smc`, or another module's name.
    pub name: Option<&'a str>,
    /// Kernel TLS, with the fields that the kernel reports.
    pub tls: Option<Tls>,
    /// The socket is a subflow of an MPTCP connection.
    pub mptcp: Option<Mptcp>,
}

/// Declares a structure of optional numbers, one per nested attribute.
macro_rules! nested {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ident = $kind:literal;)*
    } flags {
        $($(#[$flag_doc:meta])* $flag:ident = $flag_kind:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: Option<$type>,)*
            $($(#[$flag_doc])* pub $flag: bool,)*
        }

        impl $name {
            fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
                let mut decoded = Self::default();
                for attribute in Attributes::new(payload) {
                    let (kind, payload) = attribute?;
                    match kind {
                        $($kind => decoded.$field = Some($type::from_ne_bytes(*prefix(ULP_INFO, payload)?)),)*
                        // The kernel represents a flag as an attribute without content (`nla_put_flag`).
                        $($flag_kind => decoded.$flag = true,)*
                        _ => {}
                    }
                }
                Ok(decoded)
            }

            fn encode(&self, out: &mut MessageWriter<'_>) {
                $(if let Some(value) = self.$field {
                    out.attribute($kind, &value.to_ne_bytes());
                })*
                $(if self.$flag {
                    out.attribute($flag_kind, &[]);
                })*
            }
        }
    };
}

nested! {
    /// Kernel TLS (`tls_get_info`, net/tls/tls_main.c).
    Tls {
    /// 0x0303 is TLS 1.2, 0x0304 is TLS 1.3.
    version: u16 = 1;
    /// `TLS_CIPHER_…` (include/uapi/linux/tls.h).
    cipher: u16 = 2;
    /// Sending: 1 by the application, 2 by the kernel, 3 by the device, 4 by the device with its own records.
    tx_conf: u16 = 3;
    /// Receiving: as `tx_conf`.
    rx_conf: u16 = 4;
    /// Largest payload of a record that is sent, in bytes (newer than Linux 6.18).
    tx_max_payload_bytes: u16 = 7;
    } flags {
    /// Files are sent without a copy.
    zero_copy_tx = 5;
    /// Records are expected to have no padding.
    rx_no_padding = 6;
    }
}

nested! {
    /// A subflow of an MPTCP connection (`subflow_get_info`, net/mptcp/diag.c). The sequence numbers need `CAP_NET_ADMIN` on
    /// newer kernels.
    Mptcp {
    /// The peer's token of the connection.
    token_remote: u32 = 1;
    /// Our token of the connection, the same on all its subflows.
    token_local: u32 = 2;
    /// Data written on this subflow, relative to its start.
    relative_write_sequence: u32 = 3;
    /// Data sequence of the current mapping.
    map_sequence: u64 = 4;
    /// Subflow sequence of the current mapping.
    map_subflow_sequence: u32 = 5;
    /// Offset between subflow and TCP sequence.
    subflow_sequence_offset: u32 = 6;
    /// Bytes of the current mapping.
    map_data_bytes: u16 = 7;
    /// `MPTCP_SUBFLOW_FLAG_…`: see [`FLAGS`](Mptcp::FLAGS).
    subflow_flags: u32 = 8;
    /// The peer's id of its address.
    id_remote: u8 = 9;
    /// Our id of our address.
    id_local: u8 = 10;
    } flags {}
}

impl Mptcp {
    /// Bits of [`subflow_flags`](Self::subflow_flags) by number.
    pub const FLAGS: &[&str] = &[
        "mp_capable_remote",
        "mp_capable_local",
        "join_remote",
        "join_local",
        "backup_remote",
        "backup_local",
        "fully_established",
        "connected",
        "map_valid",
    ];
}

impl<'a> Ulp<'a> {
    pub(super) fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut ulp = Self::default();

        for attribute in Attributes::new(payload) {
            let (kind, payload) = attribute?;
            match kind {
                NAME => ulp.name = Some(text(ULP_INFO, payload)?),
                TLS => ulp.tls = Some(Tls::decode(payload)?),
                MPTCP => ulp.mptcp = Some(Mptcp::decode(payload)?),
                _ => {}
            }
        }

        Ok(ulp)
    }

    pub(super) fn encode(&self, out: &mut MessageWriter<'_>) {
        if let Some(name) = self.name {
            out.text(NAME, name);
        }
        if let Some(tls) = self.tls {
            out.nested(TLS, |out| tls.encode(out));
        }
        if let Some(mptcp) = self.mptcp {
            out.nested(MPTCP, |out| mptcp.encode(out));
        }
    }
}

/// The text before the first zero byte, or the whole payload without one.
#[inline]
pub(super) fn text(kind: u16, payload: &[u8]) -> Result<&str, DecodeError> {
    let end = payload.iter().position(|&byte| byte == 0).unwrap_or(payload.len());
    str::from_utf8(payload.get(..end).unwrap_or_default())
        .map_err(|_| DecodeError::BadText { kind })
}
