//! Shows that daemons are replaced under load and nobody notices: no call fails, none is executed twice, no stream
//! breaks, with TLS or without, and over R2P2; and that a successor that does not take over leaves everything as it
//! was.

use crate::once::Load;
use crate::scene::Scene;
use crate::support::{Host, Relay};

/// Environment variable: replacements of each daemon. Ten are asked for; three are what every run can afford.
const ROUNDS_VARIABLE: &str = "UPGRADE_ROUNDS";
const ROUNDS: usize = 3;

pub fn rounds() -> usize {
    std::env::var(ROUNDS_VARIABLE).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS)
}

#[test]
fn nobody_notices_that_daemons_are_replaced() {
    let mut scene = Scene::between_two();
    (0..2 * rounds()).for_each(|round| scene.replace(round));
    println!("{} replacements of each daemon: {}", rounds(), scene.end_untouched());
}

/// Connections of gRPC cannot move. They are emptied first, although calls never pause.
#[test]
fn calls_over_grpc_do_not_notice() {
    let mut scene = Scene::over_grpc();
    scene.replace_in_vain();
    (0..2 * rounds()).for_each(|round| scene.replace(round));
    println!("{} replacements of each daemon, with gRPC between: {}", rounds(), scene.end_untouched());
}

/// The same where a gateway is replaced, whatever it speaks on its other side.
#[test]
fn calls_through_a_gateway_do_not_notice() {
    for more in ["", "[grpc]\nalways = true\n"] {
        let mut scene = Scene::through_gateway(more);
        scene.replace_in_vain();
        (0..rounds()).for_each(|round| scene.replace(round));
        println!("{} replacements of a gateway ({more:?}): {}", rounds(), scene.end_untouched());
    }
}

#[test]
fn on_one_host() {
    let mut scene = Scene::on_one();
    (0..rounds()).for_each(|round| scene.replace(round));
    scene.end_untouched();
}

/// From one shard to two, to three, and to one again: what a daemon has goes on, whatever the number of the next.
#[test]
fn the_number_of_shards_changes() {
    for mut scene in [Scene::on_one(), Scene::between_two()] {
        for round in 0..20 {
            let shards = [2, 3, 1][round / 2 % 3];
            scene.host(round).set_shards(shards);
            scene.replace(round);
        }
        println!("20 replacements, 1 to 2 to 3 to 1 shards: {}", scene.end_untouched());
    }
}

/// The same from and to daemons that have as many shards as there is work for.
#[test]
fn the_number_of_shards_becomes_elastic_and_fixed_again() {
    let mut scene = Scene::between_two();
    for round in 0..12 {
        let host = scene.host(round);
        match round / 2 % 3 {
            0 => host.set_shards(3),
            1 => host.set_shards_elastic(),
            _ => host.set_shards(2),
        }
        scene.replace(round);
    }
    println!("12 replacements, of 3, elastic and 2 shards: {}", scene.end_untouched());
}

#[test]
fn connections_with_tls_go_on() {
    let mut scene = Scene::secured();
    // The daemon goes on with records of its own.
    scene.replace_in_vain();
    (0..2 * rounds()).for_each(|round| scene.replace(round));
    println!("{} replacements of each daemon, with TLS: {}", rounds(), scene.end_untouched());
}

/// Datagrams are lost and doubled, and everything that was asked of the last daemon is asked of the next one again.
#[test]
fn over_r2p2_what_was_asked_of_one_daemon_is_not_executed_by_the_next() {
    let far = Host::over_r2p2(None, "127.0.0.1:0", &[]);
    let relay = Relay::to(far.endpoint());
    let mut scene = Scene::new(Host::alone(), Some(far), &relay.endpoint(), false);
    let mut repeated = 0;
    for round in 0..2 * rounds() {
        scene.replace(round);
        repeated += relay.repeat();
    }
    assert!(repeated > 100, "{repeated} datagrams were said again");
    scene.go_on();
    let longest = scene.load.longest();
    assert!(longest < Load::TIMEOUT, "a call took {longest:?}");
    println!("{repeated} datagrams said again: {}", scene.end_untouched());
}

/// Whoever can have the memory of some sessions takes over none: nobody loses a session to a limit of the process.
#[test]
fn a_successor_with_too_few_descriptors_changes_nothing() {
    let mut scene = Scene::between_two();
    let mut whys = Vec::new();
    for descriptors in 8.. {
        scene.go_on();
        let answer = scene.near.daemon().ask(&format!("replace-within {descriptors}"));
        assert!(answer.starts_with("goes on: "), "with {descriptors}: {answer}, after {whys:?}");
        if answer.contains("cannot be mapped") {
            break;
        }
        whys.push(answer);
    }
    scene.replace(0);
    scene.end_untouched();
}

#[test]
fn a_successor_that_does_not_take_over_changes_nothing() {
    let mut scene = Scene::between_two();
    let text = std::fs::read_to_string(scene.near.folder().join("daemon.toml")).unwrap();
    // The port is the other host's: this successor finds out before it receives anything.
    let broken = scene.near.folder().join("broken.toml");
    let elsewhere = text.replace("listen = []", &format!("listen = [{:?}]", scene.far().endpoint()));
    assert_ne!(text, elsewhere);
    std::fs::write(&broken, elsewhere).unwrap();
    // And this one, which keeps another chain of policies, when it has received everything.
    let (other, chain) = (scene.near.folder().join("other.toml"), scene.near.folder().join("chain.toml"));
    std::fs::write(
        &chain,
        "[[policy]]\nname = \"own\"\nkind = \"access\"\nside = \"client\"\ndeny = \"false\"\n",
    )
    .unwrap();
    std::fs::write(&other, format!("{text}\n[admin]\npolicies_file = {chain:?}\n")).unwrap();
    let orders = [
        ("replace-by dies".to_owned(), "ended"),
        ("replace-by refuses".to_owned(), "it does not want to"),
        ("replace-by hangs".to_owned(), "the new daemon did not take over"),
        (format!("replace-with {}", broken.display()), "cannot listen on"),
        (format!("replace-with {}", other.display()), "another chain than the one at work"),
    ];
    for (order, why) in orders {
        scene.go_on();
        let answer = scene.near.daemon().ask(&order);
        assert!(answer.starts_with("goes on: ") && answer.contains(why), "{order}: {answer}");
    }
    // And the next one may be better.
    scene.replace(0);
    scene.end_untouched();
}
