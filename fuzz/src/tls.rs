//! Records of a TLS session that was handed over, and the keys it was handed over with; certificates as an agent tells
//! them.

use std::io::IoSlice;
use trunkline_net::{Keys, Records, Svid, TlsVersions};

/// One end of a session.
fn end(send: u8, receive: u8) -> Records {
    Records::new(keys(send, receive), Vec::new(), Vec::new())
}

fn keys(send: u8, receive: u8) -> Keys {
    let direction = |byte: u8| [&[48][..], &[byte; 48], &[0; 8]].concat();
    let bytes = [&[0x13, 0x02][..], &direction(send), &direction(receive)].concat();
    Keys::of_bytes(&bytes).expect("a suite that is spoken here")
}

/// Records come as they are; a session that is over stays so, and says why in one alert at most. Keys are read, or not.
pub(crate) fn records(bytes: &[u8]) {
    if let Some(keys) = Keys::of_bytes(bytes) {
        assert_eq!(keys.to_bytes().as_slice(), bytes);
    }
    let mut records = end(1, 2);
    let (mut rest, mut failed) = (bytes.to_vec(), false);
    while rest.len() >= 5 {
        let len = 5 + usize::from(u16::from_be_bytes([rest[3], rest[4]]));
        let tail = rest.split_off(len.min(rest.len()));
        let opened = records.open(&mut rest);
        assert!(!(failed && opened.is_ok()), "it was over");
        failed |= opened.is_err();
        rest = tail;
    }
    let mut said = Vec::new();
    while records.wants_write() {
        records.write_tls(&mut said).expect("there is room");
    }
    assert!(said.len() < 100, "{} bytes were said", said.len());
    let _ = records.read(&mut [0; 64]);
}

/// What the other end would say, and keys.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut other = end(2, 1);
    other.write(&[IoSlice::new(b"one record"), IoSlice::new(&[7; 200])], 1 << 20);
    other.send_close_notify();
    let mut said = Vec::new();
    while other.wants_write() {
        other.write_tls(&mut said).expect("there is room");
    }
    vec![said, keys(3, 4).to_bytes().to_vec()]
}

/// Parts of an agent's answer: each is led by a byte that says its length, in sixteenths of what is there.
pub(crate) fn svid(bytes: &[u8]) {
    let mut rest = bytes;
    let mut part = || {
        let Some((share, behind)) = rest.split_first() else { return Vec::new() };
        let (one, behind) = behind.split_at(behind.len() * usize::from(share % 17) / 16);
        rest = behind;
        one.to_vec()
    };
    let (chain, key, roots, federated, list) = (part(), part(), part(), part(), part());
    let id = "spiffe://a/b".to_owned();
    let svid = Svid { id, chain, key, roots, federated: vec![("b".into(), federated)], lists: vec![list] };
    // Nothing that is not signed is a certificate with its key.
    let _ = svid.keys(TlsVersions::default(), false);
}

/// Elements of DER, one in another and one behind the other.
pub(crate) fn svid_seeds() -> Vec<Vec<u8>> {
    let element = |inside: &[u8]| [&[0x30, u8::try_from(inside.len()).expect("short")][..], inside].concat();
    let two = [element(&[2, 1, 7]), element(&element(&[5, 0]))].concat();
    vec![[&[8][..], &two, &[16], &two].concat(), vec![16, 0x30, 0x82, 0xff, 0xff]]
}
