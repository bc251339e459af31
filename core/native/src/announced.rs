//! What one side has named on a connection: methods, and who makes calls on its host.
//!
//! A connection has two, one for each direction: what was announced here, and what the peer announced.

use crate::caller::{self, CALLERS_MAX};
use crate::event::Event;
use crate::methods::{Fingerprints, Methods};
use crate::wire::{FixedFields, Header, check_limit, field, out_of_place};
use crate::{CallerNumber, MethodIndex, ProtocolError, Refused};

/// Names of one direction. Numbers are never given back.
#[derive(Debug, Default)]
pub(crate) struct AnnouncedNames {
    pub methods: Methods,
    /// Callers named so far; they count from 1.
    pub callers: u16,
}

impl AnnouncedNames {
    /// Takes a method the peer names.
    pub fn handle_schema<'a>(
        &mut self,
        header: &Header,
        body: &'a [u8],
        methods_max: u32,
    ) -> Result<Event<'a>, ProtocolError> {
        let next = self.methods.len();
        if usize::from(header.code) != next {
            return Err(field(header, "method index", header.code.into(), "the next one: they count from 0"));
        }
        check_limit(header, "methods", next as u32 + 1, methods_max)?;
        let mut read = FixedFields(body);
        let (request_fingerprint, response_fingerprint) = (read.u64(), read.u64());
        let Ok(path) = std::str::from_utf8(read.0) else {
            return Err(out_of_place(header, "the method's path is not UTF-8"));
        };
        let fingerprints = Fingerprints { request: request_fingerprint, response: response_fingerprint };
        let method = self.methods.announce(fingerprints);
        Ok(Event::Schema { method, path, request_fingerprint, response_fingerprint })
    }

    /// Takes what the peer has for a method of these.
    pub fn handle_answer(&mut self, header: &Header, body: &[u8]) -> Result<Event<'static>, ProtocolError> {
        let method = MethodIndex(header.code);
        let mut read = FixedFields(body);
        let (request_fingerprint, response_fingerprint) = (read.u64(), read.u64());
        let found = match read.u32() {
            0 => false,
            1 => true,
            other => return Err(field(header, "found", other.into(), "0 or 1")),
        };
        let fingerprints = Fingerprints { request: request_fingerprint, response: response_fingerprint };
        if self.methods.answer(method, found, fingerprints).is_none() {
            return Err(field(header, "method index", header.code.into(), "one announced by SCHEMA"));
        }
        Ok(Event::SchemaAnswer { method, found, request_fingerprint, response_fingerprint })
    }

    /// Takes somebody the peer names.
    pub fn handle_caller(&mut self, header: &Header, body: &[u8]) -> Result<Event<'static>, ProtocolError> {
        let next = self.callers + 1;
        check_limit(header, "caller number", header.code.into(), CALLERS_MAX.into())?;
        if !(1..=next).contains(&header.code) {
            let rule = "one that was named before, or the next one: they count from 1";
            return Err(field(header, "caller number", header.code.into(), rule));
        }
        let caller = caller::decode(header, body)?;
        self.callers = self.callers.max(header.code);
        Ok(Event::Caller { number: CallerNumber(header.code), caller })
    }

    /// Names the next method, of which the peer takes `methods_max`.
    pub fn announce(&mut self, fingerprints: Fingerprints, methods_max: u32) -> Result<MethodIndex, Refused> {
        if self.methods.len() as u64 >= u64::from(methods_max) {
            return Err(Refused::Methods { limit: methods_max });
        }
        Ok(self.methods.announce(fingerprints))
    }

    /// Gives a caller the next number, or that of another.
    pub fn name_caller(&mut self, instead_of: Option<CallerNumber>) -> Result<CallerNumber, Refused> {
        let number = instead_of.map_or(self.callers + 1, |number| number.0);
        let is_in_use = (1..=self.callers).contains(&number);
        if number > CALLERS_MAX || instead_of.is_some() && !is_in_use {
            return Err(Refused::OutOfPlace);
        }
        self.callers = self.callers.max(number);
        Ok(CallerNumber(number))
    }

    /// Whether the ends agreed on the fingerprints of a method: linear (request, response).
    pub fn agreed(&self, method: u16) -> (bool, bool) {
        self.methods.find(method).map_or((false, false), |m| (m.linear_request, m.linear_response))
    }

    /// Whether a call may be opened as somebody.
    pub fn knows(&self, caller: CallerNumber) -> bool {
        caller.0 <= self.callers
    }
}
