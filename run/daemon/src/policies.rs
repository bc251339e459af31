//! The chain of policies of a running daemon: exchanged, kept, listed, handed over. And which changes were denied.

use crate::chain_change::ChainChange;
use crate::command::{Command, ControlMessage, ShardSender};
use crate::config::settle_targets;
use crate::handle::Daemon;
use crate::policies_file::{ChangeError, PoliciesKept};
use crate::start_error::StartError;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use trunkline_engine::DeniedChange;
use trunkline_policy::{
    BundleError, Chain, Definition, PolicyError, PolicyRow, decode_modules, encode_modules,
};

impl Daemon {
    /// Changes of this daemon that were asked for by those who may not, from its start until its end. They are told
    /// once: whoever asks second has `None`.
    pub fn denied_changes(&self) -> Option<Receiver<DeniedChange>> {
        let (reply, told) = channel();
        self.tell_control(ControlMessage::TakeDenials(reply));
        told.recv().ok().flatten()
    }

    /// Puts a chain of policies in the place of the one at work, for all calls from now on; or only says whether it
    /// would do (`dry_run`). Checked as a whole, applied as a whole.
    ///
    /// Returns which modules were upgraded, in words.
    ///
    /// Modules are loaded and taken apart here, on the caller's thread; only their state changes hands on the shard's.
    ///
    /// Where the configuration names a file to keep the chain in (`admin.policies_file`), it is there before the change
    /// takes effect.
    ///
    /// # Errors
    /// [`ChangeError`] names the policy, the key and what to write instead, or says why the chain cannot be kept;
    /// nothing has changed then.
    pub fn apply_policies(
        &self,
        definitions: &[Definition],
        dry_run: bool,
    ) -> Result<Vec<String>, ChangeError> {
        self.change_policies(definitions, &|_| true, dry_run)
    }

    /// The same of a chain in which nothing but policies of these names was written anew. Modules of the others stay as
    /// they are, whatever has become of their files.
    ///
    /// # Errors
    /// As [`Daemon::apply_policies`].
    pub fn edit_policies(
        &self,
        definitions: &[Definition],
        written: &[String],
        dry_run: bool,
    ) -> Result<Vec<String>, ChangeError> {
        self.change_policies(definitions, &|policy| written.contains(&policy.name), dry_run)
    }

    fn change_policies(
        &self,
        definitions: &[Definition],
        is_written: &dyn Fn(&Definition) -> bool,
        dry_run: bool,
    ) -> Result<Vec<String>, ChangeError> {
        let mut definitions = definitions.to_vec();
        settle_targets(&mut definitions)?;
        let chain = Chain::build(&definitions)?;
        if dry_run {
            return Ok(self.exchange_policies(&chain, is_written, true)?);
        }
        self.kept.change(&definitions, |dry_run| self.exchange_policies(&chain, is_written, dry_run))
    }

    /// Puts the chain to work that this daemon begins with: the one that was kept, else the configuration's. They were
    /// found sound when they were read; what modules are is found out now. A daemon without its policies would let
    /// everything through.
    pub(crate) fn begin_with_policies(&self) -> Result<(), StartError> {
        let chain = Chain::build(&self.kept.first());
        let begun = chain.and_then(|chain| self.exchange_policies(&chain, &|_| true, false));
        begun.map(drop).map_err(|error| match self.kept.blame(error) {
            ChangeError::Policy(error) => StartError::Policies(error),
            ChangeError::File(error) => StartError::PoliciesFile(error),
        })
    }

    fn exchange_policies(
        &self,
        chain: &Chain,
        is_written: &dyn Fn(&Definition) -> bool,
        dry_run: bool,
    ) -> Result<Vec<String>, PolicyError> {
        let change = ChainChange { loader: &self.modules, chain, is_written };
        if dry_run { change.try_on(self.shards()) } else { change.make_on(self.shards()) }
    }

    /// What becomes of this chain, the one at work, when the daemon ends.
    pub fn policies_kept(&self, at_work: &[Definition]) -> PoliciesKept {
        self.kept.outlook(at_work)
    }

    /// The states of all modules as bytes, for a daemon that takes over from this one; and why some are not among them.
    /// Calls that come after are not in them: ask when no more do.
    pub fn export_modules(&self) -> (Vec<u8>, Vec<PolicyError>) {
        // Shards share nothing; the first one's states are the daemon's for as long as there is one shard.
        let asked =
            self.shards().first().and_then(|shard| shard.ask(|reply| Command::ExportModules { reply }));
        let (exported, errors) = asked.unwrap_or_default();
        (encode_modules(&exported), errors)
    }

    /// Has this daemon's modules, which have not been asked about a call yet, go on with states another has exported.
    /// Returns which of them did not take theirs.
    ///
    /// # Errors
    /// [`BundleError`] if these are no states.
    pub fn import_modules(&self, states: &[u8]) -> Result<Vec<PolicyError>, BundleError> {
        let exported = Arc::new(decode_modules(states)?);
        let ask = |shard: &ShardSender| {
            let exported = Arc::clone(&exported);
            shard.ask(|reply| Command::ImportModules { exported, reply })
        };
        Ok(self.shards().iter().filter_map(ask).flatten().collect())
    }

    /// The policies at work, in order, and what they have done.
    pub fn policies(&self) -> Vec<PolicyRow> {
        let mut rows: Vec<PolicyRow> = Vec::new();
        for shard in self.shards() {
            let more = shard.ask(|reply| Command::ListPolicies { reply }).unwrap_or_default();
            if rows.is_empty() {
                rows = more;
                continue;
            }
            for other in more {
                let same = rows.iter_mut().find(|row| row.definition.name == other.definition.name);
                same.into_iter().for_each(|row| row.figures.add(other.figures));
            }
        }
        rows
    }
}
