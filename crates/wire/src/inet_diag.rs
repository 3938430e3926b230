//! The kernel's socket diagnosis (`include/uapi/linux/inet_diag.h`): requests, replies and multicast events.
//!
//! Numbers are in host byte order, ports and addresses in network byte order.

mod accecn;
pub mod attribute;
pub mod bytecode;
mod id;
mod message;
mod redact;
pub mod request;
mod state;
pub mod tcp_info;
mod ulp;

pub use accecn::{AccEcn, AccEcnLayout};
pub use attribute::{Bbr, Dctcp, MemInfo, Memory, SocketOptions, Vegas};
pub use id::{Family, SocketId};
pub use message::{SOCKET_HEADER_BYTES, SocketMessage, decode, encode, encode_header, is_socket};
pub use redact::redact;
pub use request::{Extensions, Kind, Request};
pub use state::{State, States, Timer};
pub use tcp_info::TcpInfo;
pub use ulp::{Mptcp, Tls, Ulp};
