//! Shows that who is told to go finishes what it began, and takes nothing new.

use crate::support::{Host, client, echo, until};
use trunkline::{Code, Execution, Wait};
use trunkline_system_tests::proto::probe::Text;
use trunkline_system_tests::proto::probe::probe_client::ProbeClient;

/// A conversation in the middle of which somebody is told to go.
fn conversation(client: &ProbeClient) -> impl FnMut(Option<&str>) -> Option<String> {
    let (tx, mut rx) = client.chat().split();
    let mut tx = Some(tx);
    move |text| {
        match text {
            Some(text) => tx.as_mut().unwrap().send(Text { text: text.to_owned() }).wait().unwrap(),
            None => tx = None,
        }
        rx.recv().wait().unwrap().map(|text| text.into_inner().text)
    }
}

fn talk(chat: &mut impl FnMut(Option<&str>) -> Option<String>, rounds: usize) {
    for round in 0..rounds {
        let sent = format!("round {round}");
        assert_eq!(chat(Some(&sent)), Some(sent));
    }
}

#[test]
fn a_server_finishes_its_calls() {
    for far in [None, Some(Host::over_tcp())] {
        let mut near = Host::alone();
        let mut server = far.as_ref().unwrap_or(&near).server("server");
        let client = client(&near, far.as_ref().map_or("", |far| far.endpoint()));
        crate::support::until_served(&client);
        let mut chat = conversation(&client);
        talk(&mut chat, 3);
        server.tell("stop");
        let status = until("new calls refused", || echo(&client, "new").err());
        assert_eq!(
            (status.code(), status.execution()),
            (Code::Unavailable, Execution::NotExecuted),
            "{status}"
        );
        talk(&mut chat, 20);
        assert_eq!(chat(None), None, "the conversation ends well");
        assert_eq!(server.hear(), "stopped");
        drop(chat);
        near.until_idle();
    }
}

#[test]
fn another_server_takes_over_without_a_failed_call() {
    let host = Host::alone();
    let client = client(&host, "");
    let mut old = host.server("server");
    for round in 0..4 {
        let mut chat = conversation(&client);
        talk(&mut chat, 1);
        let new = host.server("server");
        old.tell("stop");
        for call in 0..200 {
            assert_eq!(echo(&client, "during").as_deref(), Ok("during"), "round {round}, call {call}");
        }
        assert_eq!(chat(None), None);
        assert_eq!(old.hear(), "stopped");
        old = new;
    }
}

#[test]
fn a_draining_daemon_finishes_its_calls() {
    let mut host = Host::alone();
    let _server = host.server("server");
    let client = client(&host, "");
    let mut chat = conversation(&client);
    talk(&mut chat, 3);
    assert_eq!(host.daemon().ask("drain"), "draining");
    let status = until("new calls refused", || echo(&client, "new").err());
    assert_eq!((status.code(), status.execution()), (Code::Unavailable, Execution::NotExecuted), "{status}");
    talk(&mut chat, 20);
    assert_eq!(chat(None), None);
    drop(chat);
    host.until_held("calls", 0);
}
