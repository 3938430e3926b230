//! QUIC as a transport of the lab: quinn as it is shipped, one unidirectional stream a message.
//!
//! What is not quinn's default is what would decide the comparison by itself: streams enough for every message that may be on its way, and
//! a packet of its own for each datagram. Where the kernel takes runs of datagrams apart late, the lab's network loses a run whole.

use super::tls;
use lab::experiment::model::{LinkSummary, TransportName};
use lab::transport::{
    Listening, RECEIVE_BUFFER_BYTES, Received, Receiving, Sending, Sent, Transport,
};
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::{AckFrequencyConfig, Connection, ConnectionStats, Endpoint, TransportConfig, VarInt};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

/// QUIC with one way to control congestion.
pub(super) struct Quic {
    congestion: Congestion,
    acknowledges: Acknowledges,
}

#[derive(Clone, Copy)]
enum Congestion {
    Bbr,
    Cubic,
}

/// When the receiving end acknowledges.
#[derive(Clone, Copy)]
enum Acknowledges {
    /// After two packets, or 25 ms (RFC 9000 section 13.2).
    ByDefault,
    /// Each packet, as the sender asks of it (draft-ietf-quic-ack-frequency).
    Each,
}

/// Every kind that is compared.
pub(super) fn all() -> [Quic; 3] {
    [
        Quic { congestion: Congestion::Bbr, acknowledges: Acknowledges::ByDefault },
        Quic { congestion: Congestion::Bbr, acknowledges: Acknowledges::Each },
        Quic { congestion: Congestion::Cubic, acknowledges: Acknowledges::ByDefault },
    ]
}

/// Streams that may be open at a time: as many as Weir's link has packets on their way.
const STREAMS_MAX: u32 = 65_536;
/// More than any message of the lab has.
const MESSAGE_BYTES_MAX: usize = 65_536;

impl Quic {
    fn config(&self) -> Arc<TransportConfig> {
        let mut config = TransportConfig::default();
        config.max_concurrent_uni_streams(VarInt::from_u32(STREAMS_MAX));
        config.enable_segmentation_offload(false);
        match self.congestion {
            Congestion::Bbr => config.congestion_controller_factory(Arc::new(BbrConfig::default())),
            Congestion::Cubic => {
                config.congestion_controller_factory(Arc::new(CubicConfig::default()))
            }
        };
        if let Acknowledges::Each = self.acknowledges {
            let mut frequency = AckFrequencyConfig::default();
            frequency.ack_eliciting_threshold(VarInt::from_u32(0));
            frequency.max_ack_delay(Some(Duration::from_millis(1)));
            config.ack_frequency_config(Some(frequency));
        }
        Arc::new(config)
    }
}

impl Transport for Quic {
    fn name(&self) -> TransportName {
        TransportName::new(match (self.congestion, self.acknowledges) {
            (Congestion::Bbr, Acknowledges::ByDefault) => "quic-bbr",
            (Congestion::Bbr, Acknowledges::Each) => "quic-bbr-acks",
            (Congestion::Cubic, Acknowledges::ByDefault) => "quic-cubic",
            (Congestion::Cubic, Acknowledges::Each) => "quic-cubic-acks",
        })
    }

    fn options(&self) -> String {
        let acknowledges = match self.acknowledges {
            Acknowledges::ByDefault => "",
            Acknowledges::Each => ", each packet acknowledged at once",
        };
        format!(
            "quinn, a stream a message, no segmentation offload, {STREAMS_MAX} streams{acknowledges}"
        )
    }

    fn repairs_for(&self) -> Duration {
        Duration::MAX
    }

    fn listen(&self, addr: SocketAddr) -> io::Result<Box<dyn Listening>> {
        let (socket, runtime) = (UdpSocket::bind(addr)?, runtime()?);
        sys::socket::set_receive_buffer(socket.as_fd(), RECEIVE_BUFFER_BYTES)?;
        let mut config = tls::server()?;
        config.transport_config(self.config());
        let endpoint = endpoint(&runtime, &socket, Some(config))?;

        let (connected, connection) = oneshot::channel();
        let (arrive, arrived) = mpsc::unbounded_channel();
        runtime.spawn(serve(endpoint, connected, arrive));
        let driver = Driver::start("quic-listen", runtime)?;
        Ok(Box::new(Waiting { socket, connection, arrived, driver }))
    }

    fn connect(&self, to: SocketAddr, deadline: Instant) -> io::Result<Box<dyn Sending>> {
        let (socket, runtime) = (UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?, runtime()?);
        let mut config = tls::client()?;
        config.transport_config(self.config());
        let endpoint = endpoint(&runtime, &socket, None)?;

        let connect = async {
            let connection = endpoint.connect_with(config, to, "lab").map_err(io::Error::other)?;
            let connection = connection.await?;
            // The other end greets when it has the whole handshake: nothing of it is left to be repaired among the messages.
            let mut greeting = connection.accept_uni().await?;
            greeting.read_to_end(0).await.map_err(io::Error::other)?;
            io::Result::Ok(connection)
        };
        let connection = runtime
            .block_on(async { tokio::time::timeout_at(deadline.into(), connect).await })??;

        let (messages, to_send) = mpsc::unbounded_channel();
        runtime.spawn(send_all(connection.clone(), to_send));
        let before = connection.stats();
        let driver = Driver::start("quic-send", runtime)?;
        Ok(Box::new(Sender { socket, connection, before, messages, taken: 0, _driver: driver }))
    }
}

/// One thread does the work of an end, as with Weir's link.
fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn endpoint(
    runtime: &Runtime,
    socket: &UdpSocket,
    config: Option<quinn::ServerConfig>,
) -> io::Result<Endpoint> {
    let _entered = runtime.enter();
    let (options, runtime) = (quinn::EndpointConfig::default(), Arc::new(quinn::TokioRuntime));
    Endpoint::new(options, config, socket.try_clone()?, runtime)
}

/// Takes the one connection, greets, and hands on each message when it is whole.
async fn serve(
    endpoint: Endpoint,
    connected: oneshot::Sender<Connection>,
    arrive: mpsc::UnboundedSender<Vec<u8>>,
) -> io::Result<()> {
    let Some(incoming) = endpoint.accept().await else { return Ok(()) };
    let connection = incoming.await?;
    connection.open_uni().await?.finish().map_err(io::Error::other)?;
    // Nobody waits any more where the flow was given up.
    let _ = connected.send(connection.clone());

    loop {
        let (mut stream, arrive) = (connection.accept_uni().await?, arrive.clone());
        tokio::spawn(async move {
            if let Ok(message) = stream.read_to_end(MESSAGE_BYTES_MAX).await {
                let _ = arrive.send(message);
            }
        });
    }
}

/// Sends each message in a stream of its own, until the flow ends.
async fn send_all(
    connection: Connection,
    mut messages: mpsc::UnboundedReceiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        let mut stream = connection.open_uni().await?;
        stream.write_all(&message).await?;
        stream.finish().map_err(io::Error::other)?;
    }
    Ok(())
}

/// A thread that runs the tasks of an end until this is dropped, or somebody takes them over.
struct Driver {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Runtime>,
}

impl Driver {
    fn start(name: &str, runtime: Runtime) -> io::Result<Driver> {
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            sys::poll::set_timer_slack(Duration::ZERO);
            // That the other half was dropped is the signal.
            let _ = runtime.block_on(stopped);
            runtime
        })?;
        Ok(Driver { stop, thread })
    }

    fn take_over(self) -> io::Result<Runtime> {
        drop(self.stop);
        self.thread.join().map_err(|_| io::Error::other("the thread of an end panicked"))
    }
}

struct Waiting {
    socket: UdpSocket,
    connection: oneshot::Receiver<Connection>,
    arrived: mpsc::UnboundedReceiver<Vec<u8>>,
    driver: Driver,
}

impl Listening for Waiting {
    fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn accept(self: Box<Self>, _deadline: Instant) -> io::Result<Box<dyn Receiving>> {
        let Waiting { socket, mut connection, arrived, driver } = *self;
        // The sender has been greeted, so it is there.
        let connection = connection.try_recv().map_err(io::Error::other)?;
        let before = connection.stats();
        let driver = Some(driver);
        let end =
            Receiver { socket, connection, before, arrived, accepted: 0, driver, runtime: None };
        Ok(Box::new(end))
    }
}

struct Receiver {
    socket: UdpSocket,
    connection: Connection,
    before: ConnectionStats,
    arrived: mpsc::UnboundedReceiver<Vec<u8>>,
    accepted: u64,
    /// Until somebody receives: the connection must not stand still meanwhile.
    driver: Option<Driver>,
    /// From then on its tasks are run by the thread that receives, as with the other transports: waking a second one would add to each delay.
    runtime: Option<Runtime>,
}

impl Receiving for Receiver {
    fn receive(&mut self, message: &mut [u8], deadline: Instant) -> io::Result<Received> {
        if let Some(driver) = self.driver.take() {
            sys::poll::set_timer_slack(Duration::ZERO);
            self.runtime = Some(driver.take_over()?);
        }
        let runtime = self.runtime.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;

        let next = self.arrived.recv();
        let next = runtime.block_on(async { tokio::time::timeout_at(deadline.into(), next).await });
        match next {
            Ok(Some(arrived)) if arrived.len() == message.len() => {
                message.copy_from_slice(&arrived);
                self.accepted += 1;
                Ok(Received::Message)
            }
            Ok(Some(_)) => Err(io::ErrorKind::InvalidData.into()),
            Ok(None) => Ok(Received::End),
            Err(_) => Ok(Received::Nothing),
        }
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn link(&self) -> Option<LinkSummary> {
        let (now, before) = (self.connection.stats().udp_tx, self.before.udp_tx);
        Some(LinkSummary {
            reports: now.datagrams - before.datagrams,
            report_bytes: now.bytes - before.bytes,
            accepted: self.accepted,
            ..LinkSummary::default()
        })
    }
}

struct Sender {
    socket: UdpSocket,
    connection: Connection,
    before: ConnectionStats,
    messages: mpsc::UnboundedSender<Vec<u8>>,
    taken: u64,
    _driver: Driver,
}

impl Sending for Sender {
    fn send(&mut self, message: &[u8], _deadline: Instant) -> io::Result<Sent> {
        if self.messages.send(message.to_vec()).is_err() {
            let reason = self.connection.close_reason();
            return Err(reason.map_or(io::ErrorKind::BrokenPipe.into(), io::Error::from));
        }
        self.taken += 1;
        Ok(Sent::Taken)
    }

    fn go_on(&mut self, _deadline: Instant) -> io::Result<Sent> {
        Ok(Sent::Taken)
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn tcp(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Of a message's fate QUIC tells the sender nothing: all of them stay open.
    fn link(&self) -> Option<LinkSummary> {
        let (now, before) = (self.connection.stats(), self.before);
        Some(LinkSummary {
            packets: now.udp_tx.datagrams - before.udp_tx.datagrams,
            repairs: now.path.lost_packets - before.path.lost_packets,
            sent_bytes: now.udp_tx.bytes - before.udp_tx.bytes,
            taken: self.taken,
            open: self.taken,
            ..LinkSummary::default()
        })
    }
}
