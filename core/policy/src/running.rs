//! A policy's module at work: asked, upgraded, ejected.

use crate::definition::Definition;
use crate::module::{
    Module, ModuleAnswer, ModuleCall, ModuleEnd, ModuleError, ModuleInfo, ModuleRow, ModuleState,
};
use crate::refused::Wrong;
use crate::setting::Settings;

/// A module and what became of it.
#[derive(Debug)]
pub(crate) struct Running {
    about: ModuleInfo,
    settings: Option<Settings>,
    /// `None`: it was ejected.
    module: Option<Box<dyn Module>>,
    fault: Option<String>,
    upgrades: u64,
}

impl Running {
    pub fn new(definition: &Definition, module: Box<dyn Module>) -> Self {
        let about = module.about().clone();
        let settings = definition.config.clone();
        Self { about, settings, module: Some(module), fault: None, upgrades: 0 }
    }

    /// Whether a fresh instance would be the same again: the same file with the same settings.
    pub fn is(&self, definition: &Definition, fresh: &dyn Module) -> bool {
        self.about == *fresh.about() && self.settings == definition.config
    }

    /// Hands the state over to another instance; `None` if there is none to hand over. The instance at work goes on.
    pub fn hand_over(&self, fresh: &mut dyn Module) -> Result<Option<usize>, Wrong> {
        let (from, to) = (self.about.label(), fresh.about().label());
        let Some(old) = self.module.as_ref().filter(|_| self.about.name == fresh.about().name) else {
            return Ok(None);
        };
        if !self.about.keeps_state {
            return Ok(None);
        }
        let advice = "the one at work goes on; to begin anew, remove the policy and add it again";
        let state = old.export().map_err(|error| {
            Wrong::new("path", format!("{from} cannot hand its state over: {error}"), advice)
        })?;
        let bytes = state.bytes.len();
        if !fresh.about().takes_state && bytes > 0 {
            let problem = format!("{to} takes no state, and {from} has {bytes} bytes of it");
            return Err(Wrong::new("path", problem, advice));
        }
        if fresh.about().takes_state {
            fresh.import(&state).map_err(|error| {
                let problem = format!("{to} refuses the state of {from} ({bytes} bytes): {error}");
                Wrong::new("path", problem, advice)
            })?;
        }
        Ok(Some(bytes))
    }

    /// Puts another instance to work and gives the one that was back.
    pub fn replace(&mut self, definition: &Definition, fresh: Box<dyn Module>) -> Option<Box<dyn Module>> {
        let upgrades = self.upgrades + 1;
        let old = std::mem::replace(self, Self { upgrades, ..Self::new(definition, fresh) });
        old.module
    }

    /// Asks it; `None` if it was ejected. An error ejects it.
    pub fn decide(&mut self, call: &ModuleCall<'_>) -> Option<Result<ModuleAnswer, ModuleError>> {
        let answer = self.module.as_mut()?.decide(call);
        self.ejected_by(&answer);
        Some(answer)
    }

    /// Tells it of an end, if it wants to know.
    pub fn finish(&mut self, end: &ModuleEnd) -> Result<(), ModuleError> {
        let Some(module) = self.module.as_mut().filter(|module| module.about().wants_end) else {
            return Ok(());
        };
        let told = module.finish(end);
        self.ejected_by(&told);
        told
    }

    pub fn export(&self) -> Option<Result<ModuleState, ModuleError>> {
        self.module.as_ref().filter(|_| self.about.keeps_state).map(|module| module.export())
    }

    /// Takes over the state of an instance in another process.
    pub fn import(&mut self, state: &ModuleState) -> Result<(), ModuleError> {
        let Some(module) = self.module.as_mut().filter(|module| module.about().takes_state) else {
            return Err(ModuleError::of_path(format!("{} takes no state", self.about.label()), ""));
        };
        module.import(state)
    }

    pub fn about(&self) -> &ModuleInfo {
        &self.about
    }

    pub fn wants_end(&self) -> bool {
        self.about.wants_end
    }

    pub fn into_module(self) -> Option<Box<dyn Module>> {
        self.module
    }

    pub fn row(&self) -> ModuleRow {
        ModuleRow {
            name: self.about.name.clone(),
            version: self.about.version.clone(),
            digest: self.about.digest,
            upgrades: self.upgrades,
            fault: self.fault.clone(),
        }
    }

    fn ejected_by<T>(&mut self, said: &Result<T, ModuleError>) {
        if let Err(error) = said {
            self.fault = Some(error.problem.clone());
            self.module.take().into_iter().for_each(Module::eject);
        }
    }
}
