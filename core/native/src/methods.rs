//! Methods by number, and whether linear bodies were agreed on for them.

use crate::MethodIndex;

/// Zero means *no fingerprint*: an end that knows only protobuf. It never equals anything.
const NO_FINGERPRINT: u64 = 0;

/// The methods announced in one direction, dense from zero.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Methods {
    announced: Vec<Method>,
}

/// A method's types as the caller announced them, and what became of it.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Method {
    fingerprints: Fingerprints,
    /// Agreements are never withdrawn here: a linear body may be under way when the answer changes. The owner sees
    /// every answer and converts or refuses.
    pub linear_request: bool,
    pub linear_response: bool,
}

/// What identifies the types of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Fingerprints {
    pub request: u64,
    pub response: u64,
}

impl Methods {
    /// Adds the next method.
    pub fn announce(&mut self, fingerprints: Fingerprints) -> MethodIndex {
        let index = MethodIndex(self.announced.len() as u16);
        self.announced.push(Method { fingerprints, linear_request: false, linear_response: false });
        index
    }

    /// Takes the server's fingerprints in: where they equal the caller's, linear bodies may pass. `None`: no such
    /// method.
    pub fn answer(&mut self, index: MethodIndex, found: bool, answer: Fingerprints) -> Option<()> {
        let method = self.announced.get_mut(usize::from(index.0))?;
        let agree = |ours, theirs| found && ours == theirs && ours != NO_FINGERPRINT;
        method.linear_request |= agree(method.fingerprints.request, answer.request);
        method.linear_response |= agree(method.fingerprints.response, answer.response);
        Some(())
    }

    pub fn find(&self, index: u16) -> Option<&Method> {
        self.announced.get(usize::from(index))
    }

    pub fn len(&self) -> usize {
        self.announced.len()
    }
}
