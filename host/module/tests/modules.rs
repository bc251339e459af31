//! Shows modules in Rust and in C loaded, asked, upgraded with their state and unloaded again; and that a file that is
//! overwritten pulls nothing from under the daemon.

mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};
use support::*;
use trunkline_call::{Code, Instant};
use trunkline_module::Loader;
use trunkline_policy::{FieldValue, SettingValue};
use trunkline_test_modules as built;

const SECOND: u64 = 1_000_000_000;

/// What is mapped belongs to the whole process, so tests that load modules take turns.
static LOADING: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    LOADING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_half_spent_bucket_is_half_spent_after_the_upgrade() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let loader = Loader::default();
    let settings =
        [("burst".to_owned(), SettingValue::Int(10)), ("calls_per_second".to_owned(), SettingValue::Int(1))];
    let mut old = load(&loader, &built::rust(folder.path(), built::TOKEN_BUCKET_1), &settings).unwrap();
    assert_eq!(old.about().label(), "token-bucket 1");
    let start = Instant(1000 * SECOND);
    for _ in 0..5 {
        assert_eq!(ask(&mut old, start, &[]), Ok(None));
    }
    let state = old.export().unwrap();
    assert_eq!((state.format, state.bytes.len()), (1, 16));

    let mut new = load(&loader, &built::rust(folder.path(), built::TOKEN_BUCKET_2), &settings).unwrap();
    new.import(&state).unwrap();
    let left = (0..10).take_while(|_| ask(&mut new, start, &[]) == Ok(None)).count();
    assert_eq!(left, 5, "half of it was spent before the upgrade");
    let refused = ask(&mut new, start, &[]).unwrap().unwrap();
    assert_eq!(refused, (Code::ResourceExhausted, "rate limit reached".to_owned()));

    // The second version to itself again, two seconds later.
    let mut newer = load(&loader, &built::rust(folder.path(), built::TOKEN_BUCKET_2), &settings).unwrap();
    newer.import(&new.export().unwrap()).unwrap();
    let later = Instant(1002 * SECOND);
    assert_eq!((0..10).take_while(|_| ask(&mut newer, later, &[]) == Ok(None)).count(), 2);
    // And the first cannot read what the second writes.
    let error = old.import(&newer.export().unwrap()).unwrap_err();
    assert_eq!(error.problem, "it reads state of format 1, and this is 2");
}

#[test]
fn a_module_in_c_sees_the_field_it_asked_for() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let loader = Loader::default();
    let text = |text: &str| SettingValue::Text(text.into());
    let settings = [
        ("allowed.0".to_owned(), text("blue")),
        ("allowed.1".to_owned(), text("green")),
        ("field".to_owned(), text("request.tenant")),
    ];
    let path = built::field_check(folder.path());
    let mut module = load(&loader, &path, &settings).unwrap();
    assert_eq!(module.about().fields[0].expression, "request.tenant");
    let at = Instant(1);
    assert_eq!(ask(&mut module, at, &[FieldValue::Text(b"green")]), Ok(None));
    for (value, number) in [(FieldValue::Text(b"red"), 1), (FieldValue::None, 2)] {
        let words = format!("not on the list (refusal {number})");
        assert_eq!(ask(&mut module, at, &[value]), Ok(Some((Code::PermissionDenied, words))));
    }
    let mut next = load(&loader, &path, &settings).unwrap();
    next.import(&module.export().unwrap()).unwrap();
    let words = "not on the list (refusal 3)".to_owned();
    assert_eq!(ask(&mut next, at, &[FieldValue::None]), Ok(Some((Code::PermissionDenied, words))));

    let refused = load(&loader, &path, &[("feild".to_owned(), text("x"))]).unwrap_err();
    assert_eq!(
        (refused.key, refused.problem.as_str()),
        ("config", "field-check 1 refuses its configuration: its keys: field, allowed",)
    );
}

#[test]
fn a_file_that_is_overwritten_is_another_library_and_disturbs_nobody() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let loader = Loader::default();
    let path = built::hostile(folder.path(), "m", &["-DNAME=\"first\""]);
    let mut first = load(&loader, &path, &[]).unwrap();
    let again = load(&loader, &path, &[]).unwrap();
    assert_eq!(loader.loaded(), 1, "equal contents are loaded once");
    // In place: the same inode gets other bytes, and then none.
    let other = built::hostile(folder.path(), "other", &["-DNAME=\"second\"", "-DVERDICT=1"]);
    std::fs::write(&path, std::fs::read(other).unwrap()).unwrap();
    let mut second = load(&loader, &path, &[]).unwrap();
    std::fs::write(&path, "").unwrap();
    assert_eq!(loader.loaded(), 2);
    assert_eq!((first.about().label(), second.about().label()), ("first 1".into(), "second 1".into()));
    assert_eq!(ask(&mut first, Instant(1), &[]), Ok(None));
    assert_eq!(ask(&mut second, Instant(1), &[]), Ok(Some((Code::PermissionDenied, String::new()))));
    drop((first, again));
    assert_eq!(loader.loaded(), 1, "the first is unloaded");
    drop(second);
    assert_eq!(loader.loaded(), 0);
    let mapped = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!mapped.contains("memfd:trunkline-module"), "nothing of them is mapped any more");
}

#[test]
fn the_header_says_what_the_types_say() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../core/module-abi/include");
    std::fs::write(&source, layout_source()).unwrap();
    let mut cc = std::process::Command::new("cc");
    let done = cc.args(["-std=c11", "-Werror", "-fsyntax-only", "-I", header]).arg(&source).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn the_page_says_where_members_lie() {
    use std::mem::offset_of;
    use trunkline_module_abi as abi;
    let page = include_str!("../../../docs/modules.md");
    let holds = |of: &str, offset: usize, member: &str| {
        let table = page.split_once(of).unwrap_or_else(|| panic!("{of} is not on the page")).1;
        let rows = table.lines().skip(4).take_while(|line| line.starts_with('|'));
        let mut found = rows.filter(|row| row.starts_with(&format!("| {offset} |")));
        let row = found.next().unwrap_or_else(|| panic!("{of} has nothing at {offset}"));
        assert!(row.contains(&format!("`{member}`")), "{of}: {row}");
    };
    let table = "`trunkline_policy_module` (104 bytes)";
    holds(table, offset_of!(abi::Table, name), "name");
    holds(table, offset_of!(abi::Table, version), "version");
    holds(table, offset_of!(abi::Table, state_format), "state_format");
    holds(table, offset_of!(abi::Table, create), "create");
    holds(table, offset_of!(abi::Table, decide), "decide");
    holds(table, offset_of!(abi::Table, import_state), "import_state");
    holds("`trunkline_config` (32)", offset_of!(abi::Config, pairs), "pairs");
    let call = "`trunkline_call` (128)";
    holds(call, offset_of!(abi::Call, now_ns), "now_ns");
    holds(call, offset_of!(abi::Call, request_bytes), "request_bytes");
    holds(call, offset_of!(abi::Call, path), "path");
    holds(call, offset_of!(abi::Call, peer_address), "peer_address");
    holds(call, offset_of!(abi::Call, values), "values");
    let answer = "`trunkline_answer` (56), lent with verdict 0";
    holds(answer, offset_of!(abi::Answer, token), "token");
    holds(answer, offset_of!(abi::Answer, message), "message");
    holds(answer, offset_of!(abi::Answer, add_metadata), "add_metadata");
}

/// A C program that compiles only if every struct has the size, and every member the place, it has in Rust.
fn layout_source() -> String {
    use std::mem::{offset_of, size_of};
    use trunkline_module_abi as abi;
    let mut out = "#include \"trunkline_policy.h\"\n#include <stddef.h>\n".to_owned();
    macro_rules! same {
        ($rust:ident, $c:literal: $($member:ident $name:literal),*) => {
            out += &format!("_Static_assert(sizeof({}) == {}, \"size\");\n", $c, size_of::<abi::$rust>());
            $(out += &format!("_Static_assert(offsetof({}, {}) == {}, \"{}\");\n", $c, $name,
                offset_of!(abi::$rust, $member), $name);)*
        };
    }
    same!(Slice, "trunkline_slice": data "data", bytes "bytes");
    same!(Words, "trunkline_words": data "data", capacity "capacity", bytes "bytes");
    same!(Value, "trunkline_value": kind "kind", bits "number", text "text");
    same!(Pair, "trunkline_pair": key "key", value "value");
    same!(Config, "trunkline_config": pairs_count "pairs_count", pairs "pairs", policy "policy");
    same!(Field, "trunkline_field": expression "expression", kind "kind", flags "flags");
    same!(Created, "trunkline_created": wants "wants", instance "instance", fields "fields",
        fields_count "fields_count");
    same!(MetadataPair, "trunkline_metadata_pair": key "key", value "value");
    same!(Call, "trunkline_call": side "side", flags "flags", metadata_count "metadata_count",
        values_count "values_count", now_ns "now_ns", deadline_ns "deadline_ns", request_bytes "request_bytes",
        path "path", application "application", peer_identity "peer_identity", peer_address "peer_address",
        metadata "metadata", values "values");
    same!(Answer, "trunkline_answer": verdict "verdict", code "code", token "token", message "message",
        context "context", add_metadata "add_metadata");
    same!(End, "trunkline_end": code "code", now_ns "now_ns", elapsed_ns "elapsed_ns", token "token");
    same!(Sink, "trunkline_sink": context "context", write "write");
    same!(State, "trunkline_state": format "format", bytes "bytes");
    same!(Table, "trunkline_policy_module": head "head", name "name", version "version",
        state_format "state_format", create "create", destroy "destroy", decide "decide", finish "finish",
        export_state "export_state", import_state "import_state");
    for (name, value) in [
        ("TRUNKLINE_POLICY_MAGIC", abi::MAGIC),
        ("TRUNKLINE_POLICY_ABI_VERSION", abi::ABI_VERSION.into()),
        ("TRUNKLINE_NAME_BYTES_MAX", abi::NAME_BYTES_MAX as u64),
        ("TRUNKLINE_CONFIG_PAIRS_MAX", abi::CONFIG_PAIRS_MAX as u64),
        ("TRUNKLINE_CONFIG_BYTES_MAX", abi::CONFIG_BYTES_MAX as u64),
        ("TRUNKLINE_FIELDS_MAX", abi::FIELDS_MAX as u64),
        ("TRUNKLINE_WORDS_BYTES_MAX", abi::WORDS_BYTES_MAX as u64),
        ("TRUNKLINE_METADATA_ADDED_MAX", abi::METADATA_ADDED_MAX as u64),
        ("TRUNKLINE_METADATA_ADDED_BYTES_MAX", abi::METADATA_ADDED_BYTES_MAX as u64),
        ("TRUNKLINE_STATE_BYTES_MAX", abi::STATE_BYTES_MAX as u64),
        ("TRUNKLINE_NO_DEADLINE", abi::NO_DEADLINE),
        ("TRUNKLINE_KIND_BYTES", abi::KIND_BYTES.into()),
        ("TRUNKLINE_DENY", abi::VERDICT_DENY.into()),
    ] {
        out += &format!("_Static_assert({name} == {value}ull, \"{name}\");\n");
    }
    out
}
