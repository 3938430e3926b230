//! QUIC as a transport of the lab: quinn as shipped, with one unidirectional stream per message.
//!
//! Two settings differ from quinn's defaults, because they would decide the comparison on their own: enough streams for every
//! message that may be in flight, and a packet of its own for each datagram. With segmentation offload, the lab's network would
//! lose whole runs of datagrams that the kernel splits late.

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

/// QUIC with one congestion control algorithm.
pub(super) struct Quic {
    congestion: Congestion,
    acknowledges: Acknowledges,
}

#[derive(Clone, Copy)]
enum Congestion {
    Bbr,
    Cubic,
}

/// When the receiving end sends acknowledgments.
#[derive(Clone, Copy)]
enum Acknowledges {
    /// After two packets, or 25 ms (RFC 9000 section 13.2).
    ByDefault,
    /// After each packet, as the sender requests (draft-ietf-quic-ack-frequency).
    Each,
}

/// All variants in the comparison.
pub(super) fn all() -> [Quic; 3] {
    [
        Quic { congestion: Congestion::Bbr, acknowledges: Acknowledges::ByDefault },
        Quic { congestion: Congestion::Bbr, acknowledges: Acknowledges::Each },
        Quic { congestion: Congestion::Cubic, acknowledges: Acknowledges::ByDefault },
    ]
}

/// Most streams open at a time: the number of packets that Weir's link may have in flight.
const STREAMS_MAX: u32 = 65_536;
/// More than the size of any message in the lab.
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
            // The other end sends a greeting once it has the whole handshake, so that no handshake packet is retransmitted among
            // the messages.
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

/// One thread does the work of each end, as for Weir's link.
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

/// Accepts the only connection, sends the greeting, and passes on each message once it is complete.
async fn serve(
    endpoint: Endpoint,
    connected: oneshot::Sender<Connection>,
    arrive: mpsc::UnboundedSender<Vec<u8>>,
) -> io::Result<()> {
    let Some(incoming) = endpoint.accept().await else { return Ok(()) };
    let connection = incoming.await?;
    connection.open_uni().await?.finish().map_err(io::Error::other)?;
    // The receiver is gone if the flow was given up.
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

/// A thread that runs the tasks of an end until it is dropped, or until another thread takes them over.
struct Driver {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Runtime>,
}

impl Driver {
    fn start(name: &str, runtime: Runtime) -> io::Result<Driver> {
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            sys::poll::set_timer_slack(Duration::ZERO);
            // Dropping the other half is the signal.
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
        // The sender has received the greeting, so the connection exists.
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
    /// Until the first receive, so that the connection makes progress.
    driver: Option<Driver>,
    /// From then on the receiving thread runs the tasks, as for the other transports: waking a second thread would add to each
    /// delay.
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

    /// QUIC does not tell the sender what became of a message, so all of them count as open.
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
