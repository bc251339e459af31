//! Servers: their calls go to handlers, or to queues.

use crate::abi::{
    tl_call, tl_code, tl_handler, tl_queue, tl_schema, tl_server, tl_server_options, tl_slice, tl_status,
};
use crate::channel::{embedded, said};
use crate::entry::enter;
use crate::foreign::{CallerMemory, User};
use crate::objects::{CallObject, Object, QueueEvent, ServerObject, ServerStage, What};
use crate::{context, handles, lookup};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;
use trunkline::{Server, ServerBuilder, Status, Wait};
use trunkline_bindings::server::Adapter;
use trunkline_bindings::{DeliveredCall, wait_within};

/// A server with nothing to serve yet. `options` may be null.
///
/// # Safety
/// `options` is null or valid, and so are the slices in it; `out` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_server_new(
    options: *const tl_server_options,
    out: *mut tl_server,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_server_new", status, |foreign| {
            foreign.write(out, tl_server::default())?;
            let builder = match foreign.sized(options)? {
                Some(options) => configured(foreign, &options)?,
                None => Server::builder(),
            };
            let server = ServerObject(Mutex::new(ServerStage::Building(Box::new(builder))));
            let id = handles::insert(Object::Server(Arc::new(server)))?;
            foreign.write(out, tl_server { id })
        })
    }
}

fn configured(foreign: &CallerMemory, options: &tl_server_options) -> Result<ServerBuilder, Status> {
    let mut builder = Server::builder().workers(options.workers.max(1) as usize);
    if let Some(socket) = said(foreign, options.socket)? {
        builder = builder.socket(socket);
    }
    if let Some(name) = said(foreign, options.name)? {
        builder = builder.name(name);
    }
    if let Some(embedded) = embedded(options.daemon)? {
        builder = builder.embedded(embedded);
    }
    Ok(builder)
}

/// Adds a service by its full name (`package.Service`). Its calls go to `handler` with `user`, on the thread that
/// received them; if that is null, to a queue as `TL_EVENT_CALL` with `tag`. A call that is over before its event is
/// taken leaves the queue again.
///
/// # Safety
/// The slice is valid; `handler` is null or a function that may be called on any thread, with `user`, until the server
/// has ended; `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_server_add_service(
    server: tl_server,
    name: tl_slice,
    queue: tl_queue,
    tag: u64,
    handler: tl_handler,
    user: *mut c_void,
    status: *mut tl_status,
) -> tl_code {
    let user = User(user);
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_server_add_service", status, |foreign| {
            let (server, name) = (lookup::server(server)?, foreign.text(name)?);
            let adapter = adapter(name, (queue, tag), (handler, user))?;
            server.change(|builder| builder.add_opaque_service(adapter))
        })
    }
}

/// The same with the types of a schema: messages of its calls are linear.
///
/// # Safety
/// As `tl_server_add_service` asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_server_add_typed_service(
    server: tl_server,
    schema: tl_schema,
    name: tl_slice,
    queue: tl_queue,
    tag: u64,
    handler: tl_handler,
    user: *mut c_void,
    status: *mut tl_status,
) -> tl_code {
    let user = User(user);
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_server_add_typed_service", status, |foreign| {
            let (server, name) = (lookup::server(server)?, foreign.text(name)?);
            let types = lookup::schema(schema)?.types.clone();
            let adapter = adapter(name, (queue, tag), (handler, user))?.with_types(types);
            server.change(|builder| builder.add_opaque_service(adapter))
        })
    }
}

/// The service whose calls go to a handler, or to a queue.
fn adapter(
    name: &str,
    (queue, tag): (tl_queue, u64),
    (handler, user): (tl_handler, User),
) -> Result<Adapter, Status> {
    let Some(handler) = handler else {
        let queue = lookup::queue(queue)?;
        return Ok(Adapter::new(name, move |served| {
            let waits = served.clone();
            let what = What::Call(Arc::new(CallObject::Served(served)));
            // The daemon bounds the calls that are open, and this what is over.
            queue.push_while_wanted(QueueEvent { tag, call: 0, what }, |cx| waits.poll_over(cx));
        }));
    };
    Ok(Adapter::new(name, move |served| handle(handler, user, served)))
}

/// Has a call handled by the application. Without room for a handle it is dropped, and its caller told.
fn handle(handler: unsafe extern "C" fn(*mut c_void, tl_call), user: User, served: DeliveredCall) {
    let scope = served.scope().clone();
    let Ok(id) = handles::insert(Object::Call(Arc::new(CallObject::Served(served)))) else { return };
    context::within(scope, || {
        // SAFETY: the promise of who added the service: a function for any thread, with this argument.
        unsafe { handler(user.0, tl_call { id }) }
    });
}

/// Starts a server in the background. It waits for a daemon if there is none, and attaches anew when one comes back.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_server_start(server: tl_server, status: *mut tl_status) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe { enter("tl_server_start", status, |_| lookup::server(server)?.start()) }
}

/// Waits until a server's services are known to the daemon: from here on calls arrive. `TL_PERMISSION_DENIED` if the
/// daemon refuses one, because its name is another's or a rule forbids it; the server goes on, and asks again.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_server_ready(server: tl_server, status: *mut tl_status) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe { enter("tl_server_ready", status, |_| lookup::server(server)?.running()?.ready().wait()) }
}

/// The same for `timeout_ns` at most, for ever if that is negative: then `TL_DEADLINE_EXCEEDED`, and the server goes on
/// as it was. There may be no daemon yet: calls arrive once it comes.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_server_ready_within(
    server: tl_server,
    timeout_ns: i64,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_server_ready_within", status, |_| {
            let server = lookup::server(server)?.running()?;
            let Ok(timeout_ns) = u64::try_from(timeout_ns) else { return server.ready().wait() };
            let ready = wait_within(server.ready(), Duration::from_nanos(timeout_ns));
            ready.unwrap_or_else(|| {
                Err(Status::deadline_exceeded("the daemon does not know the services yet"))
            })
        })
    }
}

/// Waits until a server has ended: stopped from another thread, or refused by the daemon.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_server_wait(server: tl_server, status: *mut tl_status) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe { enter("tl_server_wait", status, |_| lookup::server(server)?.running()?.finished().wait()) }
}

/// Stops a server and waits for its end: no new calls, those in flight have `grace_ns` to be answered. Then their
/// callers get `TL_UNAVAILABLE`. Negative is 0.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_server_shutdown(
    server: tl_server,
    grace_ns: i64,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_server_shutdown", status, |_| {
            let grace = Duration::from_nanos(u64::try_from(grace_ns).unwrap_or(0));
            lookup::server(server)?.running()?.shutdown(grace).wait()
        })
    }
}

/// Ends a server, without waiting: calls in flight have ten seconds to be answered. Nothing happens to 0.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_server_release(server: tl_server) -> tl_code {
    if server.id == 0 {
        return crate::abi::TL_OK;
    }
    // SAFETY: no pointers.
    unsafe {
        enter("tl_server_release", std::ptr::null_mut(), |_| {
            lookup::server(server)?;
            handles::remove(server.id);
            Ok(())
        })
    }
}
