//! Attacks by the control socket and the rings.

use super::{Attacker, SMALL_WITHOUT_END, WITHOUT_END};
use crate::application::{self, Application};
use trunkline_call::RouteIndex;
use trunkline_call::entry::{Call, Submission};
use trunkline_control::Attach;

/// Methods of one packet.
const BIND: usize = 500;
/// Routes of a session.
const ROUTES: usize = 4000;
/// As much metadata as a call may have, but for its frame.
const METADATA_BYTES: usize = 30 << 10;
/// A large descriptor set.
const SET_BYTES: usize = 1 << 20;
/// A heap as large as a daemon gives.
const HEAP_BYTES: u64 = 1 << 30;

/// Sessions that name paths nobody else does, and leave.
pub(super) fn paths(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut named = 0;
    while named < times {
        let application = Application::attach(&attacker.socket)?;
        for _ in 0..ROUTES / BIND {
            let path = |number| (format!("/hostile.v1.S{number}/M"), String::new());
            application.bind(Vec::new(), (named..named + BIND).map(path).collect())?;
            named += BIND;
        }
    }
    Ok(format!("{named} paths"))
}

/// A session that says again and again that it serves nothing more.
pub(super) fn drains(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut application = Application::attach(&attacker.socket)?;
    let said = (0..times).take_while(|_| application.submit(&Submission::Drain { answer: false })).count();
    attacker.applications.push(application);
    Ok(format!("{said} drains"))
}

/// Sessions that serve as many services as they may, and stay.
pub(super) fn names(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut served = 0;
    while served < times {
        let application = Application::attach(&attacker.socket)?;
        for _ in 0..ROUTES / BIND {
            let name = |number| format!("hostile.v1.N{number}");
            application.bind((served..served + BIND).map(name).collect(), Vec::new())?;
            served += BIND;
        }
        attacker.applications.push(application);
    }
    Ok(format!("{served} services"))
}

/// Calls beyond what a session may have in flight, none of whose ends is read.
pub(super) fn refused(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut application = Application::attach(&attacker.socket)?;
    let bound = application.bind(Vec::new(), vec![("/probe.v1.Probe/Nothing".into(), String::new())])?;
    let route = RouteIndex(bound.calls[0]);
    let mut made = 0;
    while made < times {
        let call = application.call(route);
        if !application.submit(&call) {
            break;
        }
        made += 1;
    }
    attacker.applications.push(application);
    Ok(format!("{made} calls"))
}

/// Calls that ask for messages without end, none of which is taken.
pub(super) fn untaken(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    ask_without_end(attacker, times, WITHOUT_END)
}

/// The same, for messages so small that they find room where no other does.
pub(super) fn untaken_small(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    ask_without_end(attacker, times, SMALL_WITHOUT_END)
}

fn ask_without_end(attacker: &mut Attacker, times: usize, wanted: &[u8]) -> Result<String, String> {
    let mut application = Application::attach(&attacker.socket)?;
    let bound = application.bind(Vec::new(), vec![("/probe.v1.Probe/Count".into(), String::new())])?;
    let (route, request) = (RouteIndex(bound.calls[0]), application.put(wanted)?);
    let mut made = 0;
    while made < times {
        let Submission::Call(call) = application.call(route) else { break };
        if !application.submit(&Submission::Call(Call { payload: Some(request), ..call })) {
            break;
        }
        made += 1;
    }
    attacker.applications.push(application);
    Ok(format!("{made} calls"))
}

/// Targets nobody else calls, of as many sessions as they take.
pub(super) fn targets(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut application = Application::attach(&attacker.socket)?;
    let mut bound = 0;
    let mut why = String::new();
    while bound < times && why.is_empty() {
        if bound % 1000 == 0 && bound > 0 {
            let next = Application::attach(&attacker.socket)?;
            attacker.applications.push(std::mem::replace(&mut application, next));
        }
        let target = |number: usize| {
            let address =
                format!("tcp://127.{}.{}.{}:9", 1 + number / 62500, number / 250 % 250, number % 250);
            ("/hostile.v1.S/M".to_owned(), address)
        };
        match application.bind(Vec::new(), (bound..bound + 100).map(target).collect()) {
            Ok(_) => bound += 100,
            Err(error) => why = error,
        }
    }
    attacker.applications.push(application);
    Ok(format!("{bound} targets, {why}"))
}

/// Connections to the control socket that never attach.
pub(super) fn bare(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    for _ in 0..times {
        match application::bare(&attacker.socket) {
            Ok(control) => attacker.bare.push(control),
            Err(why) => return Ok(format!("{} connections, {why}", attacker.bare.len())),
        }
    }
    let ended = attacker.bare.iter().filter(|control| application::has_word(control)).count();
    // Those of its own user, too.
    attacker.applications.push(Application::attach(&attacker.socket)?);
    Ok(format!("{} connections, {ended} of them ended", attacker.bare.len()))
}

/// Calls with long metadata that wait for an endpoint at which nobody is.
pub(super) fn waiting(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut application = Application::attach(&attacker.socket)?;
    let target = "tcp://127.9.9.9:9".to_owned();
    let bound = application.bind(Vec::new(), vec![("/hostile.v1.S/M".into(), target)])?;
    let metadata = application.put_metadata(METADATA_BYTES)?;
    let mut made = 0;
    while made < times {
        let call = application.waiting_call(RouteIndex(bound.calls[0]), metadata);
        if !application.submit(&call) {
            break;
        }
        made += 1;
    }
    attacker.applications.push(application);
    Ok(format!("{made} calls, {} MiB", (made * METADATA_BYTES) >> 20))
}

/// So many sessions that ask to bind all the time, from now on.
pub(super) fn flooding(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    for _ in 0..times {
        let socket = attacker.socket.clone();
        let application = Application::attach(&socket)?;
        std::thread::spawn(move || {
            // Ends with the session, or with the attacker.
            while application.ask_in_a_row("/hostile.v1.S/M", 64).is_ok() {}
        });
    }
    Ok(format!("{times} sessions"))
}

/// Descriptor sets of a MiB, each another, of sessions that stay.
pub(super) fn sets(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let (mut bound, mut why) = (0, String::new());
    while bound < times && why.is_empty() {
        let application = Application::attach(&attacker.socket)?;
        let number = attacker.applications.len();
        match application.bind_set(&descriptor_set(number), format!("/S{number}/M")) {
            Ok(()) => bound += 1,
            Err(error) => why = error,
        }
        attacker.applications.push(application);
    }
    Ok(format!("{bound} sets, {why}"))
}

/// A descriptor set with one file, which defines `/S<number>/M`, and whose comment is long: it costs no time to build.
fn descriptor_set(number: usize) -> Vec<u8> {
    let [name, message, service] =
        [format!("hostile_{number}.proto"), format!("M{number}"), format!("S{number}")];
    // MethodDescriptorProto.name, .input_type, .output_type.
    let typed = format!(".{message}");
    let method = [field(1, b"M"), field(2, typed.as_bytes()), field(3, typed.as_bytes())].concat();
    // ServiceDescriptorProto.name, .method.
    let service = [field(1, service.as_bytes()), field(2, &method)].concat();
    // SourceCodeInfo.location.leading_comments of FileDescriptorProto.source_code_info.
    let comment = field(9, &field(1, &field(3, &vec![b'x'; SET_BYTES])));
    // FileDescriptorProto.name, .message_type, .service, .syntax.
    let message = field(4, &field(1, message.as_bytes()));
    let syntax = field(12, b"proto3");
    let file = [field(1, name.as_bytes()), message, field(6, &service), syntax, comment].concat();
    field(1, &file)
}

/// A field of protobuf with a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut left = bytes.len();
    while left >= 128 {
        field.push(left as u8 | 128);
        left >>= 7;
    }
    field.push(left as u8);
    field.extend_from_slice(bytes);
    field
}

/// Requests to bind, as fast as the daemon takes them; their answers are not read.
pub(super) fn flood(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let mut sent = 0;
    while sent < times {
        let application = Application::attach(&attacker.socket)?;
        for _ in 0..ROUTES {
            if sent == times
                || application
                    .ask_to_bind(Vec::new(), vec![("/hostile.v1.S/M".into(), String::new())])
                    .is_err()
            {
                break;
            }
            sent += 1;
        }
        attacker.applications.push(application);
    }
    Ok(format!("{sent} requests by {} sessions", attacker.applications.len()))
}

/// Sessions with the largest heaps there are, which stay.
pub(super) fn heaps(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let (mut attached, mut why) = (0, String::new());
    while attached < times && why.is_empty() {
        let wants =
            Attach { send_heap_bytes: HEAP_BYTES, receive_heap_bytes: HEAP_BYTES, ..Attach::default() };
        match Application::attach_as(&attacker.socket, wants) {
            Ok(application) => {
                attacker.applications.push(application);
                attached += 1;
            }
            Err(error) => why = error,
        }
    }
    Ok(format!("{attached} sessions, {why}"))
}

/// Sessions with the largest heaps there are, each of which ends and is kept mapped.
pub(super) fn heaps_kept(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let (mut attached, mut why) = (0, String::new());
    while attached < times && why.is_empty() {
        let wants = Attach { receive_heap_bytes: HEAP_BYTES, ..Attach::default() };
        match Application::attach_as(&attacker.socket, wants) {
            Ok(application) => {
                attacker.kept.push(application.close_and_keep());
                attached += 1;
            }
            Err(error) => why = error,
        }
    }
    Ok(format!("{attached} sessions, {why}"))
}

/// Gives up the calls the last session has made, as far as they are waiting, and stays.
pub(super) fn give_up(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let application = attacker.applications.last_mut().ok_or("nobody is there")?;
    let given_up = (0..times).take_while(|_| application.give_up_next()).count();
    Ok(format!("{given_up} calls"))
}

/// Takes what the last session is told until so many of its calls have ended, those whose end it heard before among
/// them.
pub(super) fn hears(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let application = attacker.applications.last_mut().ok_or("nobody is there")?;
    while application.ended() < times {
        match application.hear()? {
            Some(completion) => application.release(&completion),
            None => std::thread::yield_now(),
        }
    }
    Ok(format!("{times} ends"))
}

/// All sessions leave.
pub(super) fn leave(attacker: &mut Attacker, _: usize) -> Result<String, String> {
    attacker.kept.clear();
    Ok(format!("{} sessions", attacker.applications.drain(..).count()))
}
