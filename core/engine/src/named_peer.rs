//! Which host reports say a call went to that has gone on in another engine, which has numbers of its own.

use trunkline_telemetry::{PeerIndex, Telemetry};

/// A host that reports name, as other engines are told of it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct NamedPeer {
    name: Box<str>,
    /// Its clock is this host's.
    has_same_clock: bool,
}

impl NamedPeer {
    /// The host behind a number; `None` for this host, and for those that share a number.
    pub fn of(telemetry: &Telemetry, number: PeerIndex) -> Option<Self> {
        let is_one = number > PeerIndex::LOCAL;
        is_one.then(|| Self {
            name: telemetry.peer_name(number).into(),
            has_same_clock: telemetry.has_same_clock(number),
        })
    }

    /// Its number in this engine.
    pub fn number(&self, telemetry: &mut Telemetry) -> PeerIndex {
        telemetry.peer(&self.name, self.has_same_clock)
    }
}
