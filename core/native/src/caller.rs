//! The body of CALLER: what a daemon says of whoever makes calls on its host, once for all calls of that caller.
//!
//! `0 u16 identity bytes, 2 u16 name bytes, 4 u16 program bytes, 6 u16 services, 8 identity, name, program, then per
//! service u16 bytes and the name`, little endian, all of it UTF-8.

use crate::ProtocolError;
use crate::wire::{Header, check_limit, field, out_of_place};
use trunkline_call::VouchedCaller;

/// Callers one side may have named at once. A host has a few dozen; one that has more names those that call now anew.
pub(crate) const CALLERS_MAX: u16 = 256;

const FIXED_BYTES: usize = 8;

/// Longest body: every field as long as it may be.
pub(crate) const CALLER_BYTES_MAX: u32 = (FIXED_BYTES
    + 2 * VouchedCaller::NAME_BYTES_MAX
    + VouchedCaller::PROGRAM_BYTES_MAX
    + VouchedCaller::SERVICES_MAX * (2 + VouchedCaller::NAME_BYTES_MAX))
    as u32;

/// Shortest body.
pub(crate) const CALLER_BYTES_MIN: u32 = FIXED_BYTES as u32;

/// Writes the body for a caller that is within its bounds.
pub(crate) fn encode(caller: &VouchedCaller) -> Vec<u8> {
    let VouchedCaller { identity, name, program, services } = caller;
    let mut out = Vec::with_capacity(FIXED_BYTES + identity.len() + name.len() + program.len());
    let lengths = [identity.len(), name.len(), program.len(), services.len()];
    lengths.iter().for_each(|length| out.extend((*length as u16).to_le_bytes()));
    [identity, name, program].iter().for_each(|text| out.extend(text.as_bytes()));
    for service in services {
        out.extend((service.len() as u16).to_le_bytes());
        out.extend(service.as_bytes());
    }
    out
}

/// Reads a body a peer sent.
///
/// # Errors
/// [`ProtocolError`] naming the field that is too long or reaches beyond the frame, or that it is no text of one line.
pub(crate) fn decode(header: &Header, body: &[u8]) -> Result<VouchedCaller, ProtocolError> {
    let mut read = Reader { header, rest: body };
    let mut lengths = [0; 4];
    for length in &mut lengths {
        *length = read.u16()?;
    }
    let [identity, name, program, count] = lengths;
    check_limit(header, "services", count.into(), VouchedCaller::SERVICES_MAX as u32)?;
    let identity = read.text("identity length", identity, VouchedCaller::NAME_BYTES_MAX)?;
    let name = read.text("name length", name, VouchedCaller::NAME_BYTES_MAX)?;
    let program = read.text("program length", program, VouchedCaller::PROGRAM_BYTES_MAX)?;
    let mut services = Vec::with_capacity(count.into());
    for _ in 0..count {
        let length = read.u16()?;
        services.push(read.text("service length", length, VouchedCaller::NAME_BYTES_MAX)?);
    }
    if !read.rest.is_empty() {
        return Err(field(header, "length", header.length.into(), "that of its fields"));
    }
    Ok(VouchedCaller { identity, name, program, services })
}

/// Walks a body.
struct Reader<'a> {
    header: &'a Header,
    rest: &'a [u8],
}

impl Reader<'_> {
    fn u16(&mut self) -> Result<u16, ProtocolError> {
        let found = self.rest.split_first_chunk::<2>();
        let (bytes, rest) = found
            .ok_or_else(|| field(self.header, "length", self.header.length.into(), "that of its fields"))?;
        self.rest = rest;
        Ok(u16::from_le_bytes(*bytes))
    }

    fn text(&mut self, name: &'static str, bytes: u16, bytes_max: usize) -> Result<Box<str>, ProtocolError> {
        check_limit(self.header, name, bytes.into(), bytes_max as u32)?;
        let Some((text, rest)) = self.rest.split_at_checked(bytes.into()) else {
            return Err(field(self.header, name, bytes.into(), "within the frame"));
        };
        self.rest = rest;
        let Ok(text) = std::str::from_utf8(text) else {
            return Err(out_of_place(self.header, "what it says is not UTF-8"));
        };
        if text.contains(char::is_control) {
            return Err(out_of_place(self.header, "what it says has control characters"));
        }
        Ok(text.into())
    }
}
