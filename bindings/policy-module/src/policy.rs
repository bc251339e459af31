//! The trait.

use crate::{Call, Config, End, Verdict, Wants};

/// A policy. The daemon calls it from one thread at a time, and waits for it: it must not block.
pub trait Policy: Sized + Send + 'static {
    /// The module's name, 1 to 64 bytes. State goes from one version to another of the same name.
    const NAME: &'static str;
    /// Its version, for people, 1 to 64 bytes.
    const VERSION: &'static str;
    /// The form of the state [`Policy::export`] gives: count it up when you change it.
    const STATE_FORMAT: u32 = 1;

    /// Makes an instance, and says what it wants to see of calls.
    ///
    /// # Errors
    /// What is wrong with the configuration, for the operator; the policy is then refused.
    fn create(config: &Config<'_>, wants: &mut Wants) -> Result<Self, String>;

    /// Decides about a call that begins.
    fn decide(&mut self, call: &Call<'_>) -> Verdict;

    /// Hears how a call ended that had passed, if it [wanted](Wants::end) to.
    fn finish(&mut self, _end: &End) {}

    /// The state another instance is to go on with. This one may go on, too: the upgrade may be refused.
    fn export(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes over the state of another instance, before the first call. By default none is taken.
    ///
    /// # Errors
    /// Why it cannot go on with this state, for the operator; the old instance then stays.
    fn import(&mut self, state: State<'_>) -> Result<(), String> {
        match state.bytes.len() {
            0 => Ok(()),
            bytes => Err(format!("it takes no state, and there are {bytes} bytes")),
        }
    }
}

/// State on its way from one instance to another.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// [`Policy::STATE_FORMAT`] of the version that exported it.
    pub format: u32,
    /// What it exported.
    pub bytes: &'a [u8],
}
