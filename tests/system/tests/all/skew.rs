//! Shows that programs of different versions understand each other as far as protobuf promises, through one daemon and
//! through two.

use crate::support::{Host, channel, until};
use trunkline::{Channel, Code, Wait};
use trunkline_system_tests::proto::newer::notes_client::NotesClient as NewerClient;
use trunkline_system_tests::proto::older::notes_client::NotesClient as OlderClient;
use trunkline_system_tests::proto::{newer, older};

/// Hosts with a server of a version, and a channel to it; over two daemons if so wanted.
struct Place {
    _near: Host,
    _far: Option<Host>,
    _server: crate::support::Process,
    channel: Channel,
}

fn places(version: &str) -> Vec<Place> {
    let place = |far: Option<Host>| {
        let near = Host::alone();
        let server = far.as_ref().unwrap_or(&near).server(version);
        let channel = channel(&near, far.as_ref().map_or("", |far| far.endpoint()));
        Place { _near: near, _far: far, _server: server, channel }
    };
    vec![place(None), place(Some(Host::over_tcp()))]
}

fn new_note() -> newer::Note {
    newer::Note {
        title: "tomorrow".into(),
        rank: -7,
        lines: vec![newer::Line { text: "milk".into(), marks: vec![-1, 0, i32::MAX] }],
        counts: [("litres".to_owned(), 2)].into(),
        due: Some(newer::note::Due::At(u64::MAX)),
    }
}

fn old_note() -> older::Note {
    older::Note {
        title: "yesterday".into(),
        rank: -3,
        author: Some("ada".into()),
        lines: vec![older::Line { text: "bread".into() }, older::Line::default()],
    }
}

#[test]
fn an_older_server_understands_what_it_knows_and_passes_on_the_rest() {
    for place in places("older") {
        let client = NewerClient::new(place.channel.clone());
        let understood = until("the server", || client.store(new_note()).wait().ok()).into_inner();
        let line = newer::Line { text: "milk".into(), marks: Vec::new() };
        let expected =
            newer::Note { title: "tomorrow".into(), rank: -7, lines: vec![line], ..newer::Note::default() };
        assert_eq!(understood, expected, "what it does not know is not in its structs");

        let (mut tx, mut rx) = client.pass().split();
        for _ in 0..20 {
            tx.send(new_note()).wait().unwrap();
            let passed = rx.recv().wait().unwrap().unwrap().into_inner();
            assert_eq!(passed, new_note(), "what is passed on as it came has lost nothing");
        }
        drop(tx);
        assert!(rx.recv().wait().unwrap().is_none());
        let status = client.forget(new_note()).wait().unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
    }
}

#[test]
fn a_newer_server_understands_and_keeps_what_it_no_longer_knows() {
    for place in places("newer") {
        let client = OlderClient::new(place.channel.clone());
        let understood = until("the server", || client.store(old_note()).wait().ok()).into_inner();
        assert_eq!(understood, older::Note { author: None, ..old_note() });

        let (mut tx, mut rx) = client.pass().split();
        tx.send(old_note()).wait().unwrap();
        assert_eq!(rx.recv().wait().unwrap().unwrap().into_inner(), old_note());
    }
}

#[test]
fn numbers_are_cut_as_protobuf_says() {
    for place in places("older") {
        let client = NewerClient::new(place.channel.clone());
        let large = newer::Note { rank: (5 << 32) + 9, ..newer::Note::default() };
        let understood = until("the server", || client.store(large.clone()).wait().ok()).into_inner();
        assert_eq!(understood.rank, 9, "an int32 takes the low half of an int64");
    }
}
