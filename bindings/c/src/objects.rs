//! What handles stand for. These know nothing of handles.

use parking_lot::{Mutex, RwLock};
use std::sync::{Arc, OnceLock};
use trunkline::opaque::{Space, Types};
use trunkline::{Metadata, ServerBuilder, ServerHandle, Status, opaque};
use trunkline_bindings::{Answered, CallEvent, Cancel, CompletionQueue, DeliveredCall, OpenCall};
use trunkline_message::Transcoder;
use trunkline_schema::Schema;

/// What a handle stands for. Cloning shares it.
#[derive(Clone)]
pub(crate) enum Object {
    Channel(opaque::Client),
    Queue(CompletionQueue<QueueEvent>),
    Call(Arc<CallObject>),
    Message(Arc<MessageBytes>),
    Metadata(Arc<RwLock<Metadata>>),
    Status(Arc<Status>),
    Server(Arc<ServerObject>),
    Schema(Arc<SchemaObject>),
    /// `None` once it was sent or released.
    Memory(Arc<Mutex<Option<BuildingMemory>>>),
}

impl Object {
    pub(crate) fn memory(memory: BuildingMemory) -> Self {
        Self::Memory(Arc::new(Mutex::new(Some(memory))))
    }
}

/// Memory that a message is built in.
pub(crate) enum BuildingMemory {
    Own(Space),
    /// In a forked child: that of its parent.
    Inherited(InheritedBytes),
}

/// In a forked child: bytes that were in shared memory of its parent, in pages of its own at the same place, which stay
/// until it ends (`forks.rs`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct InheritedBytes {
    pub(crate) address: usize,
    pub(crate) len: usize,
}

impl InheritedBytes {
    pub(crate) fn data(self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    pub(crate) fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: `forks.rs` has mapped these pages, and nobody unmaps them. The caller of the ABI writes to them, as
        // to all memory it builds in, while no function of the library reads them.
        unsafe { std::slice::from_raw_parts(self.data(), self.len) }
    }
}

/// The bytes of a message.
pub(crate) enum MessageBytes {
    /// In the receive heap.
    Received(opaque::Message),
    /// A block of malloc: with `TRUNKLINE_CHECKS=1`, and what was encoded here.
    Copied(Box<[u8]>),
    /// In a forked child: a message of its parent.
    Inherited(InheritedBytes),
}

impl MessageBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Received(message) => message.as_ref(),
            Self::Copied(bytes) => bytes,
            Self::Inherited(inherited) => inherited.bytes(),
        }
    }
}

/// One event.
pub(crate) struct QueueEvent {
    pub(crate) tag: u64,
    /// The handle of the call it is about.
    pub(crate) call: u64,
    pub(crate) what: What,
}

pub(crate) enum What {
    Reply(Answered),
    Opened(Status),
    Sent(Status),
    Arrived(CallEvent),
    Call(Arc<CallObject>),
    /// How a call that was made ended; OK of a delivered one.
    Over(Status),
    Posted,
}

/// What is behind the handle of a call.
pub(crate) enum CallObject {
    /// Made in a queue, with one request and one response.
    Unary(Cancel),
    /// Made, and opened if that has ended well.
    Made { cancel: Cancel, opened: OnceLock<OpenCall> },
    /// Delivered to a server.
    Served(DeliveredCall),
    /// No call: what one that blocks is cancelled by.
    Cancellation(Cancel),
}

impl CallObject {
    pub(crate) fn opened(&self) -> Result<OpenCall, Status> {
        match self {
            Self::Made { opened, .. } => {
                let opened = opened.get().cloned();
                opened.ok_or_else(|| Status::failed_precondition("the call has not been opened yet"))
            }
            Self::Unary(_) => Err(Status::failed_precondition("a unary call ends by itself")),
            Self::Cancellation(_) => Err(Status::failed_precondition("a cancellation is no call")),
            Self::Served(_) => Err(Status::failed_precondition("a delivered call is not the caller's")),
        }
    }

    /// Nobody is interested any more.
    pub(crate) fn let_go(&self) {
        match self {
            Self::Unary(cancel) | Self::Cancellation(cancel) => cancel.set(),
            Self::Made { cancel, opened } => {
                cancel.set();
                if let Some(opened) = opened.get() {
                    opened.cancel();
                }
            }
            Self::Served(served) => served.let_go(),
        }
    }
}

/// What is behind the handle of a schema.
pub(crate) struct SchemaObject {
    pub(crate) types: Types,
    pub(crate) schema: Arc<Schema>,
    /// Made when something is first encoded or decoded.
    pub(crate) transcoder: OnceLock<Transcoder>,
}

/// What is behind the handle of a server.
pub(crate) struct ServerObject(pub(crate) Mutex<ServerStage>);

/// How far a server is.
pub(crate) enum ServerStage {
    Building(Box<ServerBuilder>),
    Running(Arc<ServerHandle>),
    /// It could not be started, or is being changed.
    Nothing,
}

impl ServerObject {
    /// Adds to a server that does not run yet.
    pub(crate) fn change(&self, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Result<(), Status> {
        let mut stage = self.0.lock();
        match std::mem::replace(&mut *stage, ServerStage::Nothing) {
            ServerStage::Building(builder) => {
                *stage = ServerStage::Building(Box::new(change(*builder)));
                Ok(())
            }
            other => {
                *stage = other;
                Err(Status::failed_precondition("the server was started already"))
            }
        }
    }

    pub(crate) fn start(&self) -> Result<(), Status> {
        let mut stage = self.0.lock();
        match std::mem::replace(&mut *stage, ServerStage::Nothing) {
            ServerStage::Building(builder) => {
                *stage = ServerStage::Running(Arc::new(builder.spawn()?));
                Ok(())
            }
            other => {
                *stage = other;
                Err(Status::failed_precondition("the server was started already"))
            }
        }
    }

    pub(crate) fn running(&self) -> Result<Arc<ServerHandle>, Status> {
        match &*self.0.lock() {
            ServerStage::Running(handle) => Ok(Arc::clone(handle)),
            _ => Err(Status::failed_precondition("the server was not started")),
        }
    }
}
