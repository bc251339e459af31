//! Metadata: pairs of keys and values.

use crate::abi::{tl_code, tl_metadata, tl_slice, tl_status};
use crate::entry::{enter, value};
use crate::foreign::lend;
use crate::objects::Object;
use crate::{handles, lookup};
use parking_lot::RwLock;
use std::sync::Arc;
use trunkline::{Metadata, Status};

/// A handle for metadata; 0 for none.
pub(crate) fn handle_of(metadata: Metadata) -> Result<tl_metadata, Status> {
    if metadata.is_empty() {
        return Ok(tl_metadata::default());
    }
    let id = handles::insert(Object::Metadata(Arc::new(RwLock::new(metadata))))?;
    Ok(tl_metadata { id })
}

/// A copy of what is behind a handle; 0 is none.
pub(crate) fn copy_of(metadata: tl_metadata) -> Result<Metadata, Status> {
    if metadata.id == 0 { Ok(Metadata::new()) } else { Ok(lookup::metadata(metadata)?.read().clone()) }
}

/// Metadata without pairs.
///
/// # Safety
/// `out` is valid for writing, `status` too or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_metadata_new(out: *mut tl_metadata, status: *mut tl_status) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_metadata_new", status, |foreign| {
            foreign.write(out, tl_metadata::default())?;
            let id = handles::insert(Object::Metadata(Arc::default()))?;
            foreign.write(out, tl_metadata { id })
        })
    }
}

/// Adds a pair, copied. Keys are lower case; only one that ends in `-bin` has a value of any bytes.
///
/// # Safety
/// The slices are valid, `status` is valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_metadata_add(
    metadata: tl_metadata,
    key: tl_slice,
    value: tl_slice,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_metadata_add", status, |foreign| {
            let found = lookup::metadata(metadata)?;
            let (key, value) = (foreign.text(key)?, foreign.bytes(value)?);
            let added = found.write().insert(key, value);
            added.map_err(|error| Status::invalid_argument(error.to_string()))
        })
    }
}

/// How many pairs there are; 0 of what is no metadata.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_metadata_count(metadata: tl_metadata) -> usize {
    if metadata.id == 0 {
        return 0;
    }
    // SAFETY: no pointers.
    unsafe { value("tl_metadata_count", 0, |_| Ok(lookup::metadata(metadata)?.read().len())) }
}

/// The pair at `index`, until the metadata are released.
///
/// # Safety
/// `key`, `value` and `status` are valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_metadata_at(
    metadata: tl_metadata,
    index: usize,
    key: *mut tl_slice,
    value: *mut tl_slice,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_metadata_at", status, |foreign| {
            let found = lookup::metadata(metadata)?;
            let pairs = found.read();
            let pair = pairs.iter().nth(index);
            let (at_key, at_value) =
                pair.ok_or_else(|| Status::out_of_range(format!("pair {index} of {}", pairs.len())))?;
            foreign.write_if_wanted(key, lend(at_key.as_bytes()))?;
            foreign.write_if_wanted(value, lend(at_value))
        })
    }
}

/// The first value of a key, until the metadata are released; `TL_NOT_FOUND` without one.
///
/// # Safety
/// The slice is valid, `value` and `status` are valid for writing or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_metadata_first(
    metadata: tl_metadata,
    key: tl_slice,
    value: *mut tl_slice,
    status: *mut tl_status,
) -> tl_code {
    // SAFETY: the caller's promise.
    unsafe {
        enter("tl_metadata_first", status, |foreign| {
            let key = foreign.text(key)?;
            let missing = || Status::not_found(format!("no pair {key:?}"));
            if metadata.id == 0 {
                return Err(missing());
            }
            let found = lookup::metadata(metadata)?;
            let pairs = found.read();
            foreign.write_if_wanted(value, lend(pairs.first(key).ok_or_else(missing)?))
        })
    }
}

/// Ends metadata. Nothing happens to 0.
///
/// # Safety
/// May be called with any handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_metadata_release(metadata: tl_metadata) -> tl_code {
    if metadata.id == 0 {
        return crate::abi::TL_OK;
    }
    // SAFETY: no pointers.
    unsafe {
        enter("tl_metadata_release", std::ptr::null_mut(), |_| {
            lookup::metadata(metadata)?;
            handles::remove(metadata.id);
            Ok(())
        })
    }
}
