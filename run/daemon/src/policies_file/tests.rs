//! Shows that a chain is read as it was written, that nothing cut, damaged or wrong is taken for one, that what a crash
//! leaves behind is the chain of before, and that a change that fails leaves file and chain as they were.

use super::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::sync::OnceLock;

const CHAIN: &str = r#"
[[policy]]
name = "tenants"
kind = "access"
side = "server"
deny = 'request.tenant == "blue"'
message = "not in ä and 'quotes' \"too\""

[[policy]]
name = "broken"
kind = "fault"
side = "client"
percent = 0.5
abort = "UNAVAILABLE"

[[policy]]
name = "own"
kind = "module"
side = "client"
path = "/lib/own.so"
config = { rate = 5, limits = { burst = 2 } }
"#;

fn chain() -> Vec<Definition> {
    Config::policies_from_toml(CHAIN, "chain").unwrap()
}

/// The chain that would be put to work.
fn taken(bytes: &[u8]) -> Option<Vec<Definition>> {
    Config::policies_from_toml(checked(bytes).ok()?, "chain").ok()
}

fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| document(&chain()).unwrap())
}

/// A daemon's configuration whose chain is the first policy alone, and which keeps changes in the file.
fn config(path: &Path) -> Config {
    let mut config = Config { policy: chain()[..1].to_vec(), ..Config::default() };
    config.admin.policies_file = path.to_owned();
    config
}

fn works(_dry_run: bool) -> Result<(), PolicyError> {
    Ok(())
}

fn refused() -> PolicyError {
    PolicyError { index: 0, name: "x".into(), key: "", problem: "no".into(), advice: String::new() }
}

#[test]
fn what_is_written_is_read_again_and_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    let kept = Kept::of(&config(&path)).unwrap();
    assert_eq!(kept.first(), chain()[..1]);
    assert_eq!(kept.outlook(&chain()[..1]).source, PoliciesSource::Configuration);
    for wanted in [&chain()[..], &[], &chain()[1..2]] {
        kept.change(wanted, works).unwrap();
        let next = Kept::of(&config(&path)).unwrap();
        assert_eq!(next.first(), wanted);
        let outlook = next.outlook(wanted);
        assert_eq!((outlook.source, outlook.file.as_deref()), (PoliciesSource::File, Some(&*path)));
        let aside = if wanted.contains(&chain()[0]) { vec![] } else { vec!["tenants".to_owned()] };
        assert_eq!(outlook.set_aside, aside);
    }
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        2,
        "nothing is left beside it but the lock"
    );
}

#[test]
fn without_a_file_changes_end_with_the_daemon_and_it_is_said() {
    let config = Config { policy: chain(), ..Config::default() };
    let kept = Kept::of(&config).unwrap();
    kept.change(&[], works).unwrap();
    assert_eq!(kept.outlook(&chain()).source, PoliciesSource::Configuration);
    assert_eq!(kept.outlook(&[]).source, PoliciesSource::Changes);
    assert_eq!(Kept::of(&config).unwrap().first(), chain());
}

/// With a file and without.
#[test]
fn whether_the_chain_at_work_reads_the_callers_program_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let reads = Definition {
        name: "pay".into(),
        allow: Some("caller.uid == 0 || caller.program == '/usr/sbin/payd'".into()),
        ..Definition::default()
    };
    for config in [config(&folder.path().join("p.toml")), Config::default()] {
        let kept = Kept::of(&config).unwrap();
        let are_read = || kept.programs_are_read.load(Ordering::Relaxed);
        kept.first();
        assert!(!are_read());
        kept.change(std::slice::from_ref(&reads), works).unwrap();
        assert!(are_read());
        assert!(kept.change(&[], |_| Err::<(), _>(refused())).is_err() && are_read());
        kept.change(&chain(), works).unwrap();
        assert!(!are_read());
    }
    let config = Config { policy: vec![reads.clone()], ..Config::default() };
    let kept = Kept::of(&config).unwrap();
    kept.first();
    assert!(kept.programs_are_read.load(Ordering::Relaxed));
    let successor = Kept::of(&Config::default()).unwrap();
    successor.take_over(vec![reads]).unwrap();
    assert!(successor.programs_are_read.load(Ordering::Relaxed));
}

#[test]
fn a_crash_while_it_is_written_leaves_the_chain_of_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    Kept::of(&config(&path)).unwrap().change(&chain(), works).unwrap();
    for cut in [0, 10, text().len() / 2, text().len()] {
        std::fs::write(beside(&path), &text()[..text().floor_char_boundary(cut)]).unwrap();
        let kept = Kept::of(&config(&path)).unwrap();
        assert_eq!(kept.first(), chain());
        kept.change(&chain(), works).unwrap();
        assert!(!beside(&path).exists());
    }
}

#[test]
fn a_change_is_on_the_disk_before_it_takes_effect_and_not_tried_in_vain() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    let kept = Kept::of(&config(&path)).unwrap();
    let seen = RefCell::new(Vec::new());
    let attempt = |dry_run| {
        seen.borrow_mut().push((dry_run, read(&path).unwrap()));
        Ok(())
    };
    kept.change(&chain(), attempt).unwrap();
    assert_eq!(*seen.borrow(), [(true, None), (false, Some(chain()))]);
    assert!(matches!(kept.change(&[], |_| Err::<(), _>(refused())), Err(ChangeError::Policy(_))));
    assert_eq!(read(&path).unwrap(), Some(chain()));
}

#[test]
fn a_change_that_was_written_and_fails_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    let kept = Kept::of(&config(&path)).unwrap();
    let attempt = |dry_run| if dry_run { Ok(()) } else { Err(refused()) };
    assert!(matches!(kept.change(&chain(), attempt), Err(ChangeError::Policy(_))));
    assert_eq!(read(&path).unwrap(), None);
    kept.change(&chain(), works).unwrap();
    assert!(matches!(kept.change(&[], attempt), Err(ChangeError::Policy(_))));
    assert_eq!(read(&path).unwrap(), Some(chain()));
}

#[test]
fn what_cannot_be_written_is_not_tried() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nowhere/p.toml");
    let kept = Kept::of(&config(&path)).unwrap();
    let tried = RefCell::new(Vec::new());
    let attempt = |dry_run| {
        tried.borrow_mut().push(dry_run);
        Ok(())
    };
    let error = kept.change(&[], attempt).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot write {} (admin.policies_file): ", path.display())),
        "{error}"
    );
    assert!(error.ends_with("; nothing has changed"), "{error}");
    assert_eq!(*tried.borrow(), [true]);
}

#[test]
fn a_link_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("p.toml"), folder.path().join("link.toml"));
    std::fs::write(&path, CHAIN).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let kept = Kept::of(&config(&link)).unwrap();
    assert_eq!(kept.first(), chain(), "what was written by hand is taken as it stands");
    kept.change(&[], works).unwrap();
    assert_eq!(read(&path).unwrap(), Some(vec![]));
    assert!(link.is_symlink());
}

#[test]
fn a_chain_that_is_handed_over_is_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    // As the configuration says: there is nothing to keep.
    Kept::of(&config(&path)).unwrap().take_over(chain()[..1].to_vec()).unwrap();
    assert_eq!(read(&path).unwrap(), None);
    // Changed while nothing was kept.
    Kept::of(&config(&path)).unwrap().take_over(chain()).unwrap();
    assert_eq!(read(&path).unwrap(), Some(chain()));
    Kept::of(&config(&path)).unwrap().take_over(chain()).unwrap();
    let error = Kept::of(&config(&path)).unwrap().take_over(vec![]).unwrap_err().to_string();
    assert!(error.contains("has another chain than the one at work"), "{error}");
    assert_eq!(read(&path).unwrap(), Some(chain()), "what somebody wrote is not lost");
}

#[test]
fn what_is_damaged_is_refused_with_place_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    let whole = text();
    let table = [
        (String::new(), "is empty"),
        ("\n \n".into(), "is empty"),
        (HEAD.into(), "was cut short in its first line"),
        (whole[..whole.len() - 1].into(), "was cut short, damaged or edited"),
        (whole.replace("blue", "gold"), "was cut short, damaged or edited"),
        (whole.replacen("# Chain", "# Chein", 1), "is damaged in its first two lines"),
        (whole.replacen("# ", "", 1).replace("blue", "gold"), "is damaged in its first two lines"),
        (whole.split_once('\n').unwrap().1.into(), "is damaged in its first two lines"),
        (whole.rsplit_once("[[policy]]").unwrap().0.into(), "was cut short, damaged or edited"),
        (
            "[[policy]]\nname = \"a\"\nkind = \"acces\"\n".into(),
            "p.toml:3:8: policy[0].kind: unknown variant",
        ),
        ("[[policy]]\nname = 1".into(), "p.toml:2:8: policy[0].name: invalid type"),
        (CHAIN.replace("deny = ", "deny = 'x' #"), "p.toml:6:8: policy[0].deny: (policy \"tenants\")"),
    ];
    for (text, expected) in table {
        std::fs::write(&path, &text).unwrap();
        let error = Kept::of(&config(&path)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\nwanted {expected}");
        assert!(error.contains("p.toml") && error.ends_with(REMEDY), "{error}");
    }
    std::fs::write(&path, b"[[policy]]\nname = \"\xff\"").unwrap();
    let error = Kept::of(&config(&path)).unwrap_err().to_string();
    assert!(error.contains("byte 19 is no UTF-8"), "{error}");
}

proptest! {
    #[test]
    fn no_part_of_it_is_taken_for_the_whole(cut in 0..text().len()) {
        let part = &text().as_bytes()[..cut];
        prop_assert!(std::str::from_utf8(part).is_err() || checked(part).is_err());
    }

    #[test]
    fn no_changed_byte_goes_unnoticed(at in prop_oneof![0..text().len(), 0..HEAD.len() + 10], bit in 0..8u8) {
        let mut bytes = text().as_bytes().to_vec();
        bytes[at] ^= 1 << bit;
        prop_assert!(checked(&bytes).is_err());
    }

    /// A block that was never written, at the beginning or anywhere, and a beginning that is lost.
    #[test]
    fn no_lost_block_goes_unnoticed(from in 0..text().len(), bytes in 1..HEAD.len() + NOTE.len(), blank: bool) {
        let with = if blank { b' ' } else { 0 };
        let mut lost = text().as_bytes().to_vec();
        let until = (from + bytes).min(lost.len());
        lost[from..until].fill(with);
        prop_assert!(taken(&lost).is_none_or(|taken| taken == chain()));
        let cut = &text().as_bytes()[bytes..];
        prop_assert!(taken(cut).is_none(), "{}", String::from_utf8_lossy(cut));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), marked: bool) {
        let head = if marked { HEAD.as_bytes() } else { &[] };
        let _ = checked(&[head, &bytes].concat());
    }
}
