//! Everything applications have brought, and the answers to questions about it.

use super::files::Files;
use std::collections::HashSet;
use std::sync::{Arc, Weak};
use trunkline::Code;
use trunkline_daemon::Services;
use trunkline_engine::BoundSchema;

/// Bytes of a name that is asked for: as long as the path of a file may be.
const NAME_BYTES_MAX: usize = 4096;

/// What is served, at one time.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    services: Vec<String>,
    sets: Vec<Set>,
}

/// The files of a schema in use.
#[derive(Clone, Debug)]
struct Set {
    schema: Weak<BoundSchema>,
    files: Arc<Files>,
}

/// A question, of whichever version of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    FileByName(String),
    FileWithSymbol(String),
    FileWithExtension(String, i32),
    ExtensionNumbers(String),
    Services,
    /// The request asks nothing.
    Nothing,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Encoded files.
    Files(Vec<Vec<u8>>),
    ExtensionNumbers(String, Vec<i32>),
    Services(Vec<String>),
    Error(Code, String),
}

/// What one stream has been told, so that it is told once.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Names of the files sent from `set`.
    files: HashSet<String>,
    /// Where its last answer came from. Two applications may each have a `common.proto`; a tool that asks for the
    /// imports of a file wants those that go with it.
    set: Weak<Files>,
}

impl Question {
    /// What is asked for; empty where that has no name.
    fn name(&self) -> &str {
        match self {
            Self::FileByName(name) | Self::FileWithSymbol(name) => name,
            Self::FileWithExtension(name, _) | Self::ExtensionNumbers(name) => name,
            Self::Services | Self::Nothing => "",
        }
    }
}

impl Catalog {
    /// What is served now; sets that were indexed before are taken over.
    pub fn new(services: Services, before: Option<&Self>) -> Self {
        let mut catalog = Self::default();
        for state in services.states.into_iter().filter(|state| state.serving) {
            for schema in &state.schemas {
                catalog.add(schema, before);
            }
            catalog.services.push(state.name);
        }
        catalog
    }

    /// Answers a question of a stream.
    pub fn answer(&self, question: &Question, told: &mut Told) -> Answer {
        if question.name().len() > NAME_BYTES_MAX {
            let why = format!("a name is of {NAME_BYTES_MAX} bytes at most (NAME_BYTES_MAX)");
            return Answer::Error(Code::InvalidArgument, why);
        }
        let bare = |name: &str| name.trim_start_matches('.').to_owned();
        match question {
            Question::Services => Answer::Services(self.services.clone()),
            Question::FileByName(name) => {
                self.files(told, |files| files.by_name(name), || format!("no file {name:?}"))
            }
            Question::FileWithSymbol(symbol) => {
                let symbol = bare(symbol);
                self.files(told, |files| files.by_symbol(&symbol), || format!("no symbol {symbol:?}"))
            }
            Question::FileWithExtension(extended, number) => {
                let extended = bare(extended);
                let what = || format!("no extension {number} of {extended:?}");
                self.files(told, |files| files.by_extension(&extended, *number), what)
            }
            Question::ExtensionNumbers(extended) => self.extension_numbers(bare(extended)),
            Question::Nothing => Answer::Error(Code::InvalidArgument, "the request asks nothing".into()),
        }
    }

    fn files(
        &self,
        told: &mut Told,
        find: impl Fn(&Files) -> Option<usize>,
        what: impl Fn() -> String,
    ) -> Answer {
        let last = told.set.upgrade();
        let sets = last.iter().chain(self.sets.iter().map(|set| &set.files));
        let Some((files, at)) = sets.into_iter().find_map(|files| Some((files, find(files)?))) else {
            let what: String = what().chars().take(512).collect();
            return Answer::Error(Code::NotFound, format!("{what} in what applications of this host serve"));
        };
        if !std::ptr::eq(told.set.as_ptr(), Arc::as_ptr(files)) {
            *told = Told { files: HashSet::new(), set: Arc::downgrade(files) };
        }
        // What was asked for is always told; what it imports, once.
        let mut out = Vec::new();
        for (at, file) in files.with_imports(at).into_iter().enumerate() {
            let is_new = told.files.insert(file.name.clone());
            if is_new || at == 0 {
                out.push(file.bytes.clone());
            }
        }
        Answer::Files(out)
    }

    fn extension_numbers(&self, extended: String) -> Answer {
        if !self.sets.iter().any(|set| set.files.by_symbol(&extended).is_some()) {
            let what: String = format!("no message {extended:?}").chars().take(512).collect();
            return Answer::Error(Code::NotFound, format!("{what} in what applications of this host serve"));
        }
        let mut numbers: Vec<i32> =
            self.sets.iter().flat_map(|set| set.files.extension_numbers(&extended)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Answer::ExtensionNumbers(extended, numbers)
    }

    fn add(&mut self, schema: &Arc<BoundSchema>, before: Option<&Self>) {
        let same = |set: &&Set| std::ptr::eq(set.schema.as_ptr(), Arc::as_ptr(schema));
        if self.sets.iter().any(|set| same(&set)) {
            return;
        }
        let known = before.and_then(|before| before.sets.iter().find(same)).cloned();
        let set = known.unwrap_or_else(|| Set {
            schema: Arc::downgrade(schema),
            files: Arc::new(Files::of(schema.schema.descriptor_set())),
        });
        self.sets.push(set);
    }
}

#[cfg(test)]
mod tests {
    //! Shows the answer to each kind of question, good and bad, and that a stream is told each import once.
    use super::*;
    use crate::reflection::files;

    fn catalog() -> Catalog {
        let set = |bytes: &[u8]| Set { schema: Weak::new(), files: Arc::new(Files::of(bytes)) };
        Catalog { services: vec!["a.S".into()], sets: vec![set(&files::tests::set()), set(&[])] }
    }

    fn count(answer: Answer) -> usize {
        match answer {
            Answer::Files(files) => files.len(),
            other => panic!("no files: {other:?}"),
        }
    }

    #[test]
    fn every_question_has_its_answer() {
        let (catalog, mut told) = (catalog(), Told::default());
        let mut ask = |question| catalog.answer(&question, &mut told);
        assert_eq!(ask(Question::Services), Answer::Services(vec!["a.S".into()]));
        assert_eq!(count(ask(Question::FileWithSymbol("a.S".into()))), 3, "with imports");
        assert_eq!(count(ask(Question::FileWithSymbol(".a.M".into()))), 1, "imports are known by now");
        assert_eq!(count(ask(Question::FileByName("c.proto".into()))), 1);
        assert_eq!(count(ask(Question::FileWithExtension("c.Base".into(), 100))), 1);
        let numbers = |of: &str, numbers: &[i32]| Answer::ExtensionNumbers(of.into(), numbers.to_vec());
        assert_eq!(ask(Question::ExtensionNumbers("c.Base".into())), numbers("c.Base", &[100]));
        assert_eq!(ask(Question::ExtensionNumbers("a.M".into())), numbers("a.M", &[]));
        for question in [
            Question::FileByName("d.proto".into()),
            Question::FileWithSymbol("a.T".into()),
            Question::FileWithExtension("c.Base".into(), 1),
            Question::ExtensionNumbers("a.T".into()),
        ] {
            assert!(matches!(ask(question), Answer::Error(Code::NotFound, _)));
        }
        let long = |bytes: usize| "a.".repeat(bytes / 2);
        for (bytes, code) in [(NAME_BYTES_MAX, Code::NotFound), (NAME_BYTES_MAX + 2, Code::InvalidArgument)] {
            for question in [
                Question::FileByName(long(bytes)),
                Question::FileWithSymbol(long(bytes)),
                Question::FileWithExtension(long(bytes), 1),
                Question::ExtensionNumbers(long(bytes)),
            ] {
                assert!(matches!(ask(question), Answer::Error(found, _) if found == code), "{bytes}");
            }
        }
        assert!(matches!(ask(Question::Nothing), Answer::Error(Code::InvalidArgument, _)));
    }
}
