//! Shows that a caller is named once and known to every call that follows, that a number may be given to another
//! without mixing calls up, that a peer which does not offer it is not told, and that what cannot be is refused by
//! name.

use crate::pair;
use pair::*;
use proptest::prelude::*;
use trunkline_call::VouchedCaller;
use trunkline_native::*;

fn raw(frame: FrameType, flags: u8, code: u16, stream: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Header { frame, flags, code, stream, length: body.len() as u32 }.encode().to_vec();
    out.extend(body);
    out
}

fn named(name: &str) -> VouchedCaller {
    VouchedCaller { name: name.into(), ..till() }
}

/// Calls as the south was told of them: who makes each, by the names that held when it came.
fn makers(told: &[Told]) -> Vec<Option<Box<str>>> {
    let mut names = vec![Box::default(); 300];
    let mut makers = Vec::new();
    for told in told {
        match told {
            Told::Caller { number, caller } => names[usize::from(*number)] = caller.name.clone(),
            Told::Call { caller, .. } => makers.push(caller.map(|number| names[usize::from(number)].clone())),
            _ => {}
        }
    }
    makers
}

#[test]
fn a_caller_is_named_once_for_all_its_calls() {
    let mut pair = Pair::established(&naming());
    let north = &mut pair.north.connection;
    let till = north.announce_caller(&till(), None).unwrap();
    let other = north.announce_caller(&named("other"), None).unwrap();
    let calls = [Some(till), None, Some(other), Some(till)];
    for (tag, caller) in calls.into_iter().enumerate() {
        north.open_call(NOW, &NewCall { caller, ..unary(tag as u64) }, None).unwrap();
    }
    pair.settle();
    let named = pair.south.told.iter().filter(|told| matches!(told, Told::Caller { .. })).count();
    assert_eq!((till, other, named), (CallerNumber(1), CallerNumber(2), 2));
    let made = [Some("till"), None, Some("other"), Some("till")].map(|name| name.map(Into::into));
    assert_eq!(makers(&pair.south.told), made);
}

#[test]
fn a_number_in_use_is_given_to_another_between_two_calls() {
    let mut pair = Pair::established(&naming());
    let north = &mut pair.north.connection;
    let mut made = Vec::new();
    for n in 0..600_u16 {
        let name = format!("app{n}");
        let instead_of = (n >= Connection::CALLERS_MAX)
            .then(|| CallerNumber(1 + (n - Connection::CALLERS_MAX) % Connection::CALLERS_MAX));
        assert_eq!(
            north.announce_caller(&named("one too many"), None).is_err(),
            instead_of.is_some(),
            "a new number, beside {n}"
        );
        let caller =
            Some(north.announce_caller(&named(&name), instead_of.or(Some(CallerNumber(n + 1)))).unwrap());
        if n % 7 == 0 {
            // Of nobody, and long: its parts come after much else.
            let body = Body::Owned(pattern(40_000, 1));
            north.open_call(NOW, &unary(u64::MAX - u64::from(n)), Some(linear(body))).unwrap();
        }
        let body = Body::Inline(b"short");
        north.open_call(NOW, &NewCall { caller, ..unary(n.into()) }, Some(linear(body))).unwrap();
        made.push(name);
    }
    pair.south.places = false;
    pair.settle_cut(70_000, 900);
    let mut found: Vec<_> = makers(&pair.south.told).into_iter().flatten().collect();
    assert_eq!(found.len(), made.len());
    found.sort_unstable();
    made.sort_unstable();
    assert_eq!(found.iter().map(|name| &**name).collect::<Vec<_>>(), made);
}

#[test]
fn a_peer_that_does_not_offer_it_is_told_nothing() {
    for (north, south) in [(naming(), Config::default()), (Config::default(), naming())] {
        let mut pair = Pair::new(north, south);
        pair.settle();
        let north = &mut pair.north.connection;
        assert!(!north.names_callers());
        assert_eq!(north.announce_caller(&till(), None), Err(Refused::OutOfPlace));
        north.announce_schema("/a.B/C", 1, 2).unwrap();
        north.open_call(NOW, &NewCall { caller: Some(CallerNumber(9)), ..unary(1) }, None).unwrap();
        pair.settle();
        assert!(matches!(pair.south.told.last(), Some(Told::Call { caller: None, .. })));
        let error = pair.south.read(&raw(FrameType::Caller, 0, 1, 0, &[0; 8])).unwrap_err();
        assert!(error.to_string().contains("callers were not offered by both sides"), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let caller = |number, body: &[u8]| raw(FrameType::Caller, 0, number, 0, body);
    let lengths = |all: [u16; 4], rest: &[u8]| [&all.map(u16::to_le_bytes).concat(), rest].concat();
    let call = |number: u32| raw(FrameType::Call, 0, 0, 1, &number.to_le_bytes());
    let cases = [
        (caller(1, &[0; 7]), "CALLER frame on stream 0: length is 7"),
        (caller(1, &[0; 9]), "length is 9, must be that of its fields"),
        (caller(0, &[0; 8]), "caller number is 0, must be one that was named before, or the next one"),
        (caller(2, &[0; 8]), "caller number is 2"),
        (caller(257, &[0; 8]), "caller number is 257, limit 256"),
        (caller(1, &[0; 5655]), "length is 5655, limit 5654"),
        (caller(1, &lengths([256, 0, 0, 0], &[b'x'; 256])), "identity length is 256, limit 255"),
        (caller(1, &lengths([0, 9, 0, 0], b"till")), "name length is 9, must be within the frame"),
        (caller(1, &lengths([0, 0, 1025, 0], &[b'x'; 1025])), "program length is 1025, limit 1024"),
        (caller(1, &lengths([0, 0, 0, 17], &[0; 40])), "services is 17, limit 16"),
        (caller(1, &lengths([0, 0, 0, 1], &[])), "length is 8, must be that of its fields"),
        (caller(1, &lengths([0, 0, 0, 1], &[2, 0, b'x'])), "service length is 2, must be within the frame"),
        (caller(1, &lengths([0, 2, 0, 0], &[0xff, 0xff])), "not UTF-8"),
        (caller(1, &lengths([0, 2, 0, 0], b"a\n")), "control characters"),
        (raw(FrameType::Caller, 0, 1, 3, &[0; 8]), "stream is 3, must be 0"),
        (call(1), "CALL frame on stream 1: caller number is 1, must be 0, or one named by CALLER"),
        (raw(FrameType::Call, 0, 0, 1, &[0; 3]), "must be at least enough for the CALLER block"),
    ];
    for (bytes, expected) in cases {
        let mut south = Pair::established(&naming()).south;
        let error = south.read(&bytes).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}\nexpected: {expected}");
    }
}

#[test]
fn who_was_named_is_known_after_a_hand_over() {
    let mut pair = Pair::established(&naming());
    let till = pair.north.connection.announce_caller(&till(), None).unwrap();
    pair.settle();
    for end in [&mut pair.north, &mut pair.south] {
        let state = serde_json::to_string(&end.connection).unwrap();
        let read: Connection = serde_json::from_str(&state).unwrap();
        end.connection = read.take_up(std::sync::Arc::new(naming())).unwrap();
    }
    pair.north.connection.open_call(NOW, &NewCall { caller: Some(till), ..unary(1) }, None).unwrap();
    pair.settle();
    assert!(matches!(pair.south.told.last(), Some(Told::Call { caller: Some(1), .. })));
    let next = pair.north.connection.announce_caller(&named("next"), None);
    assert_eq!(next, Ok(CallerNumber(2)));
}

fn text(bytes_max: usize) -> impl Strategy<Value = Box<str>> {
    "\\PC{0,90}".prop_map(move |text| text[..text.floor_char_boundary(bytes_max)].into())
}

proptest! {
    #[test]
    fn whoever_is_named_is_who_is_heard_of(
        identity in text(255), name in text(255), program in text(1024),
        services in prop::collection::vec(text(255), 0..30), cut in 1..100usize,
    ) {
        let mut pair = Pair::established(&naming());
        let caller = VouchedCaller { identity, name, program, services };
        pair.north.connection.announce_caller(&caller, None).unwrap();
        pair.settle_cut(1 << 20, cut);
        prop_assert_eq!(&pair.south.told[..], [Told::Caller { number: 1, caller: caller.within_bounds() }]);
    }

    #[test]
    fn any_body_is_read_or_refused(body in prop::collection::vec(prop_oneof![Just(0u8), 1..4u8, any::<u8>()], 8..80)) {
        let mut south = Pair::established(&naming()).south;
        match south.read(&raw(FrameType::Caller, 0, 1, 0, &body)) {
            Ok(()) => prop_assert!(matches!(south.told[..], [Told::Caller { number: 1, .. }]), "not told"),
            Err(error) => prop_assert!(error.to_string().starts_with("CALLER frame"), "{}", error),
        }
    }
}
