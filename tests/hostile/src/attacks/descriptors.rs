//! Attacks by what an application does with the descriptors it has.

use super::Attacker;
use crate::application::Application;
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{SpliceFlags, pipe, splice};
use rustix::thread::gettid;
use std::sync::mpsc::channel;
use trunkline_call::RouteIndex;

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
        std::thread::spawn(move || {
            let _ = tell.send(gettid());
            let _ = move_for_ever(&bell, false).or_else(|_| move_for_ever(&bell, true));
        });
        let reader = told.recv().map_err(|error| error.to_string())?;
        let stat = format!("/proc/self/task/{}/stat", reader.as_raw_nonzero());
        let sleeps = |stat: String| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"));
        while !std::fs::read_to_string(&stat).is_ok_and(sleeps) {
            std::thread::yield_now();
        }
        application.call_asleep(route);
        attacker.applications.push(application);
    }
    Ok(format!("{times} bells"))
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
