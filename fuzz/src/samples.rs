//! Files of sampled calls, and the messages in them.

use trunkline_call::Code;
use trunkline_message::{PlainFields, Redaction, first_difference};
use trunkline_schema::{MessageIndex, Schema};
use trunkline_telemetry::{CallSample, SampleEntry, SampleFileReader};

/// What is read is written and read again as it was.
pub fn file(bytes: &[u8]) {
    for entry in SampleFileReader::new(bytes) {
        let written = entry.encode().expect("what was read has room");
        let mut again = SampleFileReader::new(&written);
        assert_eq!(again.next(), Some(entry));
        assert!(again.next().is_none() && again.faults.is_empty());
    }
}

pub fn file_seeds() -> Vec<Vec<u8>> {
    let call = SampleEntry::Call(CallSample {
        host: "alpha".into(),
        path: "/a.B/C".into(),
        served: true,
        began_unix_ms: 1,
        duration_ns: 2,
        timeout_ns: 3,
        code: Code::Ok,
        schema: 7,
        redacted: vec!["password".into()],
        emptied: true,
        request: vec![8, 1],
        response: Some(vec![8, 2]),
    });
    let seeds = [SampleEntry::Schema(7, vec![1, 2, 3]), call].map(|entry| entry.encode().unwrap_or_default());
    let joined = seeds.concat();
    seeds.into_iter().chain([joined]).collect()
}

/// A message is redacted the same twice, has nothing but its named fields emptied, and equals itself.
pub fn messages_of(schema: &Schema, root: MessageIndex, bytes: &[u8]) {
    let is_sound = PlainFields::of(bytes).all(|field| field.is_ok());
    let redaction = Redaction::new(["name".to_owned(), "value".to_owned()]);
    if let Ok(once) = redaction.apply(schema, root, bytes) {
        assert!(is_sound && once.bytes.len() <= bytes.len());
        let twice = redaction.apply(schema, root, &once.bytes).expect("what was redacted is sound");
        assert_eq!((twice.bytes, twice.unknown), (once.bytes, 0));
    }
    let (half, _) = bytes.split_at(bytes.len() / 2);
    let nothing = Redaction::default();
    for types in [None, Some((schema, root))] {
        let differs = first_difference(types, &nothing, bytes, half);
        assert_eq!(first_difference(types, &nothing, half, bytes).is_ok(), differs.is_ok());
        assert_eq!(first_difference(types, &redaction, bytes, bytes), Ok(None));
    }
}
