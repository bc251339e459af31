//! Shows what is refused, and why, of files that are no modules and of modules that do wrong: in every callback.

mod support;

use std::path::Path;
use support::*;
use trunkline_call::{Code, Instant};
use trunkline_module::Loader;
use trunkline_policy::{FieldValue, Module, ModuleEnd, ModuleError, ModuleState, SettingValue};
use trunkline_test_modules as built;

fn refused(path: &Path) -> String {
    load(&Loader::default(), path, &[]).unwrap_err().problem
}

/// A file others cannot write.
fn file(folder: &Path, bytes: &[u8]) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("file.so");
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    path
}

#[test]
fn files_that_are_no_modules() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(refused(&folder.join("missing.so")).contains("cannot open"));
    assert!(refused(folder).ends_with("is no regular file"));
    assert!(refused(&file(folder, b"")).ends_with("is no ELF file"));
    assert!(refused(&file(folder, &[7; 5000])).ends_with("is no ELF file"));
    let whole = std::fs::read(built::hostile(folder, "whole", &[])).unwrap();
    for keep in [60, 500, whole.len() / 2, whole.len() - 1] {
        assert!(refused(&file(folder, &whole[..keep])).ends_with("ends before its headers say so"), "{keep}");
    }
    assert!(load(&Loader::default(), &file(folder, &whole), &[]).is_ok());
    // Garbage behind sound headers: the dynamic loader says what is wrong with it.
    let mut garbage = whole.clone();
    let dynamic = whole.windows(7).position(|bytes| bytes == b".dynsym").unwrap();
    garbage[dynamic..dynamic + 7].copy_from_slice(b"garbage");
    let _ = load(&Loader::default(), &file(folder, &garbage), &[]);
}

#[test]
fn tables_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    for (macros, expected) in [
        ("-DVERSION=2", "it is built for ABI version 2, and this daemon speaks 1"),
        ("-DVERSION=0", "it is built for ABI version 0, and this daemon speaks 1"),
        ("-DMAGIC=7", "TRUNKLINE_POLICY_MODULE is no module's table"),
        ("-DBYTES=96", "its table has 96 bytes, and needs 104"),
        ("-DNO_ENTRY", "exports no TRUNKLINE_POLICY_MODULE"),
        ("-DDECIDE=0", "its table lacks create, destroy or decide"),
        ("-DNAME=\"\"", "its name has 0 bytes; write 1 to 64"),
        ("-DNAME=\"a\\nb\"", "its name is no printable text"),
        ("-DFIELDS=17", "hostile 1 asks for 17 fields, and a module may see 16"),
        ("-DFIELDS=1", "hostile 1 asks for 1 fields, and a module may see 16"),
    ] {
        let problem = refused(&built::hostile(folder.path(), "table", &[macros]));
        assert!(problem.ends_with(expected), "{macros}: {problem}");
    }
    // A table with more members, from a header to come, is fine.
    let later = built::hostile(folder.path(), "later", &["-DBYTES=4096"]);
    assert!(load(&Loader::default(), &later, &[]).is_ok());
}

/// A library that stays in the process keeps its name there: the next one must not have the same.
#[test]
fn one_that_is_no_module_and_cannot_be_unloaded_is_not_taken_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let stays = built::hostile(folder.path(), "stays", &["-DNO_ENTRY", "-Wl,-z,nodelete"]);
    let good = built::hostile(folder.path(), "good", &[]);
    for _ in 0..4 {
        assert!(refused(&stays).ends_with("exports no TRUNKLINE_POLICY_MODULE"));
        assert!(load(&Loader::default(), &good, &[]).is_ok());
    }
}

#[test]
fn answers_that_are_nonsense() {
    let folder = tempfile::tempdir().unwrap();
    for (macros, expected) in [
        (&["-DVERDICT=7"][..], "its verdict is 7, and verdicts are 0 (pass) and 1 (deny)"),
        (&["-DVERDICT=1", "-DCODE=0"], "it denied a call with status 0, and codes are 1 to 16"),
        (&["-DVERDICT=1", "-DCODE=17"], "it denied a call with status 17, and codes are 1 to 16"),
        (&["-DVERDICT=1", "-DWORDS=4000000000"], "it says 4000000000 bytes of words, and has room for 1024"),
        (&["-DVERDICT=1", "-DWORDS=4"], "its words have control characters"),
        (&["-DRETURNS=-3"], "hostile 1 returned -3 from decide: it does not say why"),
    ] {
        let path = built::hostile(folder.path(), "answer", macros);
        let mut module = load(&Loader::default(), &path, &[]).unwrap();
        let fault = ask(&mut module, Instant(1), &[]).unwrap_err();
        assert!(fault.ends_with(expected), "{macros:?}: {fault}");
        module.eject();
    }
}

fn faulty(does: &str) -> Result<Box<dyn Module>, ModuleError> {
    let folder = tempfile::tempdir().unwrap();
    let path = built::rust(folder.path(), built::FAULTY);
    load(&Loader::default(), &path, &[("does".to_owned(), SettingValue::Text(does.into()))])
}

/// Names the callback, the place in the source, and the words.
fn is_panic_in(callback: &str, problem: &str) {
    for part in [
        format!("faulty 1 failed in {callback}: "),
        "src/lib.rs:".to_owned(),
        format!("ordered to panic-{callback}"),
    ] {
        assert!(problem.contains(&part), "{problem:?} lacks {part:?}");
    }
}

#[test]
fn panics_in_every_callback_are_told_with_their_place() {
    is_panic_in("create", &faulty("panic-create").unwrap_err().problem);
    let mut decides = faulty("panic-decide").unwrap();
    is_panic_in("decide", &ask(&mut decides, Instant(1), &[]).unwrap_err());
    decides.eject();
    let mut finishes = faulty("panic-finish").unwrap();
    assert!(finishes.about().wants_end);
    let end = ModuleEnd { code: Code::Ok, now: Instant(2), elapsed_ns: 1, token: 1 };
    is_panic_in("finish", &finishes.finish(&end).unwrap_err().problem);
    finishes.eject();
    is_panic_in("export", &faulty("panic-export").unwrap().export().unwrap_err().problem);
    let state = ModuleState { format: 1, bytes: vec![0; 8] };
    is_panic_in("import", &faulty("panic-import").unwrap().import(&state).unwrap_err().problem);
    // A panic while it is taken apart has nobody to be told to, and goes no further.
    drop(faulty("panic-destroy").unwrap());
}

/// A module in Rust that puts a caller's text into its words and metadata: the text is denied or refused, call by call.
#[test]
fn a_callers_text_does_not_eject_a_module() {
    let ask = |does: &str, text: &str| {
        let mut module = faulty(does).unwrap();
        let first = ask(&mut module, Instant(1), &[FieldValue::Text(text.as_bytes())]);
        let next = ask(&mut module, Instant(2), &[FieldValue::Text(b"short")]);
        (first.unwrap().map(|(code, words)| (code.number(), words)), next.is_ok())
    };
    let denied = |words: &str| (Some((Code::Aborted.number(), words.to_owned())), true);
    assert_eq!(ask("deny-text", "a\tb\u{85}c"), denied("a b c"));
    assert_eq!(ask("deny-text", &"x".repeat(2000)), denied(&"x".repeat(1024)));
    assert_eq!(ask("deny-text", &"€".repeat(600)), denied(&"€".repeat(341)));
    assert_eq!(ask("add-text", "gold"), (None, true));
    let why = "its policy adds the pair \"text\" to its metadata, which is not legal or too long";
    for text in ["a\tb", "ü", &"x".repeat(5000)] {
        assert_eq!(ask("add-text", text), (Some((Code::Internal.number(), why.to_owned())), true));
    }
}

#[test]
fn what_a_module_says_too_much_is_a_fault_or_cut() {
    assert_eq!(
        faulty("much-state").unwrap().export().unwrap_err().problem,
        "it exports more than 16777216 bytes of state"
    );
    let mut module = faulty("bad-metadata").unwrap();
    let fault = ask(&mut module, Instant(1), &[]).unwrap_err();
    assert!(format!("{fault:?}").contains("Not-Legal"), "a key is the module's own: {fault:?}");
}

#[test]
fn what_a_module_refuses_it_says_why() {
    let error = faulty("refuse").unwrap_err();
    assert_eq!(
        (error.key, error.problem.as_str()),
        ("config", "faulty 1 refuses its configuration: it was told to refuse",)
    );
    let state = ModuleState { format: 1, bytes: vec![0; 8] };
    let error = faulty("refuse-state").unwrap().import(&state).unwrap_err();
    assert_eq!(error.problem, "it was told to refuse this state");
    assert_eq!(
        ask(&mut faulty("deny").unwrap(), Instant(1), &[]),
        Ok(Some((Code::FailedPrecondition, "it was told to deny".to_owned())))
    );
}
