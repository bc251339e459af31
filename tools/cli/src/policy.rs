//! `trunkline policy`: the chain shown, and changed while calls are in flight.

use crate::admin::proto::admin_client::AdminClient;
use crate::admin::proto::control_client::ControlClient;
use crate::admin::proto::{
    ChangePoliciesRequest, ChangePoliciesResponse, ListPoliciesRequest, ListPoliciesResponse, Policy,
    PolicyChange, PolicySource,
};
use crate::operator::{reason, refusal};
use crate::policy_args::{PolicyFileArgs, PolicyListArgs, PolicyVerb};
use crate::table::{Table, count};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use trunkline::{Channel, Wait};

/// No file of policies is read that is larger: a message for the daemon has to have room for it.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;

/// Does what the verb says.
///
/// # Errors
/// Words for the operator: the file that cannot be read, or what the daemon says.
pub fn policy(channel: &Channel, verb: PolicyVerb) -> Result<(), String> {
    let request = match verb {
        PolicyVerb::List(args) => return list(channel, &args),
        PolicyVerb::Add(args) => {
            let before = args.before.unwrap_or_default();
            ChangePoliciesRequest { before, ..of_file(PolicyChange::Add, &args.file, false)? }
        }
        PolicyVerb::Set(args) => of_file(PolicyChange::Set, &args, false)?,
        PolicyVerb::Apply(args) => of_file(PolicyChange::Apply, &args.file, args.empty)?,
        PolicyVerb::Remove(args) => ChangePoliciesRequest {
            change: PolicyChange::Remove,
            names: args.names,
            dry_run: args.dry_run,
            ..Default::default()
        },
    };
    let dry_run = request.dry_run;
    let client = ControlClient::new(channel.clone());
    let response = client.change_policies(request).wait().map_err(|status| reason(&status))?;
    let response = response.into_inner();
    response.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    print!("{}", told(&response, dry_run));
    Ok(())
}

fn of_file(
    change: PolicyChange,
    args: &PolicyFileArgs,
    may_be_empty: bool,
) -> Result<ChangePoliciesRequest, String> {
    let origin = args.file.display().to_string();
    let document = read(&args.file).map_err(|error| format!("cannot read {origin}: {error}"))?;
    // Nothing at all is what is left of a program that failed before a pipe: no wish to let everything through.
    if !may_be_empty && has_no_policy(&document) {
        let instead = match change {
            PolicyChange::Apply => "; to empty the chain, say --empty",
            _ => "",
        };
        return Err(format!("{origin} has no [[policy]] table: nothing has changed{instead}"));
    }
    Ok(ChangePoliciesRequest { change, document, origin, dry_run: args.dry_run, ..Default::default() })
}

/// Whether there is nothing in a document; what else is no policy is the daemon's to refuse, with its place.
fn has_no_policy(document: &str) -> bool {
    document.parse::<toml::Table>().is_ok_and(|table| {
        table.iter().all(|(key, value)| key == "policy" && value.as_array().is_some_and(Vec::is_empty))
    })
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let mut take = |input: &mut dyn Read| input.take(DOCUMENT_BYTES_MAX + 1).read_to_string(&mut text);
    match path == Path::new("-") {
        true => take(&mut std::io::stdin().lock())?,
        false => take(&mut std::fs::File::open(path)?)?,
    };
    if text.len() as u64 > DOCUMENT_BYTES_MAX {
        let problem = format!("it has more than {DOCUMENT_BYTES_MAX} bytes, the most that policies may have");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, problem));
    }
    Ok(text)
}

fn list(channel: &Channel, args: &PolicyListArgs) -> Result<(), String> {
    let client = AdminClient::new(channel.clone());
    let response = client.list_policies(ListPoliciesRequest::default()).wait();
    let list = response.map_err(|status| refusal(&status))?.into_inner();
    match (args.toml, args.json) {
        (true, _) => print!("{}", list.document),
        (_, true) => println!("{:#}", to_json(&list)),
        _ => print!("{}", render(&list)),
    }
    Ok(())
}

/// What a change amounted to.
fn told(response: &ChangePoliciesResponse, dry_run: bool) -> String {
    let mut out = String::new();
    let all = [("added", &response.added), ("changed", &response.changed), ("removed", &response.removed)];
    for (what, names) in all.into_iter().filter(|(_, names)| !names.is_empty()) {
        out.push_str(&format!("{what}: {}\n", names.join(", ")));
    }
    let upgrades = if dry_run { "would upgrade" } else { "upgraded" };
    response.upgraded.iter().for_each(|upgraded| out.push_str(&format!("{upgrades}: {upgraded}\n")));
    let policies = count(response.count.into(), "policy");
    match dry_run {
        true => out.push_str(&format!("a dry run: nothing has changed; the chain would have {policies}\n")),
        false => out.push_str(&format!("the chain has {policies}\n")),
    }
    out
}

fn render(list: &ListPoliciesResponse) -> String {
    if list.policies.is_empty() {
        return "no policies\n".to_owned() + &origin(list);
    }
    let heading = ["POLICY", "KIND", "SIDE", "APPLIES TO", "SEEN", "REFUSED", "DELAYED", "ERRORS"];
    let mut table = Table::new(&heading, &[4, 5, 6, 7]);
    for row in &list.policies {
        table.row([
            row.name.clone(),
            row.kind.clone(),
            row.side.clone(),
            scope(row),
            row.seen.to_string(),
            row.refused.to_string(),
            row.delayed.to_string(),
            row.errors.to_string(),
        ]);
    }
    let modules = list.policies.iter().filter(|row| !row.module.is_empty());
    let mirrors = list.policies.iter().filter(|row| !row.target.is_empty());
    let lines: String = modules.map(module).chain(mirrors.map(mirror)).collect();
    table.to_string() + &lines + &origin(list)
}

/// Where the chain comes from and what becomes of it, if that is not what everybody thinks.
fn origin(list: &ListPoliciesResponse) -> String {
    let (file, aside) = (&list.policies_file, &list.set_aside);
    match list.source {
        PolicySource::File if aside.is_empty() => format!("kept in {file}\n"),
        PolicySource::File => {
            let aside = aside.join(", ");
            format!(
                "kept in {file}, which counts before the configuration: not in force from there: {aside}\n"
            )
        }
        PolicySource::Configuration if !file.is_empty() => {
            format!("as the configuration says; changes will be kept in {file}\n")
        }
        PolicySource::Changes => {
            "changed at run time: lost when the daemon ends, for admin.policies_file is not set\n".into()
        }
        _ => String::new(),
    }
}

/// A line about what a mirror has sent.
fn mirror(row: &Policy) -> String {
    let Policy { name, target, mirrored, left_out, failed, .. } = row;
    format!("{name}: copies to {target}: {mirrored} sent, {failed} of them failed; {left_out} left out\n")
}

/// A line about a policy's module.
fn module(row: &Policy) -> String {
    let upgrades = match row.upgrades {
        0 => String::new(),
        1 => ", upgraded once".to_owned(),
        more => format!(", upgraded {more} times"),
    };
    let state = if row.fault.is_empty() { "at work".to_owned() } else { format!("EJECTED: {}", row.fault) };
    format!("{}: module {}{upgrades}, {state}\n", row.name, row.module)
}

fn scope(row: &Policy) -> String {
    let method = match (row.service.as_str(), row.method.as_str()) {
        ("", _) => "every method".to_owned(),
        (service, "") => format!("{service}/*"),
        (service, method) => format!("{service}/{method}"),
    };
    if row.application.is_empty() { method } else { format!("{method} of {}", row.application) }
}

fn to_json(list: &ListPoliciesResponse) -> Value {
    let row = |row: &Policy| {
        json!({
            "name": row.name, "kind": row.kind, "side": row.side, "application": row.application,
            "service": row.service, "method": row.method, "seen": row.seen, "refused": row.refused,
            "delayed": row.delayed, "errors": row.errors, "module": row.module, "upgrades": row.upgrades,
            "fault": row.fault, "target": row.target, "mirrored": row.mirrored, "leftOut": row.left_out,
            "failed": row.failed,
        })
    };
    let source = match list.source {
        PolicySource::File => "file",
        PolicySource::Changes => "changes",
        _ => "configuration",
    };
    json!({
        "policies": list.policies.iter().map(row).collect::<Vec<_>>(),
        "source": source, "policiesFile": list.policies_file, "setAside": list.set_aside,
    })
}
