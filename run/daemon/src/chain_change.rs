//! One chain of policies in the place of another: on every shard, or on none.
//!
//! Every shard is asked before any is changed, and all modules are loaded by then, each from one file. What may still
//! go wrong is that a module refuses, on one shard, the state that it took on others when it was tried: then the shards
//! that were changed go back.

use crate::command::{Applying, Command, Exchanged, ShardSender};
use trunkline_engine::ChainFit;
use trunkline_policy::{Chain, Definition, ModuleLoader, Modules, PolicyError, PolicyRow};

/// A chain that is to be put to work.
pub(crate) struct ChainChange<'a> {
    pub loader: &'a dyn ModuleLoader,
    pub chain: &'a Chain,
    /// Whose modules are loaded anew, though they are at work as they are written: those of policies that were written
    /// anew.
    pub is_written: &'a dyn Fn(&Definition) -> bool,
}

/// Who has a chain at work: a shard.
pub(crate) trait ChainHolder {
    /// The policies at work.
    fn at_work(&self) -> Vec<PolicyRow>;

    /// Puts a chain to work, or tries it. Which modules are upgraded, and what of a chain that was tried fits.
    ///
    /// # Errors
    /// What is wrong with it; nothing has changed then.
    fn apply(
        &self,
        chain: Chain,
        modules: Modules,
        how: Applying,
    ) -> Result<(Vec<String>, ChainFit), PolicyError>;
}

/// One that has ended has nothing to say.
impl ChainHolder for ShardSender {
    fn at_work(&self) -> Vec<PolicyRow> {
        self.ask(|reply| Command::ListPolicies { reply }).unwrap_or_default()
    }

    fn apply(
        &self,
        chain: Chain,
        modules: Modules,
        how: Applying,
    ) -> Result<(Vec<String>, ChainFit), PolicyError> {
        let chain = Box::new(chain);
        let answer = self.ask(|reply| Command::ApplyPolicies { chain, modules, how, reply });
        answer.map_or_else(
            || Ok(Default::default()),
            |Exchanged { result, retired }| {
                drop(retired);
                result
            },
        )
    }
}

/// A chain with instances of its modules, for one shard.
type Loaded = (Chain, Modules);

impl ChainChange<'_> {
    /// Says which modules the change would upgrade.
    ///
    /// # Errors
    /// [`PolicyError`]: why it cannot be made.
    pub fn try_on(&self, holders: &[impl ChainHolder]) -> Result<Vec<String>, PolicyError> {
        let at_work = holders.first().map(ChainHolder::at_work).unwrap_or_default();
        self.try_loaded(holders, self.load(holders.len(), &at_work)?)
    }

    /// Makes the change. Which modules were upgraded with it.
    ///
    /// # Errors
    /// [`PolicyError`]: why it cannot be made. Nothing has changed then, unless it says so.
    pub fn make_on(&self, holders: &[impl ChainHolder]) -> Result<Vec<String>, PolicyError> {
        let at_work = holders.first().map(ChainHolder::at_work).unwrap_or_default();
        if let [alone] = holders {
            let loaded = self.load(1, &at_work)?;
            return loaded.into_iter().try_fold(Vec::new(), |_, (chain, modules)| {
                alone.apply(chain, modules, Applying::IfFits).map(|(upgraded, _)| upgraded)
            });
        }
        let mut loaded = self.load(2 * holders.len(), &at_work)?;
        let to_try = loaded.split_off(holders.len());
        let upgraded = self.try_loaded(holders, to_try)?;
        for (index, (holder, (chain, modules))) in holders.iter().zip(loaded).enumerate() {
            if let Err(error) = holder.apply(chain, modules, Applying::Tried) {
                return Err(self.go_back(&holders[..index], &at_work, error));
            }
        }
        Ok(upgraded)
    }

    /// What fits on no shard is refused; what fits on one must not be kept from it by somebody on another.
    fn try_loaded(
        &self,
        holders: &[impl ChainHolder],
        loaded: Vec<Loaded>,
    ) -> Result<Vec<String>, PolicyError> {
        let (mut upgraded, mut fit) = (Vec::new(), ChainFit::default());
        for (holder, (chain, modules)) in holders.iter().zip(loaded) {
            let (words, found) = holder.apply(chain, modules, Applying::Try)?;
            upgraded = words;
            fit.join(found);
        }
        fit.refuse().map(|()| upgraded)
    }

    /// The chain, so many times. All from the same files.
    fn load(&self, times: usize, at_work: &[PolicyRow]) -> Result<Vec<Loaded>, PolicyError> {
        let is_at_work = |policy: &Definition| at_work.iter().any(|row| row.definition == *policy);
        let is_wanted = |policy: &Definition| (self.is_written)(policy) || !is_at_work(policy);
        let mut all: Vec<Loaded> = Vec::new();
        for _ in 0..times {
            let mut chain = self.chain.clone();
            let modules = chain.load_some(self.loader, &is_wanted)?;
            if let Some((_, first)) = all.first()
                && let Some((name, _)) =
                    first.files().iter().zip(modules.files()).find_map(|(a, b)| (*a != b).then_some(b))
            {
                return Err(self.changing(&name));
            }
            all.push((chain, modules));
        }
        Ok(all)
    }

    fn changing(&self, name: &str) -> PolicyError {
        PolicyError {
            index: self.chain.definitions().position(|policy| policy.name == name).unwrap_or_default(),
            name: name.to_owned(),
            key: "path",
            problem: "the file has changed while it was loaded".to_owned(),
            advice: "try again when it is whole".to_owned(),
        }
    }

    /// Puts what was at work to work again where the change was made, since it could not be made everywhere.
    fn go_back(&self, changed: &[impl ChainHolder], at_work: &[PolicyRow], why: PolicyError) -> PolicyError {
        let definitions: Vec<Definition> = at_work.iter().map(|row| row.definition.clone()).collect();
        let digest = |row: &PolicyRow| Some((row.definition.name.clone(), row.module.as_ref()?.digest));
        let loaded: Vec<_> = at_work.iter().filter_map(digest).collect();
        let goes_back = |holder: &_| {
            let mut chain = Chain::build(&definitions)?;
            let modules = chain.load_again(self.loader, &loaded)?;
            ChainHolder::apply(holder, chain, modules, Applying::Tried).map(drop)
        };
        let mut why = why;
        for (index, holder) in changed.iter().enumerate() {
            if let Err(stays) = goes_back(holder) {
                why.problem += &format!("; shard {index} has the new chain and cannot go back: {stays}");
            }
        }
        why
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a change is made on all shards or on none, and with one version of each module.
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use trunkline_policy::{
        Kind, Module, ModuleAnswer, ModuleCall, ModuleEnd, ModuleError, ModuleInfo, ModuleState, Policies,
        SettingValue,
    };

    /// Has a state; refuses another's while it is told to.
    #[derive(Debug)]
    struct Fake {
        about: ModuleInfo,
        refuses: Arc<AtomicBool>,
    }

    impl Module for Fake {
        fn about(&self) -> &ModuleInfo {
            &self.about
        }

        fn decide(&mut self, _: &ModuleCall<'_>) -> Result<ModuleAnswer, ModuleError> {
            Ok(ModuleAnswer::default())
        }

        fn finish(&mut self, _: &ModuleEnd) -> Result<(), ModuleError> {
            Ok(())
        }

        fn export(&self) -> Result<ModuleState, ModuleError> {
            Ok(ModuleState { format: 1, bytes: vec![1] })
        }

        fn import(&mut self, _: &ModuleState) -> Result<(), ModuleError> {
            let refuses = self.refuses.load(Ordering::Relaxed);
            if refuses { Err(ModuleError::of_path("told to", "")) } else { Ok(()) }
        }

        fn eject(self: Box<Self>) {}
    }

    /// A file whose version is what it has by then.
    #[derive(Default)]
    struct Files {
        version: Cell<u8>,
        loads: Cell<u32>,
        /// Another version is there from this load on.
        changes_at: Cell<u32>,
        /// There is none from this load on.
        gone_at: Cell<u32>,
        refuses: Arc<AtomicBool>,
    }

    impl Files {
        fn module(&self, version: u8) -> Box<dyn Module> {
            let about = ModuleInfo {
                name: "fake".into(),
                version: version.to_string(),
                digest: [version; 32],
                keeps_state: true,
                takes_state: true,
                ..ModuleInfo::default()
            };
            Box::new(Fake { about, refuses: Arc::clone(&self.refuses) })
        }
    }

    impl ModuleLoader for Files {
        fn load(
            &self,
            _: &str,
            _: &str,
            _: &[(String, SettingValue)],
        ) -> Result<Box<dyn Module>, ModuleError> {
            self.loads.set(self.loads.get() + 1);
            if self.loads.get() == self.changes_at.get() {
                self.version.set(self.version.get() + 1);
            }
            if self.loads.get() == self.gone_at.get() {
                return Err(ModuleError::of_path("there is no file", ""));
            }
            Ok(self.module(self.version.get()))
        }

        fn load_again(
            &self,
            _: &str,
            digest: &[u8; 32],
            _: &[(String, SettingValue)],
        ) -> Option<Result<Box<dyn Module>, ModuleError>> {
            Some(Ok(self.module(digest[0])))
        }
    }

    /// A shard without applications. Its modules refuse what is not only tried, if it is told so.
    struct Holder {
        policies: RefCell<Policies>,
        refuses: Cell<bool>,
        told: Arc<AtomicBool>,
    }

    impl ChainHolder for Holder {
        fn at_work(&self) -> Vec<PolicyRow> {
            self.policies.borrow().rows()
        }

        fn apply(
            &self,
            chain: Chain,
            modules: Modules,
            how: Applying,
        ) -> Result<(Vec<String>, ChainFit), PolicyError> {
            let mut policies = self.policies.borrow_mut();
            self.told.store(self.refuses.get() && how != Applying::Try, Ordering::Relaxed);
            let staged = policies.stage(chain, modules);
            self.told.store(false, Ordering::Relaxed);
            let staged = staged?;
            if how == Applying::Try {
                let upgraded = staged.upgraded().to_vec();
                policies.abandon(staged);
                return Ok((upgraded, ChainFit::default()));
            }
            Ok((policies.commit(staged), ChainFit::default()))
        }
    }

    fn module(path: &str) -> Definition {
        Definition { name: "m".into(), kind: Kind::Module, path: Some(path.into()), ..Definition::default() }
    }

    fn other() -> Definition {
        let deny = Some("true".into());
        Definition { name: "other".into(), kind: Kind::Access, deny, ..Definition::default() }
    }

    fn make(files: &Files, holders: &[Holder], definitions: &[Definition]) -> Result<Vec<String>, String> {
        let chain = Chain::build(definitions).unwrap();
        let change = ChainChange { loader: files, chain: &chain, is_written: &|policy| policy.name == "m" };
        change.make_on(holders).map_err(|error| error.to_string())
    }

    /// What each holder has at work: names, and versions of modules.
    fn at_work(holders: &[Holder]) -> Vec<String> {
        let version = |row: PolicyRow| {
            let module = row.module.map(|module| module.version).unwrap_or_default();
            row.definition.name + &module
        };
        let of = |holder: &Holder| holder.at_work().into_iter().map(version).collect::<Vec<_>>().join(" ");
        holders.iter().map(of).collect()
    }

    fn holders(files: &Files, count: usize) -> Vec<Holder> {
        let holder = |_| Holder {
            policies: RefCell::new(Policies::new(1)),
            refuses: Cell::new(false),
            told: Arc::clone(&files.refuses),
        };
        let holders: Vec<_> = (0..count).map(holder).collect();
        make(files, &holders, &[module("/m")]).unwrap();
        holders
    }

    #[test]
    fn a_file_that_goes_or_changes_meanwhile_changes_nothing() {
        for count in [1, 2, 3] {
            let files = Files::default();
            let holders = holders(&files, count);
            let before = at_work(&holders);
            let loads = if count == 1 { 1 } else { 2 * count as u32 };
            for load in 1..=loads {
                files.gone_at.set(files.loads.get() + load);
                let refused = make(&files, &holders, &[module("/m"), other()]).unwrap_err();
                assert!(refused.ends_with("there is no file"), "{refused}");
                assert_eq!(at_work(&holders), before, "load {load} of {loads}");
            }
            for load in 2..=loads {
                files.changes_at.set(files.loads.get() + load);
                let refused = make(&files, &holders, &[module("/m"), other()]).unwrap_err();
                assert!(refused.contains("the file has changed while it was loaded"), "{refused}");
                assert_eq!(at_work(&holders), before, "load {load} of {loads}");
            }
            let upgraded = make(&files, &holders, &[module("/m"), other()]).unwrap();
            assert_eq!(upgraded.len(), usize::from(loads > 1), "{upgraded:?}");
            let version = files.version.get();
            assert_eq!(at_work(&holders), vec![format!("m{version} other"); count]);
        }
    }

    #[test]
    fn where_one_shard_refuses_the_others_go_back() {
        for refusing in 0..3 {
            let files = Files::default();
            let holders = holders(&files, 3);
            holders[refusing].refuses.set(true);
            files.version.set(1);
            let refused = make(&files, &holders, &[module("/m"), other()]).unwrap_err();
            assert!(refused.contains("told to") && !refused.contains("cannot go back"), "{refused}");
            assert_eq!(at_work(&holders), ["m0"; 3], "shard {refusing} refused");
        }
    }

    #[test]
    fn it_is_said_where_one_cannot_go_back() {
        let files = Files::default();
        let chain = Chain::build(&[module("/m")]).unwrap();
        let change = ChainChange { loader: &files, chain: &chain, is_written: &|_| true };
        let why = change.go_back(&[Broken], &holders(&files, 1)[0].at_work(), change.changing("m"));
        assert!(
            why.problem.ends_with("; shard 0 has the new chain and cannot go back: policy \"m\".path: no"),
            "{why}"
        );
    }

    /// A shard that takes nothing.
    struct Broken;

    impl ChainHolder for Broken {
        fn at_work(&self) -> Vec<PolicyRow> {
            Vec::new()
        }

        fn apply(&self, _: Chain, _: Modules, _: Applying) -> Result<(Vec<String>, ChainFit), PolicyError> {
            Err(PolicyError {
                index: 0,
                name: "m".into(),
                key: "path",
                problem: "no".into(),
                advice: String::new(),
            })
        }
    }
}
