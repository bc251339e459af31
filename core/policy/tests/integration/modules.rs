//! Shows modules in the chain: what they see and say, that their state goes on through changes or the old one stays,
//! that faulty ones are ejected, and that each of them is told of the end of what it let pass. The module is scripted.

use crate::support;

use std::sync::{Arc, Mutex};
use support::{SCHEMA, inputs, metadata, order, sample};
use trunkline_call::{Code, Instant};
use trunkline_message::View;
use trunkline_policy::{
    Admission, Chain, Definition, FieldValue, Module, ModuleAnswer, ModuleCall, ModuleEnd, ModuleError,
    ModuleField, ModuleInfo, ModuleLoader, ModuleState, Plan, Policies, PolicyError, Rejection, SettingValue,
    Side, Subject, ValueKind,
};

const NOW: Instant = Instant(1_000_000_000);

/// What instances write down for the test, in order.
type Notes = Arc<Mutex<Vec<String>>>;

/// Counts calls; the count is its state. Its path says what it is and does: `/NAME/VERSION/DOES`.
#[derive(Debug)]
struct Scripted {
    about: ModuleInfo,
    does: String,
    count: u64,
    notes: Notes,
}

impl Scripted {
    fn does(&self, what: &str) -> Result<(), ModuleError> {
        if self.does.split('+').any(|does| does == what) {
            return Err(ModuleError::of_path(format!("told to fail in {what}"), ""));
        }
        Ok(())
    }

    fn note(&self, line: String) {
        self.notes.lock().unwrap().push(format!("{} {line}", self.about.version));
    }
}

impl Module for Scripted {
    fn about(&self) -> &ModuleInfo {
        &self.about
    }

    fn decide(&mut self, call: &ModuleCall<'_>) -> Result<ModuleAnswer, ModuleError> {
        self.does("decide")?;
        self.count += 1;
        for value in call.values {
            let line = match value {
                FieldValue::Text(text) => format!("sees {}", String::from_utf8_lossy(text)),
                other => format!("sees {other:?}"),
            };
            self.note(line);
        }
        let denied = self.does.contains("deny").then(|| (Code::Aborted, "as told".to_owned()));
        Ok(ModuleAnswer { denied, token: self.count, metadata: vec![("x".into(), b"y".to_vec())] })
    }

    fn finish(&mut self, end: &ModuleEnd) -> Result<(), ModuleError> {
        self.does("finish")?;
        self.note(format!("hears {} of {} after {} ns", end.code, end.token, end.elapsed_ns));
        Ok(())
    }

    fn export(&self) -> Result<ModuleState, ModuleError> {
        self.does("export")?;
        Ok(ModuleState { format: 1, bytes: self.count.to_le_bytes().to_vec() })
    }

    fn import(&mut self, state: &ModuleState) -> Result<(), ModuleError> {
        self.does("import")?;
        self.count = u64::from_le_bytes(state.bytes.as_slice().try_into().unwrap());
        Ok(())
    }

    fn eject(self: Box<Self>) {
        self.note("is ejected".into());
    }
}

struct Scripts(Notes);

impl ModuleLoader for Scripts {
    fn load(
        &self,
        _: &str,
        path: &str,
        settings: &[(String, SettingValue)],
    ) -> Result<Box<dyn Module>, ModuleError> {
        let parts: Vec<_> = path.split('/').collect();
        let [_, name, version, does] = parts[..] else {
            return Err(ModuleError::of_path(format!("{path} is no script"), "write /NAME/VERSION/DOES"));
        };
        let field = |(expression, value): &(String, SettingValue)| ModuleField {
            expression: expression.clone(),
            kind: if matches!(value, SettingValue::Int(_)) { ValueKind::Int } else { ValueKind::Text },
            optional: *value == SettingValue::Text("optional".into()),
        };
        let mut digest = [0; 32];
        path.bytes().take(32).enumerate().for_each(|(at, byte)| digest[at] = byte);
        let fields = settings.iter().filter(|(key, _)| key.contains('.')).map(field).collect();
        let about = ModuleInfo {
            name: name.into(),
            version: version.into(),
            digest,
            fields,
            wants_end: true,
            keeps_state: true,
            takes_state: !does.contains("forgets"),
        };
        Ok(Box::new(Scripted { about, does: does.into(), count: 0, notes: Arc::clone(&self.0) }))
    }

    fn load_again(
        &self,
        policy: &str,
        digest: &[u8; 32],
        settings: &[(String, SettingValue)],
    ) -> Option<Result<Box<dyn Module>, ModuleError>> {
        let path = String::from_utf8_lossy(digest);
        Some(self.load(policy, path.trim_end_matches('\0'), settings))
    }
}

/// A chain at work, with what its modules note.
struct Stage {
    policies: Policies,
    plan: Option<Arc<Plan>>,
    loader: Scripts,
    /// Modules are loaded anew.
    loads: bool,
}

impl Stage {
    fn new(text: &str) -> Self {
        let loader = Scripts(Notes::default());
        let mut stage = Self { policies: Policies::new(1), plan: None, loader, loads: true };
        stage.apply(text).unwrap();
        stage
    }

    fn apply(&mut self, text: &str) -> Result<Vec<String>, PolicyError> {
        self.apply_at("/shop.v1.Shop/Buy", text)
    }

    fn apply_at(&mut self, path: &str, text: &str) -> Result<Vec<String>, PolicyError> {
        #[derive(serde::Deserialize)]
        struct Document {
            policy: Vec<Definition>,
        }
        let document: Document = toml::from_str(text).unwrap();
        let mut chain = Chain::build(&document.policy)?;
        let modules = chain.load_some(&self.loader, &|_| self.loads)?;
        let mut staged = self.policies.stage(chain, modules)?;
        let subject = Subject {
            side: Side::Server,
            application: "till",
            path,
            request: Some((&SCHEMA, order())),
            client_streams: path.ends_with("Stream"),
        };
        match staged.chain_mut().plan(&subject) {
            (_, Some(misfit)) => {
                self.policies.abandon(staged);
                Err(misfit)
            }
            (plan, None) => {
                self.plan = plan;
                Ok(self.policies.commit(staged))
            }
        }
    }

    fn ask(&mut self) -> Result<Admission, Rejection> {
        let (order, metadata) = (sample(), metadata());
        let inputs = inputs(View::root(order.bytes()), &metadata);
        let mut admission = Admission::default();
        self.policies.admit(self.plan.as_ref().unwrap(), NOW, &inputs, true, &mut admission)?;
        Ok(admission)
    }

    /// Asks and gives the token of the call, which is its number.
    fn number(&mut self) -> u64 {
        let admission = self.ask().unwrap();
        self.policies.finish(Instant(NOW.0 + 5), admission.permits, Code::Ok);
        let notes = self.notes();
        notes.last().unwrap().split(' ').nth(4).unwrap().parse().unwrap()
    }

    fn notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.loader.0.lock().unwrap())
    }

    fn row(&self) -> trunkline_policy::ModuleRow {
        self.policies.rows()[0].module.clone().unwrap()
    }
}

fn module(path: &str, more: &str) -> String {
    format!("[[policy]]\nname = \"m\"\nkind = \"module\"\nside = \"server\"\npath = \"{path}\"\n{more}\n")
}

#[test]
fn it_sees_what_it_asked_for_and_hears_the_end() {
    let config = "config = { request = { tenant = \"text\", big = 1 }, metadata = { none = \"text\" } }";
    let mut stage = Stage::new(&module("/count/1/", config));
    let admission = stage.ask().unwrap();
    assert_eq!(admission.metadata, [("x".to_owned(), b"y".to_vec())]);
    // In the order of keys; what has no value is none.
    assert_eq!(stage.notes(), ["1 sees None", "1 sees Int(1099511627776)", "1 sees blåbär"]);
    stage.policies.finish(Instant(NOW.0 + 7), admission.permits, Code::NotFound);
    assert_eq!(stage.notes(), ["1 hears NOT_FOUND of 1 after 7 ns"]);
}

#[test]
fn a_call_another_policy_refuses_has_ended_for_it() {
    let wall = "[[policy]]\nname = \"wall\"\nkind = \"access\"\nside = \"server\"\ndeny = 'true'\n";
    let mut stage = Stage::new(&(module("/count/1/", "") + wall));
    assert_eq!(stage.ask().unwrap_err().policy, "wall");
    assert_eq!(stage.notes(), ["1 hears PERMISSION_DENIED of 1 after 0 ns"]);
}

#[test]
fn it_denies_with_its_own_code_and_words() {
    let mut stage = Stage::new(&module("/count/1/deny", ""));
    let rejection = stage.ask().unwrap_err();
    assert_eq!(
        (rejection.policy.as_str(), rejection.code, rejection.why.as_str()),
        ("m", Code::Aborted, "as told")
    );
    assert_eq!(stage.policies.rows()[0].figures.refused, 1);
}

#[test]
fn state_goes_on_through_upgrades_and_the_old_one_stays_if_it_cannot() {
    let mut stage = Stage::new(&module("/count/1/", ""));
    assert_eq!([stage.number(), stage.number()], [1, 2]);
    // The same again is left alone.
    assert_eq!(stage.apply(&module("/count/1/", "on_fault = \"pass\"")).unwrap(), [""; 0]);
    assert_eq!(stage.number(), 3);
    let upgraded = stage.apply(&module("/count/2/", "")).unwrap();
    assert_eq!(upgraded, ["m (count 1 to count 2, 8 bytes of state)"]);
    assert_eq!((stage.number(), stage.row().upgrades, stage.row().version.as_str()), (4, 1, "2"));
    // So do other settings of the same file.
    assert_eq!(stage.apply(&module("/count/2/", "config = { a = 1 }")).unwrap().len(), 1);
    assert_eq!(stage.number(), 5);

    for (path, expected) in [
        ("/count/3/import", "count 3 refuses the state of count 2 (8 bytes): told to fail in import"),
        ("/count/3/forgets", "count 3 takes no state, and count 2 has 8 bytes of it"),
        ("/nothing", "/nothing is no script"),
    ] {
        let error = stage.apply(&module(path, "")).unwrap_err();
        assert_eq!((error.name.as_str(), error.key, error.problem.as_str()), ("m", "path", expected));
    }
    // One that does not fit a method is no better, and the old one has not noticed.
    let misfit = stage.apply(&module("/count/3/", "config = { request = { tenant = 1 } }")).unwrap_err();
    assert!(misfit.problem.starts_with("its module wants request.tenant: 1:1: "), "{misfit}");
    assert_eq!((stage.number(), stage.row().version.as_str()), (6, "2"));

    // Another module begins anew, and so does one that was removed.
    assert_eq!(stage.apply(&module("/other/1/", "")).unwrap(), ["m (count 2 to other 1, no state)"]);
    assert_eq!(stage.number(), 1);
    stage.apply("policy = []").unwrap();
    stage.apply(&module("/other/1/", "")).unwrap();
    assert_eq!(stage.number(), 1);
}

#[test]
fn one_that_is_not_loaded_anew_stays_as_it_is() {
    let config = "config = { request = { tenant = \"text\" } }";
    let (here, other) =
        (module("/count/1/", config), "[[policy]]\nname = \"x\"\nkind = \"access\"\nside = \"server\"\n");
    let mut stage = Stage::new(&here);
    stage.ask().unwrap();
    assert_eq!(stage.notes(), ["1 sees blåbär"]);
    stage.loads = false;
    assert_eq!(stage.apply(&format!("{other}deny = 'false'\n{here}")).unwrap(), [""; 0]);
    stage.ask().unwrap();
    assert_eq!(stage.notes(), ["1 sees blåbär"], "it sees what it asked for");
    // Written otherwise, it is another.
    let refused = stage.apply(&module("/count/1/", "")).unwrap_err();
    assert_eq!(refused.problem, "its module is not loaded");
}

#[test]
fn one_that_cannot_export_stays_and_is_not_ejected() {
    let mut stage = Stage::new(&module("/count/1/export", ""));
    assert_eq!(stage.number(), 1);
    let error = stage.apply(&module("/count/2/", "")).unwrap_err();
    assert_eq!(error.problem, "count 1 cannot hand its state over: told to fail in export");
    assert_eq!(stage.number(), 2);
}

#[test]
fn a_faulty_one_is_ejected_once_and_its_calls_do_as_the_policy_says() {
    for (on_fault, passes) in [("", false), ("on_fault = \"deny\"", false), ("on_fault = \"pass\"", true)] {
        let mut stage = Stage::new(&module("/count/1/decide", on_fault));
        for _ in 0..3 {
            let asked = stage.ask();
            assert_eq!(asked.is_ok(), passes);
            if let Err(rejection) = asked {
                let expected = (Code::Internal, "its module is faulty and was ejected");
                assert_eq!((rejection.code, rejection.why.as_str()), expected);
            }
        }
        assert_eq!(stage.notes(), ["1 is ejected"]);
        let told = stage.policies.poll_ejected().unwrap().to_string();
        let calls = if passes { "its calls pass" } else { "its calls are refused" };
        let expected = "policy \"m\".path: the module was ejected: told to fail in decide; ";
        assert!(told.starts_with(&format!("{expected}{calls} until")), "{told}");
        assert_eq!(stage.policies.poll_ejected(), None);
        assert_eq!(stage.row().fault.as_deref(), Some("told to fail in decide"));
        // The same again does not bring it back; another version does.
        stage.apply(&module("/count/1/decide", on_fault)).unwrap();
        assert!(stage.row().fault.is_some());
        stage.apply(&module("/count/2/", on_fault)).unwrap();
        assert_eq!((stage.number(), stage.row().fault), (1, None));
    }
}

#[test]
fn a_fault_at_the_end_of_a_call_ejects_it_too() {
    let mut stage = Stage::new(&module("/count/1/finish", ""));
    let admission = stage.ask().unwrap();
    stage.policies.finish(NOW, admission.permits, Code::Ok);
    assert_eq!(stage.notes(), ["1 is ejected"]);
    assert!(stage.policies.poll_ejected().unwrap().problem.ends_with("told to fail in finish"));
    assert!(stage.ask().is_err());
}

#[test]
fn optional_fields_may_be_missing_and_streams_have_no_message_yet() {
    let missing =
        |how: &str| module("/count/1/", &format!("config = {{ request = {{ nothing = \"{how}\" }} }}"));
    let mut stage = Stage::new(&missing("optional"));
    stage.ask().unwrap();
    assert_eq!(stage.notes(), ["1 sees None"]);
    assert!(stage.apply(&missing("text")).unwrap_err().problem.contains("has no field \"nothing\""));
    let tenant =
        |how: &str| module("/count/2/", &format!("config = {{ request = {{ tenant = \"{how}\" }} }}"));
    stage.apply_at("/shop.v1.Shop/Stream", &tenant("optional")).unwrap();
    stage.ask().unwrap();
    assert_eq!(stage.notes(), ["2 sees None"]);
    let refused = stage.apply_at("/shop.v1.Shop/Stream", &tenant("text")).unwrap_err();
    assert!(refused.problem.contains("has a stream of them"), "{refused}");
}

#[test]
fn states_go_to_another_daemon() {
    let mut here = Stage::new(&module("/count/1/", ""));
    here.number();
    here.number();
    let (exported, errors) = here.policies.export_modules();
    assert_eq!((exported.len(), errors), (1, vec![]));
    let bytes = trunkline_policy::encode_modules(&exported);
    let exported = trunkline_policy::decode_modules(&bytes).unwrap();
    let mut there = Stage::new(&module("/count/1/", ""));
    assert_eq!(there.policies.import_modules(&exported), []);
    assert_eq!(there.number(), 3);
    let mut refuses = Stage::new(&module("/count/1/import", ""));
    let errors = refuses.policies.import_modules(&exported);
    assert_eq!(errors[0].to_string(), "policy \"m\".path: told to fail in import");
    let mut other = Stage::new(&module("/other/1/", ""));
    assert_eq!(other.policies.import_modules(&exported), []);
    assert_eq!(other.number(), 1);
}

#[test]
fn definitions_are_refused_with_key_and_remedy() {
    for (text, expected) in [
        (
            module("m.so", ""),
            "policy \"m\".path: is \"m.so\"; write an absolute path: the daemon has a working",
        ),
        (
            module("/m.so", "allow = 'true'"),
            "policy \"m\".allow: does not belong to kind \"module\"; its keys: path,",
        ),
        (
            module("/m.so", "config = { \"a.b\" = 1 }"),
            "policy \"m\".config: \"a.b\" is no key; write it with",
        ),
        (
            module("/m.so", "").replace("path = \"/m.so\"", ""),
            "policy \"m\".path: is missing; add path = ...",
        ),
    ] {
        #[derive(serde::Deserialize)]
        struct Document {
            policy: Vec<Definition>,
        }
        let document: Document = toml::from_str(&text).unwrap();
        let error = Chain::build(&document.policy).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
