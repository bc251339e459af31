//! The states of all modules of a chain as bytes, for a daemon that takes over from another.
//!
//! `TLMS`, u32 version (1), u32 count, then per module: u16 length and the policy's name, u16 length and the module's
//! name, u32 format of the state, u32 length and the state. Little endian, nothing behind. The reader believes nothing.

use crate::module::ModuleState;
use crate::policy_set::POLICIES_MAX;

/// State one module may export.
pub const MODULE_STATE_BYTES_MAX: usize = 16 * 1024 * 1024;

const MAGIC: &[u8; 4] = b"TLMS";
const VERSION: u32 = 1;
/// Of a policy and of a module.
const NAME_BYTES_MAX: usize = 64;

/// The state of one policy's module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedModule {
    /// The policy.
    pub policy: String,
    /// The module.
    pub module: String,
    /// What it exported.
    pub state: ModuleState,
}

/// Bytes that are no states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// They do not begin as they must.
    #[error("these are no states of modules, or of another version")]
    Version,
    /// They end early, or too late.
    #[error("states of modules end early, or something stands behind them")]
    Length,
    /// A name is longer than names are, empty, or no text.
    #[error("states of modules have a name that is none")]
    Name,
    /// A limit.
    #[error("states of modules: more than {limit} {name}")]
    Limit {
        /// Which.
        name: &'static str,
        /// Its value.
        limit: usize,
    },
}

/// States as bytes.
pub fn encode_modules(modules: &[ExportedModule]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(modules.len() as u32).to_le_bytes());
    for ExportedModule { policy, module, state } in modules {
        for name in [policy, module] {
            out.extend_from_slice(&(name.len() as u16).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        out.extend_from_slice(&state.format.to_le_bytes());
        out.extend_from_slice(&(state.bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(&state.bytes);
    }
    out
}

/// Bytes as states.
///
/// # Errors
/// [`BundleError`].
pub fn decode_modules(bytes: &[u8]) -> Result<Vec<ExportedModule>, BundleError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(BundleError::Version)?;
    let (version, rest) = u32_of(rest)?;
    if version != VERSION {
        return Err(BundleError::Version);
    }
    let (count, mut rest) = u32_of(rest)?;
    if count as usize > POLICIES_MAX {
        return Err(BundleError::Limit { name: "modules", limit: POLICIES_MAX });
    }
    let mut modules = Vec::new();
    for _ in 0..count {
        let (policy, after) = name_of(rest)?;
        let (module, after) = name_of(after)?;
        let (format, after) = u32_of(after)?;
        let (len, after) = u32_of(after)?;
        if len as usize > MODULE_STATE_BYTES_MAX {
            return Err(BundleError::Limit { name: "bytes of one state", limit: MODULE_STATE_BYTES_MAX });
        }
        let (state, after) = after.split_at_checked(len as usize).ok_or(BundleError::Length)?;
        modules.push(ExportedModule { policy, module, state: ModuleState { format, bytes: state.to_vec() } });
        rest = after;
    }
    if rest.is_empty() { Ok(modules) } else { Err(BundleError::Length) }
}

fn u32_of(bytes: &[u8]) -> Result<(u32, &[u8]), BundleError> {
    let (number, rest) = bytes.split_first_chunk().ok_or(BundleError::Length)?;
    Ok((u32::from_le_bytes(*number), rest))
}

fn name_of(bytes: &[u8]) -> Result<(String, &[u8]), BundleError> {
    let (len, rest) = bytes.split_first_chunk().ok_or(BundleError::Length)?;
    let len = usize::from(u16::from_le_bytes(*len));
    let (name, rest) = rest.split_at_checked(len).ok_or(BundleError::Length)?;
    let name = std::str::from_utf8(name).map_err(|_| BundleError::Name)?;
    let sound = (1..=NAME_BYTES_MAX).contains(&len) && !name.contains(char::is_control);
    if sound { Ok((name.to_owned(), rest)) } else { Err(BundleError::Name) }
}

#[cfg(test)]
mod tests {
    //! Shows that states survive, that half of them are none, and that any bytes are read or refused.
    use super::*;
    use proptest::prelude::*;

    fn some() -> impl Strategy<Value = Vec<ExportedModule>> {
        let one = ("[a-z]{1,64}", "[a-zä]{1,9}", any::<u32>(), prop::collection::vec(any::<u8>(), 0..99));
        let one = one.prop_map(|(policy, module, format, bytes)| ExportedModule {
            policy,
            module,
            state: ModuleState { format, bytes },
        });
        prop::collection::vec(one, 0..5)
    }

    proptest! {
        #[test]
        fn states_survive_and_half_of_them_are_none(modules in some(), cut in any::<prop::sample::Index>()) {
            let bytes = encode_modules(&modules);
            prop_assert_eq!(decode_modules(&bytes), Ok(modules));
            prop_assert!(decode_modules(&bytes[..cut.index(bytes.len())]).is_err());
            prop_assert_eq!(decode_modules(&[&bytes[..], &[0]].concat()), Err(BundleError::Length));
        }

        #[test]
        fn any_bytes_are_read_or_refused(at in 0..40usize, noise in prop::collection::vec(any::<u8>(), 0..40)) {
            let state = ModuleState { format: 1, bytes: vec![7; 9] };
            let module = ExportedModule { policy: "limit".into(), module: "bucket".into(), state };
            let mut bytes = encode_modules(&[module]);
            for (place, byte) in bytes.iter_mut().skip(at).zip(&noise) {
                *place = *byte;
            }
            let _ = decode_modules(&bytes);
            let _ = decode_modules(&noise);
        }
    }

    #[test]
    fn limits_are_named() {
        let count = [&MAGIC[..], &1u32.to_le_bytes(), &257u32.to_le_bytes()].concat();
        assert_eq!(
            decode_modules(&count).unwrap_err().to_string(),
            "states of modules: more than 256 modules"
        );
        let mut long = [&MAGIC[..], &1u32.to_le_bytes(), &1u32.to_le_bytes()].concat();
        long.extend([1, 0, b'p', 1, 0, b'm', 0, 0, 0, 0, 1, 0, 0, 1]);
        assert!(matches!(decode_modules(&long), Err(BundleError::Limit { name: "bytes of one state", .. })));
    }
}
