//! `[samples]` and `[[sample]]`: calls that are kept with their messages, to be sent again.

use super::Bytes;
use super::error::{Breach, breach};
use super::rules::within;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use trunkline_engine::{SampleRule, is_own_service};
use trunkline_message::Redaction;

/// `[samples]`: where calls go that are kept with their messages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SampleFile {
    /// The file, which only the daemon's user may read. Empty: no call is kept.
    pub file: PathBuf,
    /// Its size at which it becomes `FILE.1`, in place of the one before, and another is begun.
    pub file_bytes_max: Bytes,
}

/// `[[sample]]`: calls of a service that are kept. The first table that names a method decides.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SampledCalls {
    /// Full name of the service.
    pub service: String,
    /// Its methods, by name. Empty: all of them.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Calls a second, at most, over all shards.
    #[serde(default = "one")]
    pub per_second: f64,
    /// A call with a longer request is not kept; of one with a longer response that is left out.
    #[serde(default = "usual_bytes")]
    pub message_bytes_max: Bytes,
    /// Fields that are emptied before anything is kept: `password`, `Card.number`, `shop.v1.Card.number`.
    #[serde(default)]
    pub redact: Vec<String>,
}

fn one() -> f64 {
    1.0
}

fn usual_bytes() -> Bytes {
    Bytes(16 << 10)
}

const PER_SECOND_MAX: f64 = 1000.0;
/// A daemon holds 64 calls of two such messages for the disk.
const MESSAGE_BYTES_MAX: u64 = 256 << 10;
const FILE_BYTES: [u64; 2] = [1 << 20, 1 << 40];
/// Each call that begins is held against the tables, one by one.
const TABLES_MAX: usize = 64;
const NAMES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 512;

impl Default for SampleFile {
    fn default() -> Self {
        Self { file: PathBuf::new(), file_bytes_max: Bytes(64 << 20) }
    }
}

impl SampleFile {
    pub(super) fn check(&self, tables: &[SampledCalls]) -> Result<(), Breach> {
        let Self { file, file_bytes_max: Bytes(bytes) } = self;
        if !(FILE_BYTES[0]..=FILE_BYTES[1]).contains(bytes) {
            let advice = format!("write a size from {} to {}", Bytes(FILE_BYTES[0]), Bytes(FILE_BYTES[1]));
            return Err(breach("samples.file_bytes_max", format!("is {}", Bytes(*bytes)), &advice));
        }
        if !file.as_os_str().is_empty() && !file.is_absolute() {
            let advice = "write its path from the root, such as \"/var/lib/trunkline/samples\"";
            return Err(breach("samples.file", format!("is {:?}", file.display().to_string()), advice));
        }
        if file.as_os_str().is_empty() && !tables.is_empty() {
            let advice = "name the file that the calls of [[sample]] go to, or leave those tables out";
            return Err(breach("samples.file", "is empty".into(), advice));
        }
        if tables.len() > TABLES_MAX {
            let advice = format!("write at most {TABLES_MAX}");
            return Err(breach("sample", format!("has {} tables", tables.len()), &advice));
        }
        tables.iter().enumerate().try_for_each(|(index, table)| table.check(index))
    }
}

impl SampledCalls {
    fn check(&self, index: usize) -> Result<(), Breach> {
        let key = |name: &str| format!("sample[{index}].{name}");
        let Self { service, methods, per_second, message_bytes_max, redact } = self;
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= NAME_BYTES_MAX
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte))
                && name.split('.').all(|part| !part.is_empty())
        };
        if !is_name(service) || is_own_service(service) {
            let advice = "write the full name of one service, such as \"search.v1.Search\"";
            return Err(breach(&key("service"), format!("is {service:.80?}"), advice));
        }
        for (name, names) in [("methods", methods), ("redact", redact)] {
            let key = key(name);
            if names.len() > NAMES_MAX {
                let advice = format!("write at most {NAMES_MAX}");
                return Err(breach(&key, format!("has {} names", names.len()), &advice));
            }
            if let Some(name) = names.iter().find(|name| !is_name(name)) {
                let advice = "write names as they stand in the .proto file";
                return Err(breach(&key, format!("has {name:.80?}"), advice));
            }
        }
        if !(*per_second > 0.0 && *per_second <= PER_SECOND_MAX) {
            let advice = format!("write a number above 0, up to {PER_SECOND_MAX}");
            return Err(breach(&key("per_second"), format!("is {per_second}"), &advice));
        }
        within(&key("message_bytes_max"), message_bytes_max.0, 1, MESSAGE_BYTES_MAX)
    }

    /// As an engine has it.
    pub(crate) fn rule(&self) -> SampleRule {
        SampleRule {
            service: self.service.clone(),
            methods: self.methods.clone(),
            per_second: self.per_second,
            message_bytes_max: self.message_bytes_max.as_u32(),
            redaction: Arc::new(Redaction::new(self.redact.iter().cloned())),
        }
    }
}
