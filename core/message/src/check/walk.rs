//! The walk of the check, written so that what is right costs few instructions: conditions that never hold are
//! joined to one branch and told apart later, success is an empty register, and arrays are kept out of the way.

use trunkline_schema::{Form, Message, MessageIndex, Schema, Slot};

use crate::bytes::{read_pair, read_u32, slice};
use crate::header::HEADER_BYTES;
use crate::oneof::one_too_many;
use crate::place::DEPTH_MAX;
use crate::unknown;

use super::error::{CheckError, CheckErrorKind};

/// The walk has stopped; [`Walk::fault`] says why. Empty, so that success costs no more than a register.
pub(super) struct Halt;

/// What was found wrong, as far as the place knows.
struct Fault {
    kind: CheckErrorKind,
    offset: u32,
    /// Type and presence bit, once known.
    place: Option<(MessageIndex, u32)>,
}

/// A walk from the root through everything that is present.
pub(super) struct Walk<'a> {
    messages: &'a [Message],
    schema: &'a Schema,
    extent: &'a [u8],
    fault: Option<Fault>,
}

/// Bytes that may still be visited. Handed from call to call and not kept in [`Walk`]: through memory, each charge
/// would wait for the one before it.
type Budget = u64;

/// What a visit leaves of the budget.
type Step = Result<Budget, Halt>;

impl<'a> Walk<'a> {
    pub(super) fn new(schema: &'a Schema, extent: &'a [u8]) -> Self {
        Self { messages: schema.messages(), schema, extent, fault: None }
    }

    /// Visits everything, from the root of type `index`.
    pub(super) fn root(&mut self, index: MessageIndex) -> Result<(), Halt> {
        let budget = self.extent.len().saturating_sub(HEADER_BYTES) as Budget;
        self.block(index, HEADER_BYTES as u32, DEPTH_MAX, budget).map(drop)
    }

    /// Visits the message of type `index` at `at`, which may have `depth_left` levels below it.
    fn block(&mut self, index: MessageIndex, at: u32, depth_left: u32, budget: Budget) -> Step {
        let Some(Message { layout, .. }) = self.messages.get(index.0 as usize) else {
            return Err(self.halt(CheckErrorKind::NoSuchMessage, at));
        };
        let (block, mut budget) = self.range(at, layout.block_bytes.into(), 8, budget)?;
        if read_u32(block, 0) != 0 {
            budget = self.unknown(index, read_u32(block, 0), depth_left, budget)?;
        }
        if !layout.oneofs.is_empty()
            && let Some(bit) = one_too_many(block, &layout.oneofs)
        {
            self.halt(CheckErrorKind::Oneof, at);
            return Err(self.blame(index, bit));
        }
        let mut first = 0;
        for word in &layout.words {
            let present = read_u32(block, 4 + first as usize / 8);
            if present & !word.defined != 0 {
                self.halt(CheckErrorKind::NoSuchField, at);
                return Err(self.blame(index, u32::MAX));
            }
            let mut follow = present & word.checked;
            while follow != 0 {
                let bit = first + follow.trailing_zeros();
                follow &= follow - 1;
                let Some(slot) = layout.slots.get(bit as usize) else { break };
                budget = match self.slot(slot, block, depth_left, budget) {
                    Ok(budget) => budget,
                    Err(Halt) => return Err(self.blame(index, bit)),
                };
            }
            first += 32;
        }
        Ok(budget)
    }

    /// Looks into one slot. Strings and messages are handled here, arrays and closed enums, which are rarer, out of the
    /// way.
    #[inline(always)]
    fn slot(&mut self, slot: &Slot, block: &[u8], depth_left: u32, budget: Budget) -> Step {
        match slot.form {
            Form::Message => {
                let message = MessageIndex(slot.type_index);
                self.message(message, read_u32(block, slot.offset as usize), depth_left, budget)
            }
            Form::Bytes => {
                let (at, length) = read_pair(block, slot.offset as usize);
                self.charge(at, length.into(), 1, budget)
            }
            Form::Text => {
                let (at, length) = read_pair(block, slot.offset as usize);
                self.text(at, length, budget)
            }
            _ => self.array(slot, block, depth_left, budget),
        }
    }

    #[inline(never)]
    fn array(&mut self, slot: &Slot, block: &[u8], depth_left: u32, budget: Budget) -> Step {
        let (at, count) = read_pair(block, slot.offset as usize);
        let length = |element_bytes: u64| element_bytes * u64::from(count);
        match slot.form {
            Form::ClosedEnum => {
                let number = slice(block, slot.offset, 4).unwrap_or_default();
                self.closed_enum(slot.type_index, slot.offset, number).map(|()| budget)
            }
            _ if count == 0 => Ok(budget),
            Form::Array1 => self.charge(at, length(1), 1, budget),
            Form::Array4 => self.charge(at, length(4), 4, budget),
            Form::Array8 => self.charge(at, length(8), 8, budget),
            Form::ClosedEnumArray => {
                let (numbers, budget) = self.range(at, length(4), 4, budget)?;
                self.closed_enum(slot.type_index, at, numbers).map(|()| budget)
            }
            Form::BytesArray => self.strings(at, length(8), false, budget),
            Form::TextArray => self.strings(at, length(8), true, budget),
            _ => {
                let (offsets, mut budget) = self.range(at, length(4), 4, budget)?;
                for offset in offsets.chunks_exact(4) {
                    let message = MessageIndex(slot.type_index);
                    budget = self.message(message, read_u32(offset, 0), depth_left, budget)?;
                }
                Ok(budget)
            }
        }
    }

    #[inline(always)]
    fn message(&mut self, message: MessageIndex, at: u32, depth_left: u32, budget: Budget) -> Step {
        match depth_left.checked_sub(1) {
            Some(depth_left) if at != 0 => self.block(message, at, depth_left, budget),
            Some(_) => Err(self.halt(CheckErrorKind::Null, at)),
            None => Err(self.halt(CheckErrorKind::Depth, at)),
        }
    }

    /// Looks for the numbers, which lie at `at`, in a closed enum.
    fn closed_enum(&mut self, index: u32, at: u32, numbers: &[u8]) -> Result<(), Halt> {
        let of = self.schema.enums().get(index as usize);
        let declares = |number: &[u8]| of.is_some_and(|of| of.declares(read_u32(number, 0) as i32));
        match numbers.chunks_exact(4).position(|number| !declares(number)) {
            None => Ok(()),
            Some(stray) => Err(self.halt(CheckErrorKind::Enum, at.saturating_add(4 * stray as u32))),
        }
    }

    fn strings(&mut self, at: u32, length: u64, utf8: bool, budget: Budget) -> Step {
        let (pairs, mut budget) = self.range(at, length, 4, budget)?;
        for element in pairs.chunks_exact(8) {
            let (at, length) = read_pair(element, 0);
            budget = match utf8 {
                true => self.text(at, length, budget)?,
                false => self.charge(at, length.into(), 1, budget)?,
            };
        }
        Ok(budget)
    }

    #[inline(never)]
    fn text(&mut self, at: u32, length: u32, budget: Budget) -> Step {
        let (text, budget) = self.range(at, length.into(), 1, budget)?;
        match simdutf8::basic::from_utf8(text) {
            Ok(_) => Ok(budget),
            Err(_) => Err(self.halt(CheckErrorKind::Utf8, at)),
        }
    }

    #[cold]
    #[inline(never)]
    fn unknown(&mut self, index: MessageIndex, at: u32, depth_left: u32, budget: Budget) -> Step {
        let (length, budget) = self.range(at, 4, 4, budget)?;
        let at = at.saturating_add(4);
        let (run, budget) = self.range(at, read_u32(length, 0).into(), 1, budget)?;
        let Some(message) = self.messages.get(index.0 as usize) else { return Ok(budget) };
        match unknown::examine(self.schema, message, run, depth_left) {
            Ok(()) => Ok(budget),
            Err(flaw) => {
                self.halt(flaw.kind, at.saturating_add(flaw.at));
                Err(self.blame(index, message.field(flaw.field).map_or(u32::MAX, |field| field.presence_bit)))
            }
        }
    }

    /// As [`Walk::charge`], and hands the bytes out.
    #[inline(always)]
    fn range(
        &mut self,
        at: u32,
        length: u64,
        alignment: u32,
        budget: Budget,
    ) -> Result<(&'a [u8], Budget), Halt> {
        let budget = self.charge(at, length, alignment, budget)?;
        // Bounds were just checked; this repeats it in the form the compiler wants.
        Ok((slice(self.extent, at, length as usize).unwrap_or_default(), budget))
    }

    /// Makes sure that `length` bytes at `at` are in the extent, aligned and within the budget, and charges them.
    #[inline(always)]
    fn charge(&mut self, at: u32, length: u64, alignment: u32, budget: Budget) -> Step {
        let outside = u64::from(at) + length > self.extent.len() as u64;
        // One branch for what never happens; which it was is found out later.
        if outside | (length > budget) | (at & (alignment - 1) != 0) {
            return self.refuse(at, length, outside, budget);
        }
        Ok(budget - length)
    }

    /// What [`Walk::charge`] found, told apart. Where nothing lies is nobody's business: empty strings pass.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, at: u32, length: u64, outside: bool, budget: Budget) -> Step {
        let kind = match outside {
            _ if length == 0 => return Ok(budget),
            true => CheckErrorKind::OutOfBounds,
            false if length > budget => CheckErrorKind::Overlap,
            false => CheckErrorKind::Misaligned,
        };
        Err(self.halt(kind, at))
    }

    #[cold]
    #[inline(never)]
    fn halt(&mut self, kind: CheckErrorKind, offset: u32) -> Halt {
        self.fault = Some(Fault { kind, offset, place: None });
        Halt
    }

    /// Names the field the fault came up through, unless an inner one has been named.
    #[cold]
    #[inline(never)]
    fn blame(&mut self, message: MessageIndex, bit: u32) -> Halt {
        if let Some(fault) = &mut self.fault {
            fault.place.get_or_insert((message, bit));
        }
        Halt
    }

    /// Why the walk stopped.
    pub(super) fn error(&self, root: MessageIndex) -> CheckError {
        let Some(fault) = &self.fault else {
            return CheckError { kind: CheckErrorKind::NoSuchMessage, offset: 0, message: root, field: 0 };
        };
        let (message, bit) = fault.place.unwrap_or((root, u32::MAX));
        let fields = self.messages.get(message.0 as usize).map(|m| m.fields.as_slice());
        let field = fields.and_then(|f| f.get(bit as usize)).map_or(0, |f| f.number);
        CheckError { kind: fault.kind, offset: fault.offset, message, field }
    }
}
