//! TLS under a [`Stream`](crate::Stream): keys and certificates from files, sessions without I/O of their own.
//!
//! [`TlsServer`] and [`TlsClient`] are loaded from files and never change; when a file does, [`TlsWatch`] says so and
//! they are loaded anew: connections made from then on use the new ones. `session.rs` is what a stream holds.
//!
//! A session of TLS 1.3 can go on in another process: `portable.rs` has what that one needs, `records.rs` makes records
//! without the library's state.
//!
//! TLS 1.2 and 1.3, the cipher suites of rustls over aws-lc-rs or ring (`provider.rs`). A server asks for ALPN and
//! takes `trunkline` or `h2`; a client offers the one it is about to speak.

mod alpn;
mod files;
mod identity;
mod portable;
mod provider;
mod records;
mod session;
mod validity;

pub use alpn::Alpn;
pub use files::{
    ClientFiles, ServerFiles, TlsClient, TlsError, TlsServer, TlsVersion, TlsVersions, TlsWatch,
};
pub use identity::Identity;
pub use portable::{Keys, Portable};
pub use records::Records;
pub(crate) use session::{Session, Socket};
pub use validity::Validity;
