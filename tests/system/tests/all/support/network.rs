//! A network of namespaces with a bad link in its middle: every datagram between two hosts passes a relay of ours that
//! loses, doubles and delays some of them, as a seed says. (The kernel's own `netem` is not in every kernel.)
//!
//! Each host is a namespace with one interface; its other end lies in the relay's namespace, where a rule hands every
//! packet that arrives to local sockets. There a raw socket reads it and another sends it on in its sender's name.

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::VecDeque;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use trunkline_net::{Disguised, Interest, Poller, RawDatagrams, Token};
use trunkline_system_tests::random::mix;

/// What happens to datagrams, in thousandths.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
    pub seed: u64,
}

/// What happened to them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Relayed {
    pub passed: u64,
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
}

/// The namespaces. They go with this.
pub struct Network {
    tag: String,
    hosts: usize,
    stop: Arc<AtomicBool>,
    relay: Option<JoinHandle<Relayed>>,
}

/// A datagram that is late lets so many others go first, at most.
const LATE_MAX: u64 = 8;
/// A late one does not wait for others longer than this.
const LATE_NS_MAX: u64 = 1_000_000;
const BATCH_MAX: usize = 64;

impl Network {
    /// A network of so many hosts.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn new(hosts: usize, weather: Weather) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("namespaces of one's own need root".into());
        }
        let tag = format!("tl{}", std::process::id());
        let mut network = Self { tag, hosts, stop: Arc::default(), relay: None };
        network.lay()?;
        let (middle, stop) = (network.middle(), Arc::clone(&network.stop));
        let (tell, begun) = channel();
        network.relay = Some(std::thread::spawn(move || match Relay::begin(&middle, weather) {
            Ok(relay) => {
                let _ = tell.send(Ok(()));
                relay.run(&stop)
            }
            Err(error) => {
                let _ = tell.send(Err(format!("no raw sockets in a namespace: {error}")));
                Relayed::default()
            }
        }));
        begun.recv().map_err(|error| error.to_string())??;
        Ok(network)
    }

    /// The namespace of a host.
    pub fn namespace(&self, host: usize) -> String {
        format!("{}h{host}", self.tag)
    }

    /// The address of a host.
    pub fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, host as u8 + 1, 2)
    }

    /// Ends the relay; what happened to the datagrams.
    pub fn end(mut self) -> Relayed {
        self.stop.store(true, Ordering::Relaxed);
        self.relay.take().map(|relay| relay.join().expect("the relay does not panic")).unwrap_or_default()
    }

    fn middle(&self) -> String {
        format!("{}m", self.tag)
    }

    fn lay(&self) -> Result<(), String> {
        let middle = self.middle();
        ip(&format!("netns add {middle}"))?;
        ip(&format!("-n {middle} link set lo up"))?;
        ip(&format!("-n {middle} route add local default dev lo table 100"))?;
        for host in 0..self.hosts {
            let (name, subnet) = (self.namespace(host), host + 1);
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add v{host} netns {middle} type veth peer name eth0 netns {name}"))?;
            ip(&format!("-n {middle} addr add 10.77.{subnet}.1/24 dev v{host}"))?;
            ip(&format!("-n {middle} link set v{host} up"))?;
            ip(&format!("-n {middle} rule add iif v{host} lookup 100"))?;
            ip(&format!("-n {name} addr add 10.77.{subnet}.2/24 dev eth0"))?;
            ip(&format!("-n {name} link set lo up"))?;
            // The relay reads what a wire would carry: runs of datagrams that leave as one are cut before.
            ip(&format!("-n {name} link set eth0 up gso_max_segs 1"))?;
            ip(&format!("-n {name} route add default via 10.77.{subnet}.1"))?;
        }
        let script = "for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $file; done";
        run(Command::new("ip").args(["netns", "exec", &middle, "sh", "-c", script]))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
        for name in (0..self.hosts).map(|host| self.namespace(host)).chain([self.middle()]) {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    run(Command::new("ip").args(arguments.split(' ')))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", said.trim())) }
}

/// The bad link.
struct Relay {
    weather: Weather,
    drawn: u64,
    socket: OwnedFd,
    raw: RawDatagrams,
    poller: Poller,
    /// Those that are late, and how many may still go first.
    late: VecDeque<(u64, Packet)>,
    relayed: Relayed,
}

#[derive(Clone)]
struct Packet {
    from: SocketAddrV4,
    to: SocketAddrV4,
    datagram: Vec<u8>,
}

impl Relay {
    /// Moves this thread into the namespace and opens its sockets there.
    fn begin(namespace: &str, weather: Weather) -> std::io::Result<Self> {
        let file = File::open(format!("/run/netns/{namespace}"))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::UDP))?;
        let _ = sockopt::set_socket_recv_buffer_size(&socket, 64 << 20);
        let raw = RawDatagrams::open()?.ok_or(std::io::ErrorKind::PermissionDenied)?;
        let poller = Poller::new()?;
        poller.add(&socket, Token(0), Interest::Read)?;
        let (late, relayed) = (VecDeque::new(), Relayed::default());
        Ok(Self { weather, drawn: weather.seed, socket, raw, poller, late, relayed })
    }

    fn run(mut self, stop: &AtomicBool) -> Relayed {
        let mut buffer = vec![0; 4096];
        while !stop.load(Ordering::Relaxed) {
            let wait_ns = if self.late.is_empty() { 50_000_000 } else { LATE_NS_MAX };
            let mut ready = Vec::new();
            let _ = self.poller.wait(Some(wait_ns), &mut ready);
            let mut out = Vec::new();
            if ready.is_empty() {
                out.extend(self.late.drain(..).map(|(_, packet)| packet));
            }
            while out.len() < BATCH_MAX
                && let Ok((_, bytes)) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())
            {
                if let Some(packet) = Packet::parse(&buffer[..bytes.min(4096)]) {
                    self.pass(packet, &mut out);
                }
            }
            let batch: Vec<_> = out.iter().map(Packet::disguised).collect();
            self.raw.send(&batch);
        }
        self.relayed
    }

    fn pass(&mut self, packet: Packet, out: &mut Vec<Packet>) {
        self.relayed.passed += 1;
        let Weather { lost, doubled, late, .. } = self.weather;
        match self.draw() % 1000 {
            drawn if drawn < lost => self.relayed.lost += 1,
            drawn if drawn < lost + doubled => {
                self.relayed.doubled += 1;
                out.extend([packet.clone(), packet]);
            }
            drawn if drawn < lost + doubled + late => {
                self.relayed.late += 1;
                let others = 1 + self.draw() % LATE_MAX;
                self.late.push_back((others, packet));
                return;
            }
            _ => out.push(packet),
        }
        for (others, _) in &mut self.late {
            *others = others.saturating_sub(1);
        }
        while self.late.front().is_some_and(|(others, _)| *others == 0) {
            out.extend(self.late.pop_front().map(|(_, packet)| packet));
        }
    }

    fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        mix(self.drawn)
    }
}

impl Packet {
    /// Of an IPv4 packet with UDP in it.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let header_bytes = usize::from(bytes.first()? & 0xf) * 4;
        let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?));
        let udp = bytes.get(header_bytes..)?;
        let number = |at: usize| Some(u16::from_be_bytes([*udp.get(at)?, *udp.get(at + 1)?]));
        let datagram = udp.get(8..usize::from(number(4)?))?.to_vec();
        let from = SocketAddrV4::new(address(12)?, number(0)?);
        Some(Self { from, to: SocketAddrV4::new(address(16)?, number(2)?), datagram })
    }

    fn disguised(&self) -> Disguised<'_> {
        Disguised { from: self.from, to: self.to, datagram: &self.datagram }
    }
}
