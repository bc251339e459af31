//! Channels, and which daemon.

use crate::abi::{
    TL_ANY_DAEMON, TL_ATTACHED, TL_EMBEDDED, tl_channel, tl_channel_options, tl_code, tl_slice, tl_status,
};
use crate::entry::enter;
use crate::foreign::CallerMemory;
use crate::objects::Object;
use crate::{handles, lookup};
use trunkline::{Channel, ChannelBuilder, Status, opaque};

/// The version of the ABI: major times 65536 and minor. A program built for a lower minor runs with a higher one,
/// once there is a major.
#[unsafe(no_mangle)]
pub extern "C" fn tl_version() -> u32 {
    2
}

/// Handles that were not released, of all kinds: for tests that look for leaks.
#[unsafe(no_mangle)]
pub extern "C" fn tl_handles_open() -> u64 {
    handles::open()
}

/// Whether the daemon is inside the process; `None`: whichever there is.
pub(crate) fn embedded(daemon: u32) -> Result<Option<bool>, Status> {
    match daemon {
        TL_ANY_DAEMON => Ok(None),
        TL_EMBEDDED => Ok(Some(true)),
        TL_ATTACHED => Ok(Some(false)),
        other => Err(Status::invalid_argument(format!("{other} is no kind of daemon"))),
    }
}

/// A text that was said, or none.
pub(crate) fn said(foreign: &CallerMemory, slice: tl_slice) -> Result<Option<&str>, Status> {
    Ok(Some(foreign.text(slice)?).filter(|text| !text.is_empty()))
}

/// A channel. Nothing is sent until the first call. `options` may be null: calls go to whoever serves on this host.
///
/// # Safety
/// `options` is null or valid, and so are the slices in it; `out` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_channel_new(
    options: *const tl_channel_options,
    out: *mut tl_channel,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_channel_new", status, |foreign| {
            foreign.write(out, tl_channel::default())?;
            let builder = match foreign.sized(options)? {
                Some(options) => configured(foreign, &options)?,
                None => Channel::builder(),
            };
            let client = opaque::Client::new(builder.connect_lazy());
            let id = handles::insert(Object::Channel(client))?;
            foreign.write(out, tl_channel { id })
        })
    }
}

fn configured(foreign: &CallerMemory, options: &tl_channel_options) -> Result<ChannelBuilder, Status> {
    let mut builder = Channel::builder().wait_for_ready(options.wait_for_ready != 0);
    if let Some(target) = said(foreign, options.target)? {
        builder = builder.target(target);
    }
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

/// Ends a channel. Calls made through it go on. Nothing happens to 0.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_channel_release(channel: tl_channel) -> tl_code {
    if channel.id == 0 {
        return crate::abi::TL_OK;
    }
    // SAFETY: no pointers.
    unsafe {
        enter("tl_channel_release", std::ptr::null_mut(), |_| {
            lookup::channel(channel)?;
            handles::remove(channel.id);
            Ok(())
        })
    }
}
