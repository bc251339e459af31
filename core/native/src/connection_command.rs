//! What the owner tells a connection to do beside calls: agree on methods, ask, leave.

use crate::caller::{self, CALLERS_MAX};
use crate::connection::Connection;
use crate::control::{PATH_BYTES_MAX, PING_REDIAL, REASON_BYTES_MAX};
use crate::frame_type::FrameType;
use crate::methods::Fingerprints;
use crate::{CallerNumber, Features, MethodIndex, Refused, StreamId};
use trunkline_call::{Code, Instant, VouchedCaller};

impl Connection {
    /// Names a method, before its first call. Fingerprint zero: this side knows only protobuf.
    ///
    /// # Errors
    /// [`Refused`] if the peer takes no more methods, or the path is longer than 1 KiB or empty.
    pub fn announce_schema(
        &mut self,
        path: &str,
        request_fingerprint: u64,
        response_fingerprint: u64,
    ) -> Result<MethodIndex, Refused> {
        if path.is_empty() || path.len() > PATH_BYTES_MAX as usize {
            return Err(Refused::PathLength { limit: PATH_BYTES_MAX });
        }
        let limit = self.established()?.limits.methods_max;
        if self.methods_made.len() as u64 >= u64::from(limit) {
            return Err(Refused::Methods { limit });
        }
        let fingerprints = Fingerprints { request: request_fingerprint, response: response_fingerprint };
        let method = self.methods_made.announce(fingerprints);
        let mut body = Vec::with_capacity(16 + path.len());
        body.extend(request_fingerprint.to_le_bytes());
        body.extend(response_fingerprint.to_le_bytes());
        body.extend(path.as_bytes());
        self.control(FrameType::Schema, method.0, 0, &body);
        Ok(method)
    }

    /// Methods this side has announced, and how many the peer takes: none before its HELLO. No number is given back.
    pub fn methods_announced(&self) -> (usize, usize) {
        let max = self.peer.as_ref().map_or(0, |peer| peer.limits.methods_max);
        (self.methods_made.len(), max as usize)
    }

    /// Says what this side has for a method the peer announced; again whenever that changes.
    ///
    /// # Errors
    /// [`Refused::UnknownMethod`] if the peer did not announce it.
    pub fn answer_schema(
        &mut self,
        method: MethodIndex,
        found: bool,
        request_fingerprint: u64,
        response_fingerprint: u64,
    ) -> Result<(), Refused> {
        let fingerprints = Fingerprints { request: request_fingerprint, response: response_fingerprint };
        self.methods_taken.answer(method, found, fingerprints).ok_or(Refused::UnknownMethod)?;
        let mut body = [0; 20];
        body[..8].copy_from_slice(&request_fingerprint.to_le_bytes());
        body[8..16].copy_from_slice(&response_fingerprint.to_le_bytes());
        body[16] = found.into();
        self.control(FrameType::SchemaAck, method.0, 0, &body);
        Ok(())
    }

    /// Whether calls say who makes them: both sides offered it.
    pub fn names_callers(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.features.contains(Features::CALLERS))
    }

    /// Names somebody who makes calls here, for the calls that follow. Numbers count from 1 to
    /// [`Connection::CALLERS_MAX`]; `instead_of` gives one that is in use to somebody else: calls opened before keep
    /// who they had, because all of it goes one way in order.
    ///
    /// # Errors
    /// [`Refused`] if callers are not named on this connection, all numbers are in use, or `instead_of` is not.
    pub fn announce_caller(
        &mut self,
        caller: &VouchedCaller,
        instead_of: Option<CallerNumber>,
    ) -> Result<CallerNumber, Refused> {
        self.established()?;
        let number = instead_of.map_or(self.callers_made + 1, |number| number.0);
        let is_in_use = (1..=self.callers_made).contains(&number);
        if !self.names_callers() || number > CALLERS_MAX || instead_of.is_some() && !is_in_use {
            return Err(Refused::OutOfPlace);
        }
        self.callers_made = self.callers_made.max(number);
        let body = caller::encode(&caller.clone().within_bounds());
        self.control(FrameType::Caller, number, 0, &body);
        Ok(CallerNumber(number))
    }

    /// Callers one side may have named at once.
    pub const CALLERS_MAX: u16 = CALLERS_MAX;

    /// Whether both sides agreed on the fingerprints of a method announced here: linear (request, response).
    pub fn agreed(&self, method: MethodIndex) -> (bool, bool) {
        self.methods_made.find(method.0).map_or((false, false), |m| (m.linear_request, m.linear_response))
    }

    /// Whether a message on this stream may go out linear: the ends agreed on the fingerprint of its type.
    pub fn agreed_on(&self, stream: StreamId) -> bool {
        let Some(found) = self.streams.find(stream) else { return false };
        if found.is_made() {
            self.methods_made.find(found.method).is_some_and(|method| method.linear_request)
        } else {
            self.methods_taken.find(found.method).is_some_and(|method| method.linear_response)
        }
    }

    /// Asks for a [`crate::Event::Pong`] with the same payload. Before the peer's HELLO this does nothing.
    pub fn ping(&mut self, payload: u64) {
        if self.peer.is_none() {
            return;
        }
        self.control(FrameType::Ping, 0, 0, &payload.to_le_bytes());
    }

    /// Asks the peer to open its calls on another connection from now on; those of this one go on, and more are taken.
    /// A peer of an older version answers as to any PING and does nothing. Before its HELLO this does nothing.
    pub fn ask_to_redial(&mut self) {
        if self.peer.is_some() {
            self.control(FrameType::Ping, PING_REDIAL, 0, &[0; 8]);
        }
    }

    /// Takes no new calls; open ones may end within the drain time. Says so once, or, before the peer's HELLO, not at
    /// all: there is nothing to drain then, close.
    pub fn go_away(&mut self, now: Instant, code: Code) {
        if self.ending.said.is_some() || self.ending.closed {
            return;
        }
        let newest = self.newest_taken;
        self.ending.said = Some((newest, now.plus_ns(self.config.drain_timeout_ns)));
        if self.peer.is_some() {
            self.control(FrameType::GoAway, code.number(), 0, &newest.to_le_bytes());
        }
    }

    /// Says why the connection ends. Nothing may follow: flush what is queued, then close the socket.
    pub fn close(&mut self, code: Code, why: &str) {
        if self.ending.closed {
            return;
        }
        self.ending.closed = true;
        let why = &why[..why.floor_char_boundary(REASON_BYTES_MAX as usize)];
        self.control(FrameType::Close, code.number(), 0, why.as_bytes());
        self.failed = Some(crate::ProtocolError::Closed);
    }
}
