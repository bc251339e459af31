//! Attacks by what an application does with the descriptors it has.

use super::Attacker;
use crate::application::Application;
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, write};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{SpliceFlags, pipe, splice};
use rustix::thread::gettid;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;
use trunkline_call::RouteIndex;

/// Descriptors that a session sends, the first of which it may not.
const SENT_TOO_LATE: usize = 8;

/// Sessions that read their doorbells into something full, which takes for ever, and have them rung meanwhile.
pub(super) fn bell(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    for _ in 0..times {
        let mut application = Application::attach(&attacker.socket)?;
        let bound = application.bind(Vec::new(), vec![("/probe.v1.Probe/Nothing".into(), String::new())])?;
        let route = RouteIndex(bound.calls[0]);
        application.have_it_rung(route)?;
        let bell = application.bell()?;
        fcntl_setfl(&bell, OFlags::empty()).map_err(|error| error.to_string())?;
        let (tell, told) = channel();
        let moving = std::thread::spawn(move || {
            let _ = tell.send(gettid());
            let _ = move_for_ever(&bell, false).or_else(|_| move_for_ever(&bell, true));
        });
        let reader = told.recv().map_err(|error| error.to_string())?;
        let stat = format!("/proc/self/task/{}/stat", reader.as_raw_nonzero());
        let sleeps = |stat: String| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"));
        // Where the kernel refuses to move it, the thread ends, and only the bell is rung.
        while !moving.is_finished() && !std::fs::read_to_string(&stat).is_ok_and(sleeps) {
            std::thread::yield_now();
        }
        application.call_asleep(route);
        attacker.applications.push(application);
    }
    Ok(format!("{times} bells"))
}

/// Sessions that send a descriptor whose close waits for ever, and so many more of something that costs nothing.
pub(super) fn descriptors(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let (socket, peer) = lingering().map_err(|error| error.to_string())?;
    attacker.streams.push(peer);
    let nothing = std::fs::File::open("/dev/null").map_err(|error| error.to_string())?;
    let (mut sent, mut sessions) = (0, 0);
    let mut next = Some(socket);
    while sent < times {
        let application = match Application::attach(&attacker.socket) {
            Ok(application) => application,
            Err(why) => return Ok(format!("{sent} descriptors of {sessions} sessions, {why}")),
        };
        sessions += 1;
        if let Some(socket) = next.take() {
            application.send_descriptor(&socket)?;
        }
        // Some come when it is too late, and lie there: with more of them the kernel says that it is enough.
        let sends = |_: &usize| application.send_descriptor(&nothing).is_ok();
        match (0..SENT_TOO_LATE).take_while(sends).count() {
            0 => return Err("the kernel takes no more".into()),
            taken => sent += taken,
        }
        application.until_dismissed()?;
    }
    Ok(format!("{sent} descriptors of {sessions} sessions"))
}

/// A socket that lingers over what its peer does not read.
fn lingering() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let (peer, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    while (&stream).write(&[0; 65536]).is_ok() {}
    set_socket_linger(&stream, Some(Duration::from_secs(100_000)))?;
    Ok((stream, peer))
}

/// Moves a byte to where there is no room for it.
fn move_for_ever(from: &OwnedFd, to_pipe: bool) -> Result<usize, Errno> {
    let (_reader, full) = match to_pipe {
        true => pipe()?,
        false => socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?,
    };
    fcntl_setfl(&full, OFlags::NONBLOCK)?;
    while write(&full, &[0; 4096]).is_ok() {}
    fcntl_setfl(&full, OFlags::empty())?;
    splice(from, None, &full, None, 1, SpliceFlags::empty())
}
