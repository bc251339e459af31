//! Shows policy modules in a running daemon: added, listed, upgraded with their state, refused with the reason while
//! the old one stays, ejected, and unloaded.

use crate::support;

use std::path::{Path, PathBuf};
use support::{Ended, Host, trunkline, watched};
use trunkline::{Code, Execution, Status, Wait};
use trunkline_example_search::proto::QueryRequest;
use trunkline_example_search::proto::search_client::SearchClient;
use trunkline_test_modules as built;

/// A policy named `m` on the server's side; `more` has the keys after its path.
fn policy(path: &Path, more: &str) -> String {
    let scope = "side = \"server\"\nservice = \"search.v1.Search\"\nmethod = \"Query\"";
    format!(
        "[[policy]]\nname = \"m\"\nkind = \"module\"\n{scope}\npath = {:?}\n{more}\n",
        path.display().to_string()
    )
}

fn bucket(path: &Path, more: &str) -> String {
    policy(path, &format!("config = {{ calls_per_second = 0.00001, burst = 10{more} }}"))
}

struct Stage {
    host: Host,
    folder: tempfile::TempDir,
    client: SearchClient,
    _server: trunkline::ServerHandle,
}

impl Stage {
    fn new() -> Self {
        watched();
        let host = Host::start("");
        let (server, client) = host.serve_search();
        Self { host, folder: tempfile::tempdir().unwrap(), client, _server: server }
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.folder.path().join("x.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn change(&self, verb: &str, text: &str, more: &[&str]) -> Ended {
        let file = self.file(text);
        self.host.verb(&[&["policy", verb, file.to_str().unwrap()], more].concat(), "")
    }

    /// What a change says that must be made.
    fn changed(&self, verb: &str, text: &str) -> String {
        let ended = self.change(verb, text, &[]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.out
    }

    fn list(&self) -> String {
        self.host.verb(&["policy", "list"], "").out
    }

    fn query(&self, text: &str) -> Result<(), Status> {
        self.client.query(QueryRequest { query: text.into(), ..Default::default() }).wait().map(drop)
    }

    /// Calls that pass before one is refused, at most `max`.
    fn passing(&self, max: usize) -> usize {
        (0..max).take_while(|_| self.query("ring").is_ok()).count()
    }
}

#[test]
fn a_module_is_added_upgraded_with_its_state_and_removed() {
    let stage = Stage::new();
    let old = built::rust(stage.folder.path(), built::TOKEN_BUCKET_1);
    let new = built::rust(stage.folder.path(), built::TOKEN_BUCKET_2);
    let dry = stage.change("add", &bucket(&old, ""), &["--dry-run"]);
    assert!(dry.out.starts_with("added: m\na dry run"), "{dry:?}");
    assert_eq!(stage.passing(12), 12, "nothing has changed");

    assert_eq!(stage.changed("add", &bucket(&old, "")), "added: m\nthe chain has 1 policy\n");
    assert_eq!(stage.passing(5), 5);
    assert!(stage.list().contains("\nm: module token-bucket 1, at work\n"), "{}", stage.list());
    let dry = stage.change("set", &bucket(&new, ""), &["--dry-run"]);
    let told = "would upgrade: m (token-bucket 1 to token-bucket 2, 16 bytes of state)\n";
    assert!(dry.out.contains(told), "{dry:?}");
    let upgraded = stage.changed("set", &bucket(&new, ""));
    assert!(
        upgraded.contains("changed: m\nupgraded: m (token-bucket 1 to token-bucket 2, 16 bytes"),
        "{upgraded}"
    );
    assert!(
        stage.list().contains("\nm: module token-bucket 2, upgraded once, at work\n"),
        "{}",
        stage.list()
    );

    // Half of it was spent before, so half of it is left.
    assert_eq!(stage.passing(10), 5);
    let refused = stage.query("ring").unwrap_err();
    assert_eq!((refused.code(), refused.execution()), (Code::ResourceExhausted, Execution::NotExecuted));
    assert_eq!(refused.message(), "refused by policy \"m\": rate limit reached");

    // Going back is refused, because the old version cannot read the new one's state; the new one stays.
    let back = stage.change("set", &bucket(&old, ""), &[]);
    assert_eq!(back.code, Some(1));
    let expected =
        "x.toml:7:8: policy[0].path: (policy \"m\") token-bucket 1 refuses the state of token-bucket 2 (";
    assert!(back.err.contains(expected), "{}", back.err);
    assert!(back.err.contains("bytes): it reads state of format 1, and this is 2"), "{}", back.err);
    assert!(back.err.contains("the one at work goes on"), "{}", back.err);
    assert_eq!(stage.passing(1), 0);
    assert_eq!(stage.host.verb(&["policy", "remove", "m"], "").code, Some(0));
    assert_eq!(stage.passing(12), 12);
}

#[test]
fn a_file_that_was_rebuilt_in_place_is_loaded_anew() {
    let stage = Stage::new();
    let path = built::rust(stage.folder.path(), built::TOKEN_BUCKET_1);
    let text = bucket(&path, "");
    stage.changed("apply", &text);
    assert_eq!(stage.passing(4), 4);
    assert_eq!(stage.changed("apply", &text), "the chain has 1 policy\n", "the same again is left alone");
    // As a linker does that writes into the file, while the daemon runs it.
    let other = tempfile::tempdir().unwrap();
    let new = std::fs::read(built::rust(other.path(), built::TOKEN_BUCKET_2)).unwrap();
    std::fs::write(&path, &new).unwrap();
    let upgraded = stage.changed("apply", &text);
    assert!(upgraded.starts_with("upgraded: m (token-bucket 1 to token-bucket 2"), "{upgraded}");
    // And as one does that is interrupted.
    std::fs::write(&path, &new[..new.len() / 2]).unwrap();
    let refused = stage.change("apply", &text, &[]);
    assert!(refused.err.contains("ends before its headers say so"), "{}", refused.err);
    std::fs::write(&path, "").unwrap();
    assert_eq!(stage.passing(10), 6);
}

/// A change of other policies does not look at the file of a module that is at work, whatever has become of it.
#[test]
fn a_module_stays_as_it_is_through_changes_of_other_policies() {
    let stage = Stage::new();
    let path = built::rust(stage.folder.path(), built::TOKEN_BUCKET_1);
    stage.changed("apply", &bucket(&path, ""));
    assert_eq!(stage.passing(4), 4);
    let other = |deny: &str| {
        format!("[[policy]]\nname = \"other\"\nkind = \"access\"\nside = \"server\"\ndeny = '{deny}'\n")
    };
    let other_folder = tempfile::tempdir().unwrap();
    let new = std::fs::read(built::rust(other_folder.path(), built::TOKEN_BUCKET_2)).unwrap();
    std::fs::write(&path, &new[..new.len() / 2]).unwrap();
    assert_eq!(stage.changed("add", &other("false")), "added: other\nthe chain has 2 policies\n");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(stage.changed("set", &other("1 == 2")), "changed: other\nthe chain has 2 policies\n");
    std::fs::write(&path, &new).unwrap();
    assert_eq!(stage.host.verb(&["policy", "remove", "other"], "").code, Some(0));
    assert!(stage.list().contains("\nm: module token-bucket 1, at work\n"), "{}", stage.list());
    // What is written anew is loaded anew.
    let upgraded = stage.changed("set", &bucket(&path, ""));
    assert!(upgraded.starts_with("upgraded: m (token-bucket 1 to token-bucket 2"), "{upgraded}");
    assert_eq!(stage.passing(10), 6);
}

#[test]
fn fields_are_checked_against_the_schema_and_seen() {
    let stage = Stage::new();
    let path = built::field_check(stage.folder.path());
    let checks =
        |field: &str| policy(&path, &format!("config = {{ field = {field:?}, allowed = [\"ring\"] }}"));
    for (field, expected) in [
        ("request.qery", "search.v1.QueryRequest has no field \"qery\" (for /search.v1.Search/Query)"),
        ("request.limit", "the expression must be string, and this is uint"),
        ("request.", "field-check 1 wants \"request.\": 1:9: "),
    ] {
        let refused = stage.change("add", &checks(field), &[]);
        assert!(refused.err.contains("x.toml:7:8: policy[0].path: (policy \"m\") "), "{}", refused.err);
        assert!(refused.err.contains(expected), "{}\nlacks {expected}", refused.err);
    }
    stage.changed("add", &checks("request.query"));
    stage.query("ring").unwrap();
    let refused = stage.query("bell").unwrap_err();
    assert_eq!(refused.message(), "refused by policy \"m\": not on the list (refusal 1)");
    let typo = policy(&path, "config = { feild = \"request.query\" }");
    let refused = stage.change("set", &typo, &[]);
    let expected = "x.toml:8:10: policy[0].config: (policy \"m\") field-check 1 refuses its configuration: its keys: \
                    field, allowed";
    assert!(refused.err.contains(expected), "{}", refused.err);
}

#[test]
fn a_faulty_module_is_ejected_and_its_calls_do_as_the_policy_says() {
    let mut stage = Stage::new();
    stage.host.expect("policy module ejected", "the module is told to panic");
    let path = built::rust(stage.folder.path(), built::FAULTY);
    for (on_fault, passes) in [("deny", false), ("pass", true)] {
        let does = format!("on_fault = \"{on_fault}\"\nconfig = {{ does = \"panic-decide\" }}");
        stage.changed("apply", &policy(&path, &does));
        for _ in 0..3 {
            match stage.query("ring") {
                Ok(()) => assert!(passes),
                Err(refused) => {
                    assert!(!passes);
                    let expected = "refused by policy \"m\": its module is faulty and was ejected";
                    assert_eq!((refused.code(), refused.message()), (Code::Internal, expected));
                }
            }
        }
        let list = stage.list();
        assert!(
            list.contains("\nm: module faulty 1, EJECTED: faulty 1 failed in decide: panicked at "),
            "{list}"
        );
        assert!(list.contains("src/lib.rs:") && list.contains("ordered to panic-decide"), "{list}");
        assert_eq!(stage.change("apply", "", &["--empty"]).code, Some(0));
    }
    // A new one that is faulty does not come in.
    stage.changed("apply", &policy(&path, ""));
    for does in ["panic-create", "panic-import", "refuse", "refuse-state"] {
        let refused = stage.change("set", &policy(&path, &format!("config = {{ does = {does:?} }}")), &[]);
        assert_eq!(refused.code, Some(1), "{does}: {refused:?}");
        stage.query("ring").unwrap();
    }
    assert!(stage.list().contains("\nm: module faulty 1, at work\n"));
}

#[test]
fn a_daemon_does_not_start_without_its_modules() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("d.toml");
    std::fs::write(&config, policy(Path::new("/no/such/module.so"), "")).unwrap();
    let mut daemon = trunkline(&["daemon", "--until-stdin-closes", "--config", config.to_str().unwrap()]);
    daemon.arg("--socket").arg(folder.path().join("d.sock"));
    let ended = support::end(&mut daemon, "");
    assert_ne!(ended.code, Some(0));
    let expected = "policy[0].path: (policy \"m\") cannot open /no/such/module.so: No such file or directory";
    assert!(ended.err.contains(expected), "{}", ended.err);
}

/// What a module asks for is an expression of the policies' language: who calls is in it, as the kernel says.
#[test]
fn a_module_sees_who_calls() {
    let stage = Stage::new();
    let module = built::field_check(stage.folder.path());
    let own = format!("uid:{}", rustix::process::geteuid().as_raw());
    let allowing = |field: &str, who: &str| {
        policy(&module, &format!("config = {{ field = {field:?}, allowed = [{who:?}] }}"))
    };
    stage.changed("add", &allowing("caller.identity", &own));
    assert!(stage.query("ring").is_ok());
    stage.changed("set", &allowing("caller.identity", "uid:4294967294"));
    assert_eq!(stage.query("ring").unwrap_err().code(), Code::PermissionDenied);
    let program = std::env::current_exe().unwrap().canonicalize().unwrap();
    stage.changed("set", &allowing("caller.program", program.to_str().unwrap()));
    assert!(stage.query("ring").is_ok());
    stage.changed("set", &allowing("caller.name", "somebody else"));
    assert_eq!(stage.query("ring").unwrap_err().code(), Code::PermissionDenied);
    let number = stage.change("set", &allowing("caller.uid", "1000"), &[]);
    assert!(number.err.contains("caller.uid"), "it wants a text: {number:?}");
}
