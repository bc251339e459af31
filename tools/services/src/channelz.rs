//! `grpc.channelz.v1.Channelz`: whom the daemon is connected to, and what became of calls (gRFC A14).
//!
//! The daemon is one server; connections others made to it are its sockets. Every endpoint applications call is a
//! channel, its connections are that channel's sockets. Counts are of calls that have ended plus those open now. Fields
//! the daemon does not know stay empty: it keeps no trace of events, and counts calls per method and peer, not per
//! socket.

use crate::host::Host;
use crate::proto::grpc::channelz::v1 as pb;
use pb::channel_connectivity_state::State;
use pb::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use trunkline::{Incoming, Response, Status};
use trunkline_engine::{PeerRow, RemoteRow, RemoteState};
use trunkline_telemetry::{Ask, Detail, Side, Snapshot};

/// Rows in one page, whatever is asked for: of a thousand connections about 100 KiB.
const RESULTS_MAX: usize = 1000;
/// Rows in a page for whoever does not say.
const RESULTS_USUAL: usize = 100;
/// The daemon itself.
const SERVER: i64 = 1;

/// A picture is good for so many times as long as it took to make, and no longer than this: whoever may ask may ask as
/// often as it likes, and who asks for something else waits for the same thread.
const GOOD_FOR_TIMES: u32 = 10;
const GOOD_FOR_MAX: Duration = Duration::from_secs(2);

/// Answers channelz.
pub(crate) struct ChannelzService<H> {
    host: H,
    last: Mutex<Option<KeptPicture>>,
}

/// A picture, and until when it is good.
struct KeptPicture {
    picture: Arc<Picture>,
    until: Instant,
}

/// Everything there is, by id.
#[derive(Default)]
struct Picture {
    listening: Vec<String>,
    channels: BTreeMap<i64, RemoteRow>,
    sockets: BTreeMap<i64, PeerRow>,
    telemetry: Snapshot,
}

/// What an id names. Ids of the three never meet.
#[derive(Clone, Copy)]
enum Kind {
    Channel = 2,
    Socket = 3,
    Listener = 4,
}

/// Ended and open calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Calls {
    succeeded: u64,
    failed: u64,
    open: u64,
}

impl<H: Host> ChannelzService<H> {
    pub fn new(host: H) -> Self {
        Self { host, last: Mutex::new(None) }
    }

    /// All there is, as of now or of a moment ago.
    fn picture(&self) -> Arc<Picture> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        if let Some(seen) = last.as_ref().filter(|seen| began < seen.until) {
            return Arc::clone(&seen.picture);
        }
        let picture = Arc::new(self.take_picture());
        let ended = Instant::now();
        let until = ended + ((ended - began) * GOOD_FOR_TIMES).min(GOOD_FOR_MAX);
        *last = Some(KeptPicture { picture: Arc::clone(&picture), until });
        picture
    }

    fn take_picture(&self) -> Picture {
        let mut picture = Picture { listening: self.host.listening(), ..Picture::default() };
        let ask = Ask { detail: Detail::Totals, ..Ask::default() };
        for (shard, seen) in self.host.observe(&ask).into_iter().enumerate() {
            let remotes = seen.snapshot.remotes.into_iter();
            picture.channels.extend(remotes.map(|row| (id(Kind::Channel, shard, row.id), row)));
            let peers = seen.snapshot.peers.into_iter();
            picture.sockets.extend(peers.map(|row| (id(Kind::Socket, shard, row.id), row)));
            picture.telemetry.merge(seen.telemetry);
        }
        picture
    }
}

impl<H: Host> channelz_server::Channelz for ChannelzService<H> {
    async fn get_top_channels(
        &self,
        request: Incoming<GetTopChannelsRequest>,
    ) -> Result<Response<GetTopChannelsResponse>, Status> {
        let (start, max) = (request.view().start_channel_id(), request.view().max_results());
        let picture = self.picture();
        let (channel, end) = page(&picture.channels, start, max, |id, row| picture.channel(id, row))?;
        Ok(Response::new(GetTopChannelsResponse { channel, end }))
    }

    async fn get_servers(
        &self,
        request: Incoming<GetServersRequest>,
    ) -> Result<Response<GetServersResponse>, Status> {
        let (start, max) = (request.view().start_server_id(), request.view().max_results());
        let picture = self.picture();
        let servers = BTreeMap::from([(SERVER, ())]);
        let (server, end) = page(&servers, start, max, |_, ()| picture.server())?;
        Ok(Response::new(GetServersResponse { server, end }))
    }

    async fn get_server(
        &self,
        request: Incoming<GetServerRequest>,
    ) -> Result<Response<GetServerResponse>, Status> {
        match request.view().server_id() {
            SERVER => Ok(Response::new(GetServerResponse { server: Some(self.picture().server()) })),
            other => Err(nothing("server", other)),
        }
    }

    async fn get_server_sockets(
        &self,
        request: Incoming<GetServerSocketsRequest>,
    ) -> Result<Response<GetServerSocketsResponse>, Status> {
        let asked = request.into_inner();
        if asked.server_id != SERVER {
            return Err(nothing("server", asked.server_id));
        }
        let mut sockets = self.picture().sockets.clone();
        sockets.retain(|_, row| !row.outgoing);
        let (socket_ref, end) = page(&sockets, asked.start_socket_id, asked.max_results, socket_ref)?;
        Ok(Response::new(GetServerSocketsResponse { socket_ref, end }))
    }

    async fn get_channel(
        &self,
        request: Incoming<GetChannelRequest>,
    ) -> Result<Response<GetChannelResponse>, Status> {
        let (asked, picture) = (request.view().channel_id(), self.picture());
        let row = picture.channels.get(&asked).ok_or_else(|| nothing("channel", asked))?;
        Ok(Response::new(GetChannelResponse { channel: Some(picture.channel(asked, row)) }))
    }

    async fn get_subchannel(
        &self,
        request: Incoming<GetSubchannelRequest>,
    ) -> Result<Response<GetSubchannelResponse>, Status> {
        // An endpoint's connections are its channel's own.
        Err(nothing("subchannel", request.view().subchannel_id()))
    }

    async fn get_socket(
        &self,
        request: Incoming<GetSocketRequest>,
    ) -> Result<Response<GetSocketResponse>, Status> {
        let (asked, picture) = (request.view().socket_id(), self.picture());
        let socket = picture.socket(asked).ok_or_else(|| nothing("socket", asked))?;
        Ok(Response::new(GetSocketResponse { socket: Some(socket) }))
    }
}

impl Picture {
    fn server(&self) -> Server {
        let incoming = self.sockets.values().filter(|row| !row.outgoing);
        let open = incoming.map(|row| row.streams as u64).sum();
        let calls = Calls { open, ..self.ended(Side::Served, |_| true) };
        let listeners = self.listening.iter().enumerate();
        Server {
            r#ref: Some(ServerRef { server_id: SERVER, name: "trunkline daemon".into() }),
            data: Some(ServerData {
                calls_started: calls.started(),
                calls_succeeded: number(calls.succeeded),
                calls_failed: number(calls.failed),
                ..ServerData::default()
            }),
            listen_socket: listeners
                .map(|(at, endpoint)| SocketRef { socket_id: listener_id(at), name: endpoint.clone() })
                .collect(),
        }
    }

    fn channel(&self, id: i64, row: &RemoteRow) -> Channel {
        let of_endpoint = |peer: &PeerRow| peer.endpoint.as_deref() == Some(&*row.endpoint);
        let sockets: Vec<(&i64, &PeerRow)> =
            self.sockets.iter().filter(|(_, peer)| of_endpoint(peer)).collect();
        // Telemetry names a peer as it names itself, or by its address if it does not.
        let is_peer = |name: &str| {
            name == &*row.endpoint || sockets.iter().any(|(_, peer)| peer.node.as_deref() == Some(name))
        };
        let open = sockets.iter().map(|(_, peer)| peer.streams as u64).sum();
        let calls = Calls { open, ..self.ended(Side::Made, is_peer) };
        let state = match row.state {
            RemoteState::Idle => State::Idle,
            RemoteState::Connecting => State::Connecting,
            RemoteState::Ready => State::Ready,
            RemoteState::Failing => State::TransientFailure,
        };
        Channel {
            r#ref: Some(ChannelRef { channel_id: id, name: row.endpoint.to_string() }),
            data: Some(ChannelData {
                state: Some(ChannelConnectivityState { state }),
                target: row.endpoint.to_string(),
                calls_started: calls.started(),
                calls_succeeded: number(calls.succeeded),
                calls_failed: number(calls.failed),
                ..ChannelData::default()
            }),
            socket_ref: sockets.into_iter().map(|(id, peer)| socket_ref(*id, peer)).collect(),
            ..Channel::default()
        }
    }

    fn socket(&self, asked: i64) -> Option<Socket> {
        let listener = self.listening.iter().enumerate().find(|(at, _)| listener_id(*at) == asked);
        if let Some((_, endpoint)) = listener {
            let r#ref = Some(SocketRef { socket_id: asked, name: endpoint.clone() });
            return Some(Socket { r#ref, local: Some(address(endpoint)), ..Socket::default() });
        }
        let row = self.sockets.get(&asked)?;
        let option = |name: &str, value: u64| SocketOption {
            name: name.into(),
            value: value.to_string(),
            ..SocketOption::default()
        };
        Some(Socket {
            r#ref: Some(socket_ref(asked, row)),
            data: Some(SocketData {
                option: vec![
                    option("streams_open", row.streams as u64),
                    option("queued_bytes", row.queued_bytes),
                ],
                ..SocketData::default()
            }),
            remote: Some(address(&row.label)),
            remote_name: row.node.clone().unwrap_or_default(),
            ..Socket::default()
        })
    }

    fn ended(&self, side: Side, is_peer: impl Fn(&str) -> bool) -> Calls {
        let mut calls = Calls::default();
        for entry in self.telemetry.series.iter().filter(|entry| entry.side == side && is_peer(&entry.peer)) {
            calls.succeeded += entry.series.codes[0];
            calls.failed += entry.series.calls() - entry.series.codes[0];
        }
        calls
    }
}

impl Calls {
    fn started(self) -> i64 {
        number(self.succeeded.saturating_add(self.failed).saturating_add(self.open))
    }
}

/// The rows from an id on, as many as asked for and no more than a page; and whether they are the last.
fn page<T, R>(
    rows: &BTreeMap<i64, T>,
    start: i64,
    max: i64,
    row: impl Fn(i64, &T) -> R,
) -> Result<(Vec<R>, bool), Status> {
    let count = match usize::try_from(max) {
        Ok(0) => RESULTS_USUAL,
        Ok(asked) => asked.min(RESULTS_MAX),
        Err(_) => return Err(Status::invalid_argument(format!("max_results is {max}; write 0 or more"))),
    };
    let mut from = rows.range(start..);
    let page = from.by_ref().take(count).map(|(id, value)| row(*id, value)).collect();
    Ok((page, from.next().is_none()))
}

fn socket_ref(id: i64, row: &PeerRow) -> SocketRef {
    SocketRef { socket_id: id, name: row.label.clone() }
}

/// `tcp://10.0.0.7:7878`, `unix:/path`, or whatever else connections are called.
fn address(label: &str) -> Address {
    let tcp = label.strip_prefix("tcp://").unwrap_or(label).parse::<SocketAddr>();
    let address = if let Ok(tcp) = tcp {
        let ip_address = match tcp.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        address::Address::TcpipAddress(address::TcpIpAddress { ip_address, port: tcp.port().into() })
    } else if let Some(filename) = label.strip_prefix("unix:") {
        address::Address::UdsAddress(address::UdsAddress { filename: filename.into() })
    } else {
        address::Address::OtherAddress(address::OtherAddress { name: label.into(), value: None })
    };
    Address { address: Some(address) }
}

/// Positive and stable while the thing lives. The shard takes six bits, the kind three; generations of keys lose their
/// highest bits, so that two ids could meet after two million reuses of one slot.
fn id(kind: Kind, shard: usize, key: u64) -> i64 {
    let bits = key << 9 | (shard as u64 & 63) << 3 | kind as u64;
    number(bits & i64::MAX as u64)
}

fn listener_id(at: usize) -> i64 {
    id(Kind::Listener, 0, at as u64)
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn nothing(what: &str, id: i64) -> Status {
    Status::not_found(format!("there is no {what} {id}, or no longer"))
}

#[cfg(test)]
mod tests {
    //! Shows pages, ids and addresses.
    use super::*;

    #[test]
    fn pages_begin_and_end_where_asked() {
        let rows: BTreeMap<i64, i64> = (1..=5).map(|id| (id * 10, id)).collect();
        let page = |start, max| page(&rows, start, max, |id, _| id).unwrap();
        assert_eq!(page(0, 0), (vec![10, 20, 30, 40, 50], true));
        assert_eq!(page(0, 2), (vec![10, 20], false));
        assert_eq!(page(21, 2), (vec![30, 40], false));
        assert_eq!(page(41, 1), (vec![50], true));
        assert_eq!(page(51, 1), (vec![], true));
        assert!(super::page(&rows, 0, -1, |id, _| id).is_err());
        let many: BTreeMap<i64, ()> = (0..5000).map(|id| (id, ())).collect();
        assert_eq!(super::page(&many, 0, i64::MAX, |id, ()| id).unwrap().0.len(), RESULTS_MAX);
    }

    #[test]
    fn ids_differ_and_are_positive() {
        let keys = [0, 1, 5 << 32, u64::MAX >> 1];
        let kinds = [Kind::Channel, Kind::Socket, Kind::Listener];
        let ids = keys.into_iter().flat_map(|key| kinds.map(|kind| id(kind, 0, key)));
        let ids: std::collections::BTreeSet<i64> = ids.collect();
        assert!(ids.len() == keys.len() * kinds.len() && ids.iter().all(|id| *id > SERVER), "{ids:?}");
    }

    #[test]
    fn addresses_are_what_they_are() {
        let of = |label| address(label).address.unwrap();
        let v4 = address::TcpIpAddress { ip_address: vec![10, 0, 0, 7], port: 78 };
        assert_eq!(of("tcp://10.0.0.7:78"), address::Address::TcpipAddress(v4));
        assert!(
            matches!(of("tcp://[::1]:78"), address::Address::TcpipAddress(a) if a.ip_address.len() == 16)
        );
        assert!(matches!(of("unix:/p"), address::Address::UdsAddress(a) if a.filename == "/p"));
        assert!(matches!(of("a peer"), address::Address::OtherAddress(a) if a.name == "a peer"));
    }
}
