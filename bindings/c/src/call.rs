//! Calls: made through a channel, or delivered to a server.

use crate::abi::{
    TL_LAST, TL_NO_MESSAGE, TL_UNCOMPRESSED, tl_call, tl_call_options, tl_channel, tl_code, tl_event,
    tl_memory, tl_message, tl_metadata, tl_outcome, tl_queue, tl_slice, tl_status,
};
use crate::entry::{enter, value};
use crate::event;
use crate::foreign::{CallerMemory, NOTHING, check_out, lend};
use crate::objects::{CallObject, Object, QueueEvent, What};
use crate::{context, handles, lookup, memory, message, metadata};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use trunkline::opaque::OpaqueBody;
use trunkline::{Code, Status, Wait};
use trunkline_bindings::{CallEvent, CallOpening, Cancel, CompletionQueue};

/// A call as its arguments say.
fn dial(
    foreign: &CallerMemory,
    channel: tl_channel,
    method: tl_slice,
    options: *const tl_call_options,
    cancel: &Cancel,
) -> Result<CallOpening, Status> {
    let client = lookup::channel(channel)?;
    let path = foreign.text(method)?;
    if path.strip_prefix('/').and_then(|path| path.split_once('/')).is_none() {
        return Err(Status::invalid_argument(format!("{path:?} is not /package.Service/Method")));
    }
    let Some(options) = foreign.sized(options)? else {
        return Ok(CallOpening::new(&client, path, context::current(), cancel.clone()));
    };
    let scope = match options.parent.id {
        0 => context::current(),
        _ => Some(lookup::served(options.parent)?.scope().clone()),
    };
    let timeout_ns = u64::try_from(options.timeout_ns)
        .map_err(|_| Status::invalid_argument("timeout_ns is negative; 0 is no limit"))?;
    let timeout = (timeout_ns > 0).then(|| Duration::from_nanos(timeout_ns));
    let dial = CallOpening::new(&client, path, scope, cancel.clone()).with_timeout(timeout);
    Ok(dial.with_metadata(metadata::copy_of(options.metadata)?))
}

/// What the call is cancelled by: of the options, or its own.
fn cancel_of(foreign: &CallerMemory, options: *const tl_call_options) -> Result<Cancel, Status> {
    match foreign.sized(options)? {
        Some(options) if options.cancellation.id != 0 => lookup::cancellation(options.cancellation),
        _ => Ok(Cancel::default()),
    }
}

fn copied(foreign: &CallerMemory, slice: tl_slice) -> Result<OpaqueBody, Status> {
    Ok(foreign.bytes(slice)?.to_vec().into())
}

/// What was built instead of a slice, if anything was. Its memory is gone in any case. First `nothing` is written to
/// where the call's end will be.
fn built<T: Copy>(
    foreign: &CallerMemory,
    options: *const tl_call_options,
    (out, nothing): (*mut T, T),
) -> Result<Option<OpaqueBody>, Status> {
    let built = match foreign.sized(options)? {
        Some(options) if options.built.id != 0 => memory::take(options.built, options.built_bytes).map(Some),
        _ => Ok(None),
    };
    foreign.write(out, nothing)?;
    built
}

/// Calls a method with one request, and waits for its response. `options` may be null. The request is copied.
///
/// # Safety
/// The slices are valid, `options` is null or valid, `reply` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_unary(
    channel: tl_channel,
    method: tl_slice,
    request: tl_slice,
    options: *const tl_call_options,
    reply: *mut tl_message,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_unary", status, |foreign| {
            let built = built(foreign, options, (reply, tl_message::default()))?;
            let dial = dial(foreign, channel, method, options, &cancel_of(foreign, options)?)?;
            let answered = dial.unary(built.map_or_else(|| copied(foreign, request), Ok)?).wait();
            match answered.message {
                Some(message) => foreign.write(reply, message::handle_of(message)?),
                None => Err(answered.status),
            }
        })
    }
}

/// The same with all that comes of it: `event` gets what `TL_EVENT_REPLY` has, also if the call fails. The code is that
/// of the call.
///
/// # Safety
/// The slices are valid, `options` is null or valid, `event` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_unary_event(
    channel: tl_channel,
    method: tl_slice,
    request: tl_slice,
    options: *const tl_call_options,
    event: *mut tl_event,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_unary_event", status, |foreign| {
            let built = built(foreign, options, (event, event::NONE))?;
            let dial = dial(foreign, channel, method, options, &cancel_of(foreign, options)?)?;
            let answered = dial.unary(built.map_or_else(|| copied(foreign, request), Ok)?).wait();
            let ended = answered.status.clone();
            foreign.write(event, QueueEvent { tag: 0, call: 0, what: What::Reply(answered) }.give())?;
            if ended.is_ok() { Ok(()) } else { Err(ended) }
        })
    }
}

/// Begins a call with one request in a queue; its end is `TL_EVENT_REPLY`. `options` may be null, the request is
/// copied. The call is there to be cancelled, and to be released.
///
/// # Safety
/// The slices are valid, `options` is null or valid, `call` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_unary_start(
    channel: tl_channel,
    method: tl_slice,
    request: tl_slice,
    options: *const tl_call_options,
    queue: tl_queue,
    tag: u64,
    call: *mut tl_call,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_unary_start", status, |foreign| {
            let built = built(foreign, options, (call, tl_call::default()))?;
            let (queue, cancel) = (lookup::queue(queue)?, cancel_of(foreign, options)?);
            let dial = dial(foreign, channel, method, options, &cancel)?;
            let request = built.map_or_else(|| copied(foreign, request), Ok)?;
            let id = handles::insert(Object::Call(Arc::new(CallObject::Unary(cancel))))?;
            event::begin(&queue, (tag, id), async move { What::Reply(dial.unary(request).await) });
            foreign.write(call, tl_call { id })
        })
    }
}

/// Opens a call of any pattern, with a first message unless `flags` has `TL_NO_MESSAGE`, and nothing after it if it has
/// `TL_LAST`. With a queue: `TL_EVENT_OPENED`, the call can be used then, and is to be released even if it failed; with
/// 0: waits. The message is copied.
///
/// # Safety
/// The slices are valid, `options` is null or valid, `call` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_open(
    channel: tl_channel,
    method: tl_slice,
    first: tl_slice,
    flags: u32,
    options: *const tl_call_options,
    queue: tl_queue,
    tag: u64,
    call: *mut tl_call,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_call_open", status, |foreign| {
            let built = built(foreign, options, (call, tl_call::default()))?;
            let (queue, cancel) = (lookup::queue_if_any(queue)?, cancel_of(foreign, options)?);
            let dial = dial(foreign, channel, method, options, &cancel)?;
            let first = match built {
                _ if flags & TL_NO_MESSAGE != 0 => None,
                Some(built) => Some(built),
                None => Some(copied(foreign, first)?),
            };
            let first = first.map(|first| flagged(first, flags));
            let made = Arc::new(CallObject::Made { cancel, opened: OnceLock::new() });
            let opening = open(Arc::clone(&made), dial, first, flags & TL_LAST != 0);
            match queue {
                None => {
                    opening.wait()?;
                    // Without a handle it is cancelled before it goes: what was sent must not be taken for the whole.
                    let id =
                        handles::insert(Object::Call(Arc::clone(&made))).inspect_err(|_| made.let_go())?;
                    foreign.write(call, tl_call { id })
                }
                Some(queue) => {
                    let id = handles::insert(Object::Call(made))?;
                    let opening = async { What::Opened(opening.await.err().unwrap_or_else(Status::ok)) };
                    event::begin(&queue, (tag, id), opening);
                    foreign.write(call, tl_call { id })
                }
            }
        })
    }
}

async fn open(
    made: Arc<CallObject>,
    dial: CallOpening,
    first: Option<OpaqueBody>,
    no_more: bool,
) -> Result<(), Status> {
    let opened = dial.open(first, no_more).await?;
    if let CallObject::Made { cancel, opened: place } = &*made {
        let _ = place.set(opened.clone());
        // Released in between: whoever did that found nothing to cancel.
        if cancel.is_set() {
            opened.cancel();
        }
    }
    Ok(())
}

/// Waits for an operation, or begins it in a queue.
fn perform(
    queue: Option<CompletionQueue<QueueEvent>>,
    (tag, call): (u64, tl_call),
    work: impl Future<Output = Result<(), Status>> + Send + 'static,
) -> Result<(), Status> {
    match queue {
        None => work.wait(),
        Some(queue) => {
            let work = async { What::Sent(work.await.err().unwrap_or_else(Status::ok)) };
            event::begin(&queue, (tag, call.id), work);
            Ok(())
        }
    }
}

/// Sends a message: a request of a call that was made (the last with `TL_LAST`), a response of one that was delivered.
/// With a queue: `TL_EVENT_SENT`; with 0: waits until there is room for it. The message is copied.
///
/// # Safety
/// The slice is valid, `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_send(
    call: tl_call,
    message: tl_slice,
    flags: u32,
    queue: tl_queue,
    tag: u64,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_call_send", status, |foreign| send(call, copied(foreign, message)?, flags, (queue, tag)))
    }
}

/// The same of a message that was built in memory, which is released, also if this fails: its first `bytes`. Nothing is
/// copied where it lies in the heap that it is sent from.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_send_built(
    call: tl_call,
    built: tl_memory,
    bytes: usize,
    flags: u32,
    queue: tl_queue,
    tag: u64,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_call_send_built", status, |_| {
            let message = memory::take(built, bytes)?;
            send(call, message, flags, (queue, tag))
        })
    }
}

/// As the flags say of its compression.
fn flagged(message: OpaqueBody, flags: u32) -> OpaqueBody {
    if flags & TL_UNCOMPRESSED != 0 { message.uncompressed() } else { message }
}

fn send(call: tl_call, message: OpaqueBody, flags: u32, (queue, tag): (tl_queue, u64)) -> Result<(), Status> {
    let message = flagged(message, flags);
    let (object, queue) = (lookup::call(call)?, lookup::queue_if_any(queue)?);
    match &*object {
        CallObject::Served(served) => {
            let served = served.clone();
            perform(queue, (tag, call), async move { served.send(message).await })
        }
        _ => {
            let opened = object.opened()?;
            let is_last = flags & TL_LAST != 0;
            perform(queue, (tag, call), async move { opened.send(message, is_last).await })
        }
    }
}

/// Says that no requests follow; `TL_FAILED_PRECONDITION` if that was said, and while a request is being sent.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_end_requests(call: tl_call, status: *mut tl_status) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe { enter("tl_call_end_requests", status, |_| lookup::call(call)?.opened()?.end_requests()) }
}

/// What comes next: `TL_EVENT_HEADERS`, `TL_EVENT_MESSAGE`, `TL_EVENT_REQUESTS_END` (servers), `TL_EVENT_END`. With a
/// queue it comes there, and `event` may be null; with 0: waits, and writes it to `event`.
///
/// # Safety
/// `event` and `status` are valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_receive(
    call: tl_call,
    queue: tl_queue,
    tag: u64,
    event: *mut tl_event,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_call_receive", status, |foreign| {
            let (object, queue) = (lookup::call(call)?, lookup::queue_if_any(queue)?);
            let work = receive(&object)?;
            if let Some(queue) = queue {
                event::begin(&queue, (tag, call.id), async { What::Arrived(work.await) });
                return Ok(());
            }
            check_out(event)?;
            let what = What::Arrived(work.wait());
            foreign.write(event, QueueEvent { tag, call: call.id, what }.give())
        })
    }
}

/// Receiving, whichever side of the call it is.
fn receive(object: &CallObject) -> Result<impl Future<Output = CallEvent> + Send + use<>, Status> {
    let (made, served) = match object {
        CallObject::Served(served) => (None, Some(served.clone())),
        _ => (Some(object.opened()?), None),
    };
    Ok(async move {
        match (made, served) {
            (Some(made), _) => made.receive().await,
            (None, Some(served)) => served.receive().await,
            (None, None) => CallEvent::RequestsEnd,
        }
    })
}

/// Cancels a call that was made; operations under way end with `TL_CANCELLED`. A delivered call is let go of: without
/// an answer its caller gets `TL_UNAVAILABLE`, and nothing can be sent any more.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_cancel(call: tl_call, status: *mut tl_status) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_call_cancel", status, |_| {
            lookup::call(call)?.let_go();
            Ok(())
        })
    }
}

/// Something to cancel a call by that a function waits for: `tl_call_options.cancellation`, given to `tl_call_cancel`.
/// Released by `tl_call_release`.
///
/// # Safety
/// `out` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_cancellation_new(out: *mut tl_call, status: *mut tl_status) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_cancellation_new", status, |foreign| {
            foreign.write(out, tl_call::default())?;
            let cancellation = Arc::new(CallObject::Cancellation(Cancel::default()));
            foreign.write(out, tl_call { id: handles::insert(Object::Call(cancellation))? })
        })
    }
}

/// 1 if a delivered call is over: answered, or no longer wanted because its caller has gone, its deadline has passed or
/// the session has ended. 0 otherwise, and of what is no delivered call.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_is_over(call: tl_call) -> u32 {
    // SAFETY: no pointers.
    unsafe { value("tl_call_is_over", 0, |_| Ok(lookup::served(call)?.scope().is_over().into())) }
}

/// `/package.Service/Method` of a delivered call, until it is released.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_method(call: tl_call) -> tl_slice {
    // SAFETY: no pointers.
    unsafe { value("tl_call_method", NOTHING, |_| Ok(lend(lookup::served(call)?.path().as_bytes()))) }
}

/// The request's metadata of a delivered call, as a handle of its own; 0 if there are none.
///
/// # Safety
/// `out` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_metadata(
    call: tl_call,
    out: *mut tl_metadata,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_call_metadata", status, |foreign| {
            foreign.write(out, tl_metadata::default())?;
            foreign.write(out, metadata::handle_of(lookup::served(call)?.metadata().clone())?)
        })
    }
}

/// Nanoseconds left to answer a delivered call; `INT64_MAX` without a limit, 0 of what is no delivered call.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_time_left(call: tl_call) -> i64 {
    // SAFETY: no pointers.
    unsafe {
        value("tl_call_time_left", 0, |_| {
            let left = lookup::served(call)?.time_left();
            Ok(left.and_then(|left| i64::try_from(left.as_nanos()).ok()).unwrap_or(i64::MAX))
        })
    }
}

/// `TL_EVENT_OVER` in a queue, or with 0 waits. Of a delivered call: when it is over, answered, or no longer wanted
/// because its caller has gone, its deadline has passed or the session has ended. Of a call that `tl_call_open` made
/// and that has been opened: when it has ended, also by `tl_call_cancel`; what came before its end can still be
/// received, and its end with the trailers. Once per call.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_watch(
    call: tl_call,
    queue: tl_queue,
    tag: u64,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_call_watch", status, |_| {
            let (object, queue) = (lookup::call(call)?, lookup::queue_if_any(queue)?);
            let over = over(&object)?;
            match queue {
                None => drop(over.wait()),
                Some(queue) => event::begin(&queue, (tag, call.id), async move { What::Over(over.await) }),
            }
            Ok(())
        })
    }
}

/// Waiting for the end, whichever side of the call it is.
fn over(object: &CallObject) -> Result<impl Future<Output = Status> + Send + use<>, Status> {
    let (made, scope) = match object {
        CallObject::Served(served) => (None, Some(served.scope().clone())),
        _ => (Some(object.opened()?), None),
    };
    Ok(async move {
        if let Some(scope) = scope {
            std::future::poll_fn(move |cx| scope.poll_over(cx)).await;
        }
        match made {
            Some(made) => made.ended().await,
            None => Status::ok(),
        }
    })
}

/// Sends response headers of a delivered call: once, before all responses. With a queue: `TL_EVENT_SENT`; else waits.
///
/// # Safety
/// `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_send_headers(
    call: tl_call,
    headers: tl_metadata,
    queue: tl_queue,
    tag: u64,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_call_send_headers", status, |_| {
            let (served, queue) = (lookup::served(call)?, lookup::queue_if_any(queue)?);
            let headers = metadata::copy_of(headers)?;
            perform(queue, (tag, call), async move { served.send_headers(&headers).await })
        })
    }
}

/// Answers a delivered call: with an outcome (null: success), and a last response unless `message` is null. With a
/// queue: `TL_EVENT_SENT`; with 0: waits until there is room for it. The call is still to be released. An answer that
/// nobody gets is none: `TL_CANCELLED`, `TL_DEADLINE_EXCEEDED` or `TL_UNAVAILABLE` then, because the call was no longer
/// wanted.
///
/// # Safety
/// `outcome` and `message` are null or valid, and so are their slices; `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_finish(
    call: tl_call,
    outcome: *const tl_outcome,
    message: *const tl_slice,
    queue: tl_queue,
    tag: u64,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_call_finish", status, |foreign| {
            let built = match foreign.sized(outcome)? {
                Some(outcome) if outcome.built.id != 0 => {
                    Some(memory::take(outcome.built, outcome.built_bytes)?)
                }
                _ => None,
            };
            let (served, queue) = (lookup::served(call)?, lookup::queue_if_any(queue)?);
            let ending = ending(foreign, outcome)?;
            let message = match built {
                None if message.is_null() => None,
                None => Some(copied(foreign, foreign.read(message)?)?),
                built => built,
            };
            let flags = foreign.sized(outcome)?.map_or(0, |outcome| outcome.flags);
            let message = message.map(|message| flagged(message, flags));
            perform(queue, (tag, call), async move { served.finish(&ending, message).await })
        })
    }
}

fn ending(foreign: &CallerMemory, outcome: *const tl_outcome) -> Result<Status, Status> {
    let Some(outcome) = foreign.sized(outcome)? else { return Ok(Status::ok()) };
    let code = u16::try_from(outcome.code).map_or(Code::Unknown, Code::from_number);
    let message = String::from_utf8_lossy(foreign.bytes(outcome.message)?).into_owned();
    let mut status = Status::new(code, message).with_details(foreign.bytes(outcome.details)?);
    *status.metadata_mut() = metadata::copy_of(outcome.trailers)?;
    Ok(status)
}

/// Ends a call: one that was made and has not ended is cancelled, one that was delivered and not answered gets
/// `TL_UNAVAILABLE`, operations under way end. Nothing happens to 0.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_call_release(call: tl_call) -> tl_code {
    if call.id == 0 {
        return crate::abi::TL_OK;
    }
    // SAFETY: no pointers.
    unsafe {
        enter("tl_call_release", std::ptr::null_mut(), |_| {
            lookup::call(call)?.let_go();
            handles::remove(call.id);
            Ok(())
        })
    }
}
