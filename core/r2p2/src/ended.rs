//! Requests that have ended, packed: what one server hands to another is mostly these, and there may be a million.
//!
//! ```text
//! flags 1 │ client 4+2 │ id 2 │ end 8 │ identity 4+2, if extended │ router 4+2, queue 8, service 8, if it came by one
//!         │ trailer, if there is one │ length 4 and reply, if it is kept
//! ```
//! Numbers are big-endian. These bytes never leave a host.

use crate::cut::Cut;
use crate::extension::Identity;
use crate::served::{RequestKey, Served, Stage, Timing};
use bytes::Bytes;
use core::net::SocketAddrV4;
use trunkline_call::Instant;

const EXTENDED: u8 = 0x01;
const OFFERS: u8 = 0x02;
const ROUTED: u8 = 0x04;
const KEPT: u8 = 0x08;
const ABANDONED: u8 = 0x10;
const TRAILER: u8 = 0x20;
const FLAGS: u8 = EXTENDED | OFFERS | ROUTED | KEPT | ABANDONED | TRAILER;

/// Writes one, with its reply if that is `kept`.
pub(crate) fn pack(out: &mut Vec<u8>, at: Instant, key: &RequestKey, served: &Served, kept: bool) {
    let bits = [
        (key.is_extended(), EXTENDED),
        (served.offers, OFFERS),
        (served.router.is_some(), ROUTED),
        (kept, KEPT),
        (matches!(served.stage, Stage::Abandoned), ABANDONED),
        (kept && served.trailer.is_some(), TRAILER),
    ];
    out.push(bits.iter().filter(|(holds, _)| *holds).map(|(_, bit)| bit).sum());
    put_address(out, key.client);
    out.extend(key.id.to_be_bytes());
    out.extend(at.0.to_be_bytes());
    if let Some(Identity { epoch, round }) = key.identity {
        out.extend(epoch.to_be_bytes());
        out.extend(round.to_be_bytes());
    }
    if let Some(router) = served.router {
        put_address(out, router);
        out.extend(served.timing.queue_ns.to_be_bytes());
        out.extend(served.timing.service_ns.to_be_bytes());
    }
    if kept {
        out.extend(served.trailer.as_ref().map_or(&[][..], |trailer| trailer));
        out.extend((served.reply.len() as u32).to_be_bytes());
        out.extend_from_slice(&served.reply);
    }
}

/// Reads the next one, and when it ended. `None` if there is none such.
pub(crate) fn unpack(bytes: &mut &[u8]) -> Option<(Instant, RequestKey, Served)> {
    let [flags] = take(bytes)?;
    let has = |flag| flags & flag != 0;
    let client = take_address(bytes)?;
    let id = u16::from_be_bytes(take(bytes)?);
    let at = Instant(u64::from_be_bytes(take(bytes)?));
    let mut identity = None;
    if has(EXTENDED) {
        let (epoch, round) = (u32::from_be_bytes(take(bytes)?), u16::from_be_bytes(take(bytes)?));
        identity = Some(Identity { epoch, round });
    }
    let (mut router, mut timing) = (None, Timing::default());
    if has(ROUTED) {
        router = Some(take_address(bytes)?);
        timing.queue_ns = u64::from_be_bytes(take(bytes)?);
        timing.service_ns = u64::from_be_bytes(take(bytes)?);
    }
    let stage = match (has(KEPT), has(ABANDONED)) {
        (true, false) => Stage::Kept,
        (false, true) => Stage::Abandoned,
        (false, false) => Stage::Served,
        (true, true) => return None,
    };
    let mut served = Served { timing, ..Served::new(stage, has(OFFERS), router) };
    if has(TRAILER) {
        served.trailer = Some(take(bytes)?);
    }
    if has(KEPT) {
        let len = u32::from_be_bytes(take(bytes)?) as usize;
        let (reply, rest) = bytes.split_at_checked(len)?;
        (served.reply, *bytes) = (Bytes::copy_from_slice(reply), rest);
    }
    // Only replies of one packet, to those who can ask for them, are kept.
    let single = Cut::reply(true).count(served.reply.len()) == Some(1);
    let sound =
        flags & !FLAGS == 0 && (!has(KEPT) || has(EXTENDED) && single) && (has(KEPT) || !has(TRAILER));
    sound.then_some((at, RequestKey { client, id, identity }, served))
}

fn put_address(out: &mut Vec<u8>, address: SocketAddrV4) {
    out.extend(address.ip().octets());
    out.extend(address.port().to_be_bytes());
}

fn take_address(bytes: &mut &[u8]) -> Option<SocketAddrV4> {
    let ip: [u8; 4] = take(bytes)?;
    Some(SocketAddrV4::new(ip.into(), u16::from_be_bytes(take(bytes)?)))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    //! Shows that what is packed is unpacked, that all of it is needed, and that noise is refused or means something.
    use super::*;
    use proptest::prelude::*;

    fn packed(entry: &(Instant, RequestKey, Served)) -> Vec<u8> {
        let (at, key, served) = entry;
        let mut out = Vec::new();
        pack(&mut out, *at, key, served, matches!(served.stage, Stage::Kept));
        out
    }

    #[test]
    fn every_kind_of_end_is_what_it_was() {
        let client = SocketAddrV4::new([10, 0, 0, 7].into(), 33_000);
        let identity = Some(Identity { epoch: 0x0102_0304, round: 5 });
        for (stage, identity, router, bytes) in [
            (Stage::Kept, identity, Some(client), 700),
            (Stage::Kept, identity, None, 0),
            (Stage::Served, identity, Some(client), 0),
            (Stage::Served, None, None, 0),
            (Stage::Abandoned, None, None, 0),
        ] {
            let mut served = Served::new(stage, true, router);
            served.reply = vec![7; bytes].into();
            served.trailer = (bytes > 0).then_some([3; trunkline_call::SERVER_TRAILER_BYTES]);
            let entry = (Instant(9), RequestKey { client, id: 3, identity }, served);
            let bytes = packed(&entry);
            let mut rest = bytes.as_slice();
            let found = unpack(&mut rest).unwrap();
            assert!(rest.is_empty());
            assert_eq!(format!("{found:?}"), format!("{entry:?}"));
            for cut in 0..bytes.len() {
                assert!(unpack(&mut &bytes[..cut]).is_none(), "{cut} of {} bytes", bytes.len());
            }
        }
    }

    proptest! {
        #[test]
        fn noise_is_refused_or_means_something(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = bytes.as_slice();
            if let Some(entry) = unpack(&mut rest) {
                prop_assert_eq!(packed(&entry), &bytes[..bytes.len() - rest.len()]);
            }
        }
    }
}
