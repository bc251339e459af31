//! Who does the cryptography: one provider for every session of this process, chosen by a feature of the crate.

#[cfg(feature = "aws-lc")]
use rustls::crypto::aws_lc_rs as provider;
#[cfg(all(feature = "ring", not(feature = "aws-lc")))]
use rustls::crypto::ring as provider;

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, LazyLock};

#[cfg(not(any(feature = "aws-lc", feature = "ring")))]
compile_error!("TLS needs a provider of cryptography: choose the feature `aws-lc` (the default) or `ring`");

/// The provider.
pub(super) static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(provider::default_provider()));
