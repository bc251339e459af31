//! Policies over the admin API: shown, and changed as a whole or not at all.

use super::audit::{Audit, AuditedChange};
use super::host::{Host, UpgradeWish};
use super::looks::Looks;
use super::proto::control_server::Control;
use super::proto::{
    ChangePoliciesRequest, ChangePoliciesResponse, ListPoliciesResponse, MoveApplicationRequest,
    MoveApplicationResponse, Policy, PolicyChange, PolicySource, UpgradeRequest, UpgradeResponse,
};
use super::unknown::Known;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trunkline::{Code, Incoming, Metadata, Response, Status};
use trunkline_daemon::{ChangeError, Config, PoliciesSource};
use trunkline_policy::{Definition, Difference, Edit, PolicyRow};

/// Metadata in which the engine tells the daemon's own services who calls. A caller's own pairs of this name never get
/// here.
const CALLER: &str = trunkline_engine::CALLER_KEY;

/// Who calls, as the kernel says.
pub(super) fn caller(metadata: &Metadata) -> &str {
    metadata.text(CALLER).unwrap_or("unknown")
}

/// Changes a daemon for those who may: in the order in which users take turns, on a thread of its own. The server's
/// thread stays free, so an upgrade begins while sessions move.
#[derive(Debug)]
pub struct ControlService<H> {
    changer: Arc<Changer<H>>,
    line: Looks<Changer<H>>,
}

/// Who does it.
#[derive(Debug)]
struct Changer<H> {
    host: H,
    audit: Audit,
    /// One change at a time: each begins with the chain the one before it left.
    changing: Mutex<()>,
}

impl<H: Host> ControlService<H> {
    /// Changes `host` and writes down who did.
    ///
    /// # Errors
    /// There is no thread to be had for it.
    pub fn new(host: H, audit: Audit) -> io::Result<Self> {
        let changer = Arc::new(Changer { host, audit, changing: Mutex::new(()) });
        let line = Looks::begin(Arc::clone(&changer), "admin changes")?;
        Ok(Self { changer, line })
    }
}

impl<H: Host> Changer<H> {
    fn change(&self, asked: ChangePoliciesRequest, identity: &str) -> Result<ChangePoliciesResponse, Status> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, dry_run) = (name_of(asked.change), asked.dry_run);
        let old: Vec<Definition> = self.host.policies().into_iter().map(|row| row.definition).collect();
        let changed = self.try_change(asked, &old);
        let (outcome, difference) = match &changed {
            Ok(_) if dry_run => ("possible".to_owned(), Difference::default()),
            Ok((new, _)) => ("applied".to_owned(), Difference::between(&old, new)),
            Err(refused) => (refused.message().to_owned(), Difference::default()),
        };
        let upgraded = changed.as_ref().map_or(&[][..], |(_, upgraded)| upgraded);
        let what = if dry_run { AuditedChange::Tried(name) } else { AuditedChange::Named(name) };
        self.audit.note(identity, what, &outcome, &difference, upgraded);
        let (new, upgraded) = changed?;
        let Difference { added, changed, removed } = Difference::between(&old, &new);
        let is_new = |policy: &&Definition| added.contains(&policy.name) || changed.contains(&policy.name);
        let warnings = Known::at(&self.host).warnings(new.iter().filter(is_new));
        let count = new.len() as u32;
        Ok(ChangePoliciesResponse { added, changed, removed, count, upgraded, warnings })
    }

    /// The chain after the change, which is at work now unless this was a dry run, and which modules were upgraded.
    fn try_change(
        &self,
        asked: ChangePoliciesRequest,
        old: &[Definition],
    ) -> Result<(Vec<Definition>, Vec<String>), Status> {
        let origin = if asked.origin.is_empty() { "the request" } else { asked.origin.as_str() };
        let wrong = |error: &dyn std::fmt::Display| Status::invalid_argument(error.to_string());
        let read = || Config::policies_from_toml(&asked.document, origin).map_err(|error| wrong(&error));
        let edit = match asked.change {
            PolicyChange::Apply => Edit::Apply(read()?),
            PolicyChange::Add => {
                let before = (!asked.before.is_empty()).then(|| asked.before.clone());
                Edit::Add(read()?, before)
            }
            PolicyChange::Set => Edit::Set(read()?),
            PolicyChange::Remove => Edit::Remove(asked.names.clone()),
            _ => return Err(wrong(&"the change is not one of apply, add, set, remove")),
        };
        let written = edit.written();
        let new = edit.of(old).map_err(|error| wrong(&error))?;
        let applied = self.host.edit_policies(&new, &written, asked.dry_run);
        let upgraded = applied.map_err(|error| match error {
            ChangeError::Policy(error) => wrong(&Config::policy_error(error, &asked.document, origin)),
            ChangeError::File(error) => Status::new(Code::FailedPrecondition, error.to_string()),
        })?;
        Ok((new, upgraded))
    }
}

impl<H: Host> Changer<H> {
    fn begin_upgrade(&self, asked: UpgradeRequest, identity: &str) -> Result<UpgradeResponse, Status> {
        /// As the field says.
        const GRACE_MS: u32 = 30_000;
        let binary = (!asked.binary.is_empty()).then(|| PathBuf::from(&asked.binary));
        let ms = if asked.grace_ms == 0 { GRACE_MS } else { asked.grace_ms };
        let wish =
            UpgradeWish { binary, grace: Duration::from_millis(ms.into()), identity: identity.to_owned() };
        let program = self.host.successor(wish.binary.as_deref());
        let begun = self.host.begin_upgrade(wish);
        let outcome = begun.as_ref().err().map_or("begun", String::as_str);
        let change = AuditedChange::Upgrade(&program);
        self.audit.note(identity, change, outcome, &Difference::default(), &[]);
        begun.map_err(|why| Status::new(Code::FailedPrecondition, why))?;
        Ok(UpgradeResponse { process_id: std::process::id() })
    }
}

impl<H: Host> Changer<H> {
    fn moves(
        &self,
        asked: &MoveApplicationRequest,
        identity: &str,
    ) -> Result<MoveApplicationResponse, Status> {
        let MoveApplicationRequest { application, shard } = asked;
        let moved = self.host.move_application(application, *shard as usize);
        let outcome = match &moved {
            Ok(moved) => format!("moved {moved} sessions of {application} to shard {shard}"),
            Err(why) => why.clone(),
        };
        self.audit.note(identity, AuditedChange::Named("move"), &outcome, &Difference::default(), &[]);
        let moved = moved.map_err(|why| Status::new(Code::FailedPrecondition, why))?;
        Ok(MoveApplicationResponse { moved: moved as u32 })
    }
}

impl<H: Host> Control for ControlService<H> {
    async fn upgrade(&self, request: Incoming<UpgradeRequest>) -> Result<Response<UpgradeResponse>, Status> {
        let identity = caller(request.metadata()).to_owned();
        self.changer.begin_upgrade(request.into_inner(), &identity).map(Response::new)
    }

    async fn move_application(
        &self,
        request: Incoming<MoveApplicationRequest>,
    ) -> Result<Response<MoveApplicationResponse>, Status> {
        let identity = request.metadata().text(CALLER).unwrap_or("unknown").to_owned();
        let (asked, user) = (request.into_inner(), identity.clone());
        self.line.ask(&user, move |changer| changer.moves(&asked, &identity)).await?.map(Response::new)
    }

    async fn change_policies(
        &self,
        request: Incoming<ChangePoliciesRequest>,
    ) -> Result<Response<ChangePoliciesResponse>, Status> {
        let identity = caller(request.metadata()).to_owned();
        let (asked, user) = (request.into_inner(), identity.clone());
        self.line.ask(&user, move |changer| changer.change(asked, &identity)).await?.map(Response::new)
    }
}

/// The chain as a message.
pub(super) fn listed(host: &impl Host) -> ListPoliciesResponse {
    let rows = host.policies();
    let at_work: Vec<Definition> = rows.iter().map(|row| row.definition.clone()).collect();
    let kept = host.policies_kept(&at_work);
    ListPoliciesResponse {
        policies: rows.into_iter().map(message).collect(),
        // What was read from TOML has a form in it.
        document: Config::policies_to_toml(&at_work).unwrap_or_default(),
        source: match kept.source {
            PoliciesSource::Configuration => PolicySource::Configuration,
            PoliciesSource::Changes => PolicySource::Changes,
            PoliciesSource::File => PolicySource::File,
        },
        policies_file: kept.file.map(|path| path.display().to_string()).unwrap_or_default(),
        set_aside: kept.set_aside,
    }
}

fn message(row: PolicyRow) -> Policy {
    let PolicyRow { definition, figures, module } = row;
    Policy {
        name: definition.name,
        kind: definition.kind.name().into(),
        side: definition.side.name().into(),
        application: definition.application.unwrap_or_default(),
        service: definition.service.unwrap_or_default(),
        method: definition.method.unwrap_or_default(),
        seen: figures.seen,
        refused: figures.refused,
        delayed: figures.delayed,
        errors: figures.errors,
        target: definition.target.unwrap_or_default(),
        mirrored: figures.mirrored,
        left_out: figures.left_out,
        failed: figures.failed,
        module: module
            .as_ref()
            .map(|module| format!("{} {}", module.name, module.version))
            .unwrap_or_default(),
        upgrades: module.as_ref().map_or(0, |module| module.upgrades),
        fault: module.and_then(|module| module.fault).unwrap_or_default(),
    }
}

fn name_of(change: PolicyChange) -> &'static str {
    match change {
        PolicyChange::Apply => "apply",
        PolicyChange::Add => "add",
        PolicyChange::Set => "set",
        PolicyChange::Remove => "remove",
        _ => "unknown",
    }
}
