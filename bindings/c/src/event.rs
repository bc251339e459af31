//! What came of an operation, before it is given to the caller: without handles, so that one nobody takes leaves none.

use crate::abi::{
    TL_COMPRESSED, TL_EVENT_CALL, TL_EVENT_END, TL_EVENT_HEADERS, TL_EVENT_MESSAGE, TL_EVENT_OPENED,
    TL_EVENT_OVER, TL_EVENT_POSTED, TL_EVENT_REPLY, TL_EVENT_REQUESTS_END, TL_EVENT_SENT, tl_call, tl_code,
    tl_event, tl_message, tl_metadata, tl_status,
};
use crate::entry::enter;
use crate::handles;
use crate::objects::{Object, QueueEvent, What};
use crate::{message, metadata};
use futures_util::FutureExt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use trunkline::Status;
use trunkline::opaque::Message;
use trunkline_bindings::{Answered, CallEvent, CompletionQueue};

/// What an event is before anything came.
pub(crate) const NONE: tl_event = tl_event {
    tag: 0,
    kind: 0,
    code: 0,
    call: tl_call { id: 0 },
    message: tl_message { id: 0 },
    headers: tl_metadata { id: 0 },
    trailers: tl_metadata { id: 0 },
    status: tl_status { id: 0 },
    flags: 0,
    reserved: 0,
    reserved_words: [0; 4],
};

/// Begins an operation in a queue; a panic in it is an event, too.
pub(crate) fn begin(
    queue: &CompletionQueue<QueueEvent>,
    (tag, call): (u64, u64),
    work: impl Future<Output = What> + Send + 'static,
) {
    queue.begin(async move {
        let done = AssertUnwindSafe(work).catch_unwind().await;
        let what = done.unwrap_or_else(|_| {
            What::Arrived(CallEvent::End(Status::internal("an operation panicked inside the library")))
        });
        QueueEvent { tag, call, what }
    });
}

impl QueueEvent {
    /// With handles for what it brings. Without room for those, its status says so.
    pub(crate) fn give(self) -> tl_event {
        let call = tl_call { id: self.call };
        let mut out = tl_event { tag: self.tag, kind: self.what.kind(), call, ..NONE };
        let given = self.what.give(&mut out);
        let status = given.unwrap_or_else(|status| status);
        out.code = status.code().number().into();
        out.status = handles::of_status(&status);
        out
    }
}

impl What {
    fn kind(&self) -> u32 {
        match self {
            Self::Reply(_) => TL_EVENT_REPLY,
            Self::Opened(_) => TL_EVENT_OPENED,
            Self::Sent(_) => TL_EVENT_SENT,
            Self::Arrived(CallEvent::Headers(_)) => TL_EVENT_HEADERS,
            Self::Arrived(CallEvent::Message(_)) => TL_EVENT_MESSAGE,
            Self::Arrived(CallEvent::RequestsEnd) => TL_EVENT_REQUESTS_END,
            Self::Arrived(CallEvent::End(_)) => TL_EVENT_END,
            Self::Call(_) => TL_EVENT_CALL,
            Self::Over(_) => TL_EVENT_OVER,
            Self::Posted => TL_EVENT_POSTED,
        }
    }

    /// The status it brings.
    fn give(self, out: &mut tl_event) -> Result<Status, Status> {
        match self {
            Self::Opened(status) | Self::Sent(status) | Self::Over(status) => return Ok(status),
            Self::Reply(Answered { headers, message, status }) => {
                out.headers = metadata::handle_of(headers)?;
                if let Some(message) = message {
                    give_message(message, out)?;
                }
                return Self::give_end(status, out);
            }
            Self::Arrived(CallEvent::End(status)) => return Self::give_end(status, out),
            Self::Arrived(CallEvent::Headers(headers)) => out.headers = metadata::handle_of(headers)?,
            Self::Arrived(CallEvent::Message(message)) => give_message(message, out)?,
            Self::Arrived(CallEvent::RequestsEnd) | Self::Posted => {}
            Self::Call(call) => out.call = tl_call { id: handles::insert(Object::Call(call))? },
        }
        Ok(Status::ok())
    }

    fn give_end(status: Status, out: &mut tl_event) -> Result<Status, Status> {
        out.trailers = metadata::handle_of(status.metadata().clone())?;
        Ok(status)
    }
}

fn give_message(message: Message, out: &mut tl_event) -> Result<(), Status> {
    out.flags |= if message.was_compressed() { TL_COMPRESSED } else { 0 };
    out.message = message::handle_of(message)?;
    Ok(())
}

/// Releases what an event brought, except the call, and forgets it. Null and an event cleared before are nothing.
///
/// # Safety
/// `event` is null or valid, and was written by the library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_event_clear(event: *mut tl_event) -> tl_code {
    if event.is_null() {
        return crate::abi::TL_OK;
    }
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_event_clear", std::ptr::null_mut(), |foreign| {
            let was = foreign.read(event)?;
            for id in [was.message.id, was.headers.id, was.trailers.id, was.status.id] {
                // What an event brought is not a channel, call, queue or server.
                if matches!(
                    handles::get(id),
                    Some(Object::Message(_) | Object::Metadata(_) | Object::Status(_))
                ) {
                    handles::remove(id);
                }
            }
            foreign.write(
                event,
                tl_event { tag: was.tag, kind: was.kind, code: was.code, call: was.call, ..NONE },
            )
        })
    }
}
