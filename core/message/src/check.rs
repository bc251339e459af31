//! The one-pass check: is this extent a message of this type, whoever wrote it?
//!
//! Time and visits are linear in the extent's length. There is no visited set: every block, array, string and run of
//! unknown bytes that is visited is charged to a budget of as many bytes as the extent has, so a cycle, or the same
//! part reached twice, runs out of budget unless the message wastes as much elsewhere (Cap'n Proto calls this a
//! traversal limit). What passes can therefore be walked, copied or encoded in time linear in its length, too.

mod error;
mod walk;

use trunkline_schema::{MessageIndex, Schema};

use crate::header::{HEADER_BYTES, Header};
use crate::view::View;

pub use error::{CheckError, CheckErrorKind};
use walk::{Halt, Walk};

/// A message that passed [`check`]: the token that lets it go where unchecked bytes may not.
///
/// `B` is whatever holds the bytes, a slice or a buffer of its own. It is vouched for as long as it does not change.
#[derive(Clone, Copy, Debug)]
pub struct Verified<B> {
    holder: B,
    root: MessageIndex,
    total_bytes: u32,
}

impl<B: AsRef<[u8]>> Verified<B> {
    /// The message's type.
    pub fn message(&self) -> MessageIndex {
        self.root
    }

    /// The message, header included; without whatever followed it.
    pub fn bytes(&self) -> &[u8] {
        self.holder.as_ref().get(..self.total_bytes as usize).unwrap_or_default()
    }

    /// The root message.
    pub fn view(&self) -> View<'_> {
        View::root(self.bytes())
    }

    /// The holder back, the promise gone.
    pub fn into_inner(self) -> B {
        self.holder
    }
}

/// Checks that the bytes are a linear message of type `root`: header and fingerprint, alignment and bounds, nesting,
/// oneofs, UTF-8 where the schema demands it, and that no declared field hides among the unknown ones. Bytes after the
/// message are ignored.
///
/// # Errors
/// [`CheckError`] on the first thing found wrong. Never panics; time is linear in the length.
pub fn check<B: AsRef<[u8]>>(
    schema: &Schema,
    root: MessageIndex,
    holder: B,
) -> Result<Verified<B>, CheckError> {
    let total_bytes = check_bytes(schema, root, holder.as_ref())?;
    Ok(Verified { holder, root, total_bytes })
}

fn check_bytes(schema: &Schema, root: MessageIndex, bytes: &[u8]) -> Result<u32, CheckError> {
    let refuse = |kind| CheckError { kind, offset: 0, message: root, field: 0 };
    let extent = checked_extent(schema, root, bytes).map_err(refuse)?;
    let mut walk = Walk::new(schema, extent);
    match walk.root(root) {
        Ok(()) => Ok(extent.len() as u32),
        Err(Halt) => Err(walk.error(root)),
    }
}

/// The part of the bytes that is the message, by its header.
fn checked_extent<'e>(
    schema: &Schema,
    root: MessageIndex,
    bytes: &'e [u8],
) -> Result<&'e [u8], CheckErrorKind> {
    if schema.messages().get(root.0 as usize).is_none() {
        return Err(CheckErrorKind::NoSuchMessage);
    }
    let header = Header::read(bytes)?;
    if header.fingerprint != schema.fingerprint(root) {
        return Err(CheckErrorKind::Fingerprint(header.fingerprint));
    }
    if !bytes.as_ptr().addr().is_multiple_of(8) {
        return Err(CheckErrorKind::Misaligned);
    }
    let extent = bytes.get(..header.total_bytes as usize).filter(|extent| extent.len() >= HEADER_BYTES);
    extent.ok_or(CheckErrorKind::Length(header.total_bytes))
}
