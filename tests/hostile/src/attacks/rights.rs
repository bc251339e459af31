//! What another user may not do, and tries.

use super::Attacker;
use crate::application::Application;
use trunkline_call::entry::{Call, Completion, Submission};
use trunkline_call::{CallId, Code, RouteIndex};

/// Targets that only the daemon may dial: its own sockets, which belong to root.
pub(super) fn dials(attacker: &mut Attacker, _: usize) -> Result<String, String> {
    let application = Application::attach(&attacker.socket)?;
    let mut refusals = Vec::new();
    for target in [format!("unix:{}", attacker.socket.display()), format!("tcp://{}", attacker.address)] {
        match application.bind(Vec::new(), vec![("/probe.v1.Probe/Echo".into(), target)]) {
            Ok(_) => return Err("it may".into()),
            Err(why) => refusals.push(why),
        }
    }
    Ok(refusals.join("; "))
}

/// A name that another user serves.
pub(super) fn takes_a_name(attacker: &mut Attacker, _: usize) -> Result<String, String> {
    let application = Application::attach(&attacker.socket)?;
    match application.bind(vec!["probe.v1.Probe".into()], Vec::new()) {
        Ok(_) => Err("it may".into()),
        Err(why) => Ok(why),
    }
}

/// A service that it may not call.
pub(super) fn calls(attacker: &mut Attacker, _: usize) -> Result<String, String> {
    let mut application = Application::attach(&attacker.socket)?;
    let bound = match application.bind(Vec::new(), vec![("/probe.v1.Probe/Nothing".into(), String::new())]) {
        Ok(bound) => bound,
        Err(why) => return Ok(why),
    };
    let call = application.call(RouteIndex(bound.calls[0]));
    application.submit(&call);
    loop {
        match application.hear()? {
            Some(Completion::Finish(finish)) if finish.code == Code::PermissionDenied => {
                return Ok("PERMISSION_DENIED".into());
            }
            Some(Completion::Finish(finish)) => return Err(format!("it ended with {:?}", finish.code)),
            _ => std::thread::yield_now(),
        }
    }
}

/// A call within a call within a call, each served by the session that makes the next, and none of them answered.
pub(super) fn nested(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut application = Application::attach(&attacker.socket)?;
    let service = format!("hostile.v1.Nest{}", attacker.applications.len());
    application.bind(vec![service.clone()], Vec::new())?;
    let bound = application.bind(Vec::new(), vec![(format!("/{service}/Call"), String::new())])?;
    let route = RouteIndex(bound.calls[0]);
    let mut parent = CallId(0);
    for depth in 0..times {
        let Submission::Call(call) = application.call(route) else { continue };
        if !application.submit(&Submission::Call(Call { parent, ..call })) {
            return Err(format!("{depth} deep, and no further"));
        }
        parent = loop {
            match application.hear()? {
                Some(Completion::Call(call)) => break call.call,
                Some(Completion::Finish(finish)) => {
                    return Err(format!("{depth} deep, it ended with {:?}", finish.code));
                }
                _ => std::thread::yield_now(),
            }
        };
    }
    attacker.applications.push(application);
    Ok(format!("{times} deep"))
}
