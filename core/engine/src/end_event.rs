//! What comes to an end of calls, as what follows from it: an end's owner says it, and the engine carries it out.

use crate::call::Item;
use crate::target::Target;
use crate::{CallKey, RemoteKey};
use trunkline_call::{Code, Fault};

/// What follows from what came. An item is lent to whoever it goes to, from here.
pub(crate) enum EndEvent<'a> {
    /// A call begins.
    Opens { call: CallKey, target: Target, opening: Item<'a> },
    /// The whole answer to a call: headers, if there are any, and its end, or what is wrong with that.
    Answer { call: CallKey, headers: Option<&'a [u8]>, finish: Result<Item<'a>, Fault> },
    /// Nobody waits for a call any more.
    Cancelled { call: CallKey, code: Code },
    /// A call ends so.
    Failed { call: CallKey, fault: Fault },
    /// Calls in line for an endpoint, or for a name, may go on.
    Line(RemoteKey),
}
