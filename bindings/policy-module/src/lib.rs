//! Policy modules in Rust: implement [`Policy`], export it with [`export!`], build a `cdylib`.
//!
//! A policy module decides about calls inside a Trunkline daemon. It is loaded, configured, upgraded and unloaded while
//! calls are in flight; docs/modules.md tells how. This crate is the module's side of the C ABI in
//! `trunkline-module-abi`: it turns tables, slices and codes into types, and back. It knows nothing of the daemon's
//! side.
//!
//! ```
//! use trunkline_policy_module::{Call, Code, Config, Field, Policy, Verdict, Wants};
//!
//! /// Refuses calls for one tenant.
//! struct Tenant {
//!     closed: String,
//!     tenant: Field,
//! }
//!
//! impl Policy for Tenant {
//!     const NAME: &'static str = "tenant";
//!     const VERSION: &'static str = "1";
//!
//!     fn create(config: &Config<'_>, wants: &mut Wants) -> Result<Self, String> {
//!         let closed = config.text("closed").ok_or("closed is missing: the tenant nobody may call for")?;
//!         Ok(Self { closed: closed.to_owned(), tenant: wants.text("request.tenant") })
//!     }
//!
//!     fn decide(&mut self, call: &Call<'_>) -> Verdict {
//!         match call.text(self.tenant) {
//!             Some(tenant) if tenant == self.closed => Verdict::deny(Code::PermissionDenied, "closed"),
//!             _ => Verdict::pass(),
//!         }
//!     }
//! }
//!
//! trunkline_policy_module::export!(Tenant);
//! ```
//!
//! In `Cargo.toml`: `[lib] crate-type = ["cdylib"]`. Panics are caught and told to the daemon with their place, which
//! ejects the module; so `panic = "abort"` is refused at compile time.
//!
//! # Invariants
//! * Every callback the daemon calls catches panics; none unwinds into the daemon.
//! * Nothing borrowed from a call outlives the callback: the types say so.
//! * The instance is made by `create` and taken apart by `destroy`, in a box of this crate's, and by nobody else.

mod call;
mod config;
mod lent;
mod panics;
mod policy;
mod surface;
mod verdict;
mod wants;

pub use call::{Call, End, Side};
pub use config::{Config, Setting};
pub use policy::{Policy, State};
pub use surface::{Exported, table};
pub use verdict::{Code, Verdict};
pub use wants::{Field, Wants};

/// Exports a type that implements [`Policy`] as the module of this shared object. Once per `cdylib`.
#[macro_export]
macro_rules! export {
    ($policy:ty) => {
        #[cfg(panic = "abort")]
        compile_error!("a policy module must not abort the daemon: build it with panic = \"unwind\"");

        /// What a daemon reads first.
        #[unsafe(no_mangle)]
        pub static TRUNKLINE_POLICY_MODULE: $crate::Exported = $crate::table::<$policy>();
    };
}
