//! TLS under a [`Stream`](crate::Stream): keys and certificates, and sessions without I/O of their own.
//!
//! [`TlsServer`] and [`TlsClient`] (`keys.rs`) are loaded from files (`files.rs`) or made of what the SPIFFE Workload
//! API tells (`svid.rs`), and never change; when a file does, [`TlsWatch`] says so and they are loaded anew:
//! connections made from then on use the new ones. `verify.rs` says who is believed, `session.rs` is what a stream
//! holds.
//!
//! A session of TLS 1.3 can go on in another process: `portable.rs` has what that one needs, `records.rs` makes records
//! without the library's state.
//!
//! TLS 1.2 and 1.3, the cipher suites of rustls over aws-lc-rs or ring (`provider.rs`). A server asks for ALPN and
//! takes `trunkline` or `h2`; a client offers the one it is about to speak.

mod alpn;
mod der;
mod files;
mod identity;
mod keys;
mod portable;
mod provider;
mod records;
mod session;
mod svid;
mod validity;
mod verify;

pub use alpn::Alpn;
pub use files::{ClientFiles, ServerFiles, TLS_FILE_BYTES_MAX, TlsError, TlsWatch};
pub use identity::Identity;
pub(crate) use identity::is_spiffe_id;
pub use keys::{TlsClient, TlsServer, TlsVersion, TlsVersions};
pub use portable::{Keys, Portable};
pub use records::Records;
pub(crate) use session::{Session, Socket};
pub use svid::Svid;
pub use validity::Validity;
