//! Types read from descriptors: what makes the messages of a channel or a service linear.

use crate::abi::{tl_channel, tl_code, tl_memory, tl_message, tl_schema, tl_slice, tl_status};
use crate::entry::enter;
use crate::foreign::CallerMemory;
use crate::objects::{MessageBytes, Object, SchemaObject};
use crate::{handles, lookup, memory};
use std::sync::{Arc, OnceLock};
use trunkline::Status;
use trunkline::opaque::{self, Space, Types};
use trunkline_message::transcode::{DecodeLimits, EncodeError};
use trunkline_message::{Transcoder, check};
use trunkline_schema::{MessageIndex, Schema};

impl SchemaObject {
    fn transcoder(&self) -> &Transcoder {
        self.transcoder.get_or_init(|| Transcoder::new(Arc::clone(&self.schema)))
    }

    fn message(&self, foreign: &CallerMemory, name: tl_slice) -> Result<MessageIndex, Status> {
        let name = foreign.text(name)?;
        let found = self.schema.message_named(name);
        found.ok_or_else(|| Status::not_found(format!("the schema has no message {name:?}")))
    }
}

/// Names message and field where it can.
fn described(error: EncodeError, schema: &Schema) -> String {
    match error {
        EncodeError::Invalid(error) => error.describe(schema),
        EncodeError::Full { .. } => error.to_string(),
    }
}

/// The types that an encoded `FileDescriptorSet` declares, copied.
///
/// # Safety
/// The slice is valid, `out` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_schema_new(
    descriptor_set: tl_slice,
    out: *mut tl_schema,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_schema_new", status, |foreign| {
            foreign.write(out, tl_schema::default())?;
            let set = foreign.bytes(descriptor_set)?;
            let schema = Schema::from_descriptor_set(set);
            let schema = Arc::new(schema.map_err(|error| Status::invalid_argument(error.to_string()))?);
            let object =
                SchemaObject { types: Types::new(set.to_vec()), schema, transcoder: OnceLock::new() };
            let id = handles::insert(Object::Schema(Arc::new(object)))?;
            foreign.write(out, tl_schema { id })
        })
    }
}

/// Ends a schema. Channels and services made with it go on. Nothing happens to 0.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_schema_release(schema: tl_schema) -> tl_code {
    if schema.id == 0 {
        return crate::abi::TL_OK;
    }
    // SAFETY: no pointers.
    unsafe {
        enter("tl_schema_release", std::ptr::null_mut(), |_| {
            lookup::schema(schema)?;
            handles::remove(schema.id);
            Ok(())
        })
    }
}

/// A channel like `channel` for methods that `schema` declares: messages of its calls are linear.
///
/// # Safety
/// `out` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_channel_typed(
    channel: tl_channel,
    schema: tl_schema,
    out: *mut tl_channel,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_channel_typed", status, |foreign| {
            foreign.write(out, tl_channel::default())?;
            let (client, schema) = (lookup::channel(channel)?, lookup::schema(schema)?);
            let typed = opaque::Client::typed(client.channel().clone(), schema.types.clone());
            foreign.write(out, tl_channel { id: handles::insert(Object::Channel(typed))? })
        })
    }
}

/// Whether bytes from anybody are a linear message of the type with this full name: `TL_INVALID_ARGUMENT` says what is
/// wrong. What the library received has been checked.
///
/// # Safety
/// The slices are valid, `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_schema_check(
    schema: tl_schema,
    type_name: tl_slice,
    linear: tl_slice,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_schema_check", status, |foreign| {
            let schema = lookup::schema(schema)?;
            let message = schema.message(foreign, type_name)?;
            let checked = check(&schema.schema, message, foreign.bytes(linear)?);
            checked.map(drop).map_err(|error| Status::invalid_argument(error.describe(&schema.schema)))
        })
    }
}

/// A linear message of the type with this full name, from anybody, as protobuf.
///
/// # Safety
/// The slices are valid, `out` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_schema_encode(
    schema: tl_schema,
    type_name: tl_slice,
    linear: tl_slice,
    out: *mut tl_message,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_schema_encode", status, |foreign| {
            foreign.write(out, tl_message::default())?;
            let schema = lookup::schema(schema)?;
            let message = schema.message(foreign, type_name)?;
            let mut protobuf = Vec::new();
            let encoded = schema.transcoder().encode(message, foreign.bytes(linear)?, &mut protobuf);
            encoded.map_err(|error| Status::invalid_argument(described(error, &schema.schema)))?;
            let bytes = MessageBytes::Copied(protobuf.into());
            foreign.write(out, tl_message { id: handles::insert(Object::Message(Arc::new(bytes)))? })
        })
    }
}

/// A message in protobuf of the type with this full name, as a linear one in memory of the process, to be released.
/// `bytes` gets its length.
///
/// # Safety
/// The slices are valid, `out` and `bytes` are valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_schema_decode(
    schema: tl_schema,
    type_name: tl_slice,
    protobuf: tl_slice,
    out: *mut tl_memory,
    bytes: *mut usize,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_schema_decode", status, |foreign| {
            foreign.write(out, memory::NONE)?;
            foreign.write(bytes, 0)?;
            let schema = lookup::schema(schema)?;
            let message = schema.message(foreign, type_name)?;
            let mut space = Space::local(0)?;
            let protobuf = foreign.bytes(protobuf)?;
            let decoded = schema.transcoder().decode(message, protobuf, &mut space, &DecodeLimits::default());
            let len = decoded.map_err(|error| Status::invalid_argument(error.describe(&schema.schema)))?;
            foreign.write(out, memory::handle_of(space, len)?)?;
            foreign.write(bytes, len)
        })
    }
}
