//! Policies that come from outside: what the chain asks of a module, and what a module may see.
//!
//! How a module is loaded and called is the host's business. It hands modules in behind [`Module`], together with the
//! chain they belong to.

use crate::definition::{Definition, Side};
use crate::expr::{FieldValue, ValueKind};
use crate::refused::Wrong;
use crate::setting::{Flat, SettingValue, flat};
use std::fmt;
use trunkline_call::{Code, Deadline, Instant};

/// Fields a module may ask for; their values are put together on the stack.
pub const MODULE_FIELDS_MAX: usize = 16;

/// One instance of a module. Its callbacks are called one at a time, from whatever thread the chain is asked on.
pub trait Module: fmt::Debug + Send {
    /// What it is, and what it asks for; the same for as long as it lives.
    fn about(&self) -> &ModuleInfo;

    /// Decides about a call that begins.
    ///
    /// # Errors
    /// The module is faulty: it is to be [ejected](Module::eject).
    fn decide(&mut self, call: &ModuleCall<'_>) -> Result<ModuleAnswer, ModuleError>;

    /// Hears how a call ended that it let pass.
    ///
    /// # Errors
    /// As [`Module::decide`].
    fn finish(&mut self, end: &ModuleEnd) -> Result<(), ModuleError>;

    /// Its state; it goes on as if nothing had been asked.
    ///
    /// # Errors
    /// It cannot say, or too much.
    fn export(&self) -> Result<ModuleState, ModuleError>;

    /// Takes over the state of another instance, before its first call.
    ///
    /// # Errors
    /// It refuses the state; the instance is of no use then.
    fn import(&mut self, state: &ModuleState) -> Result<(), ModuleError>;

    /// It is faulty and must not be called again, not even to be taken apart.
    fn eject(self: Box<Self>);
}

/// Loads modules: the host's part in building a chain.
pub trait ModuleLoader {
    /// Makes an instance of the module in the file at `path` for a policy.
    ///
    /// # Errors
    /// The file is no module, or the module refuses the settings.
    fn load(
        &self,
        policy: &str,
        path: &str,
        settings: &[(String, SettingValue)],
    ) -> Result<Box<dyn Module>, ModuleError>;

    /// Makes another instance of a module that is loaded, by the digest of its file, whatever has become of that;
    /// `None` if it is not loaded.
    fn load_again(
        &self,
        policy: &str,
        digest: &[u8; 32],
        settings: &[(String, SettingValue)],
    ) -> Option<Result<Box<dyn Module>, ModuleError>>;
}

/// What a module is, and what it asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleInfo {
    /// Its name: state goes from one version of a module to another of the same name.
    pub name: String,
    /// Its version, for people.
    pub version: String,
    /// Digest of the file it came from.
    pub digest: [u8; 32],
    /// What it wants to see of every call.
    pub fields: Vec<ModuleField>,
    /// Wants to hear how calls end.
    pub wants_end: bool,
    /// Has state to export.
    pub keeps_state: bool,
    /// Can take state over.
    pub takes_state: bool,
}

/// Something a module wants to see of every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleField {
    /// An expression.
    pub expression: String,
    /// The kind of its value.
    pub kind: ValueKind,
    /// Types that do not have it are no mistake.
    pub optional: bool,
}

/// A call as a module sees it.
#[derive(Clone, Copy, Debug)]
pub struct ModuleCall<'a> {
    /// Whose side of the call this is.
    pub side: Side,
    /// The daemon's clock.
    pub now: Instant,
    /// When it must have ended.
    pub deadline: Deadline,
    /// Size of the request as its sender encoded it.
    pub request_bytes: u64,
    /// Requests are a stream.
    pub client_streams: bool,
    /// `/package.Service/Method`
    pub path: &'a str,
    /// Name of the application whose side this is.
    pub application: &'a str,
    /// Who calls, as far as it is proven.
    pub peer_identity: &'a str,
    /// Where the call comes from; empty for this host.
    pub peer_address: &'a str,
    /// Metadata in its encoded form.
    pub metadata: &'a [u8],
    /// Values of the fields it asked for, in their order.
    pub values: &'a [FieldValue<'a>],
}

/// What a module says about a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleAnswer {
    /// Code and words of a call that is refused.
    pub denied: Option<(Code, String)>,
    /// Comes back with the end of a call that passes.
    pub token: u64,
    /// Pairs a call that passes gets into its metadata.
    pub metadata: Vec<(String, Vec<u8>)>,
}

/// How a call ended that a module had let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleEnd {
    /// Its status.
    pub code: Code,
    /// The daemon's clock.
    pub now: Instant,
    /// From the decision to the end.
    pub elapsed_ns: u64,
    /// As the module had answered.
    pub token: u64,
}

/// A module's state on its way to another instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleState {
    /// The form it has, by the module's own counting.
    pub format: u32,
    /// The state.
    pub bytes: Vec<u8>,
}

/// What is wrong with a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleError {
    /// The key of the policy at fault: `path`, or `config`.
    pub key: &'static str,
    /// What is wrong.
    pub problem: String,
    /// What to do about it; may be empty.
    pub advice: String,
}

/// Instances for the policies of one chain.
#[derive(Debug, Default)]
pub struct Modules {
    fresh: Vec<(String, Box<dyn Module>)>,
}

/// What became of a policy's module, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleRow {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Digest of the file it came from.
    pub digest: [u8; 32],
    /// Times another version took over.
    pub upgrades: u64,
    /// Why it was ejected, if it was.
    pub fault: Option<String>,
}

impl Modules {
    /// Takes an instance for a policy in.
    pub fn insert(&mut self, policy: &str, module: Box<dyn Module>) {
        self.fresh.push((policy.to_owned(), module));
    }

    pub(crate) fn has(&self, policy: &str) -> bool {
        self.fresh.iter().any(|(name, _)| name == policy)
    }

    /// Of which policies they are, and from which files: a name and a digest each.
    pub fn files(&self) -> Vec<(String, [u8; 32])> {
        self.fresh.iter().map(|(name, module)| (name.clone(), module.about().digest)).collect()
    }

    /// Those that nobody has taken.
    pub(crate) fn into_rest(self) -> impl Iterator<Item = Box<dyn Module>> {
        self.fresh.into_iter().map(|(_, module)| module)
    }

    pub(crate) fn take(&mut self, policy: &str) -> Option<Box<dyn Module>> {
        let at = self.fresh.iter().position(|(name, _)| name == policy)?;
        Some(self.fresh.swap_remove(at).1)
    }
}

impl ModuleError {
    /// Of the policy's `path`: the file, or the module in it.
    pub fn of_path(problem: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { key: "path", problem: problem.into(), advice: advice.into() }
    }

    /// Of its `config`.
    pub fn of_config(problem: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { key: "config", problem: problem.into(), advice: advice.into() }
    }

    pub(crate) fn wrong(self) -> Wrong {
        Wrong { key: self.key, problem: self.problem, advice: self.advice }
    }
}

impl fmt::Display for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ModuleError {}

impl ModuleInfo {
    /// `token-bucket 2`
    pub fn label(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

/// Path and settings of a policy of this kind.
pub(crate) fn source(definition: &Definition) -> Result<(&str, Flat), Wrong> {
    let path = definition.path.as_deref().unwrap_or_default();
    Ok((path, flat(definition.config.as_ref())?))
}
