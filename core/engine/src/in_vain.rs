//! Which host reports say a call was for that ends before any server has said a word.

use crate::CallKey;
use crate::call::{Call, Calls, ServerEnd};
use crate::owners::Owners;
use crate::r2p2::Named;
use trunkline_telemetry::PeerIndex;

/// What calls are counted under that no endpoint was found for.
const NOBODY: &str = "(nobody)";

/// A call ends here, by no word of a server: if it was to go to an endpoint and has not come to a connection, it is
/// counted as one for the endpoint it had last.
pub(crate) fn name_peer_in_vain(owners: &mut Owners, call: &mut Call) {
    if call.peer_index != PeerIndex::LOCAL {
        return;
    }
    let Owners { remotes, r2p2, telemetry, .. } = owners;
    let endpoint = match call.server {
        ServerEnd::R2p2 { remote, .. } => Some(remote),
        ServerEnd::Cluster { .. } | ServerEnd::Attempts => {
            let tried = call.attempts.as_ref().map_or(&call.tried, |attempts| &attempts.tried);
            call.placed.map(|placed| placed.endpoint).or_else(|| tried.last().copied())
        }
        _ => return,
    };
    let Some(remote) = endpoint.and_then(|endpoint| remotes.find(endpoint)) else {
        call.peer_index = telemetry.peer(NOBODY, true);
        return;
    };
    call.peer_index = match &remote.r2p2 {
        Some(r2p2_remote) => r2p2.number(Named::Server(r2p2_remote.target), telemetry),
        None => telemetry.peer(&remote.endpoint, false),
    };
}

/// The same of a call that somebody gives up, and of the first of its attempts: that says how far the call is.
pub(crate) fn name_first_in_vain(owners: &mut Owners, calls: &mut Calls, key: CallKey) {
    let Some(call) = calls.find_mut(key) else { return };
    name_peer_in_vain(owners, call);
    let first = call.attempts.as_ref().and_then(|attempts| attempts.live.first().copied());
    if let Some(first) = first.and_then(|first| calls.find_mut(first)) {
        name_peer_in_vain(owners, first);
    }
}
