//! The command line of `trunkline policy`, as types.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `trunkline policy`
#[derive(Debug, Subcommand)]
pub enum PolicyVerb {
    /// Show the chain in order, and what each policy has done
    List(PolicyListArgs),
    /// Add the policies of a file to the chain
    Add(PolicyAddArgs),
    /// Replace policies by those of a file that have their names
    Set(PolicyFileArgs),
    /// Take policies out of the chain
    Remove(PolicyRemoveArgs),
    /// Replace the whole chain by the policies of a file
    Apply(PolicyApplyArgs),
}

/// `trunkline policy list`
#[derive(Debug, Args)]
pub struct PolicyListArgs {
    /// As a file that `apply` takes
    #[arg(long)]
    pub toml: bool,
    /// As JSON
    #[arg(long, conflicts_with = "toml")]
    pub json: bool,
}

/// `trunkline policy add`
#[derive(Debug, Args)]
pub struct PolicyAddArgs {
    /// The file, and whether to change anything
    #[command(flatten)]
    pub file: PolicyFileArgs,
    /// Put them before this policy [default: at the end]
    #[arg(long, value_name = "NAME")]
    pub before: Option<String>,
}

/// `trunkline policy set`
#[derive(Debug, Args)]
pub struct PolicyFileArgs {
    /// File of [[policy]] tables; `-` reads standard input
    pub file: PathBuf,
    /// Only say whether it could be done
    #[arg(long)]
    pub dry_run: bool,
}

/// `trunkline policy remove`
#[derive(Debug, Args)]
pub struct PolicyRemoveArgs {
    /// Names of policies
    #[arg(required = true)]
    pub names: Vec<String>,
    /// Only say whether it could be done
    #[arg(long)]
    pub dry_run: bool,
}

/// `trunkline policy apply`
#[derive(Debug, Args)]
pub struct PolicyApplyArgs {
    /// The file, and whether to change anything
    #[command(flatten)]
    pub file: PolicyFileArgs,
    /// Take a file without policies, too: the chain is empty then, and lets everything through
    #[arg(long)]
    pub empty: bool,
}
