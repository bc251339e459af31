//! The object behind a handle, if it is one of the wanted kind.

use crate::abi::{
    tl_call, tl_channel, tl_memory, tl_message, tl_metadata, tl_queue, tl_schema, tl_server, tl_status,
};
use crate::handles;
use crate::objects::{
    BuildingMemory, CallObject, MessageBytes, Object, QueueEvent, SchemaObject, ServerObject,
};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use trunkline::{Metadata, Status, opaque};
use trunkline_bindings::{Cancel, CompletionQueue, DeliveredCall};

/// The channel behind a handle.
pub(crate) fn channel(channel: tl_channel) -> Result<opaque::Client, Status> {
    match handles::get(channel.id) {
        Some(Object::Channel(client)) => Ok(client),
        _ => Err(Status::invalid_argument(format!("{:#x} is no open channel", channel.id))),
    }
}

/// The queue behind a handle.
pub(crate) fn queue(queue: tl_queue) -> Result<CompletionQueue<QueueEvent>, Status> {
    match handles::get(queue.id) {
        Some(Object::Queue(queue)) => Ok(queue),
        _ => Err(Status::invalid_argument(format!("{:#x} is no open queue", queue.id))),
    }
}

/// The queue of an operation; `None`: the thread waits.
pub(crate) fn queue_if_any(queue: tl_queue) -> Result<Option<CompletionQueue<QueueEvent>>, Status> {
    if queue.id == 0 { Ok(None) } else { self::queue(queue).map(Some) }
}

/// The call behind a handle.
pub(crate) fn call(call: tl_call) -> Result<Arc<CallObject>, Status> {
    match handles::get(call.id) {
        Some(Object::Call(call)) => Ok(call),
        _ => Err(Status::invalid_argument(format!("{:#x} is no open call", call.id))),
    }
}

/// What a cancellation's handle cancels by.
pub(crate) fn cancellation(call: tl_call) -> Result<Cancel, Status> {
    match &*self::call(call)? {
        CallObject::Cancellation(cancel) => Ok(cancel.clone()),
        _ => Err(Status::invalid_argument("a cancellation is made by tl_cancellation_new")),
    }
}

/// The delivered call behind a handle.
pub(crate) fn served(call: tl_call) -> Result<DeliveredCall, Status> {
    match &*self::call(call)? {
        CallObject::Served(served) => Ok(served.clone()),
        _ => Err(Status::invalid_argument("only a delivered call can do that")),
    }
}

/// The message behind a handle.
pub(crate) fn message(message: tl_message) -> Result<Arc<MessageBytes>, Status> {
    match handles::get(message.id) {
        Some(Object::Message(body)) => Ok(body),
        _ => Err(Status::invalid_argument(format!("{:#x} is no open message", message.id))),
    }
}

/// The metadata behind a handle.
pub(crate) fn metadata(metadata: tl_metadata) -> Result<Arc<RwLock<Metadata>>, Status> {
    match handles::get(metadata.id) {
        Some(Object::Metadata(metadata)) => Ok(metadata),
        _ => Err(Status::invalid_argument(format!("{:#x} is no open metadata", metadata.id))),
    }
}

/// The status behind a handle.
pub(crate) fn status(status: tl_status) -> Result<Arc<Status>, Status> {
    match handles::get(status.id) {
        Some(Object::Status(status)) => Ok(status),
        _ => Err(Status::invalid_argument(format!("{:#x} is no open status", status.id))),
    }
}

/// The server behind a handle.
pub(crate) fn server(server: tl_server) -> Result<Arc<ServerObject>, Status> {
    match handles::get(server.id) {
        Some(Object::Server(server)) => Ok(server),
        _ => Err(Status::invalid_argument(format!("{:#x} is no open server", server.id))),
    }
}

/// The schema behind a handle.
pub(crate) fn schema(schema: tl_schema) -> Result<Arc<SchemaObject>, Status> {
    match handles::get(schema.id) {
        Some(Object::Schema(schema)) => Ok(schema),
        _ => Err(Status::invalid_argument(format!("{:#x} is no open schema", schema.id))),
    }
}

/// The memory behind a handle.
pub(crate) fn memory(memory: tl_memory) -> Result<Arc<Mutex<Option<BuildingMemory>>>, Status> {
    match handles::get(memory.id) {
        Some(Object::Memory(space)) => Ok(space),
        _ => Err(Status::invalid_argument(format!("{:#x} is no open memory", memory.id))),
    }
}
