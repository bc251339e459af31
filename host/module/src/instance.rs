//! An instance of a module: made, asked, told, and taken apart again.

use crate::answer;
use crate::library::Library;
use crate::room::{Added, Exported, Room, add_metadata, borrowed, write_state};
use crate::table::Callbacks;
use std::ffi::c_void;
use std::mem::size_of;
use std::ptr::{from_mut, from_ref, null, null_mut};
use std::sync::Arc;
use trunkline_call::{Metadata, MetadataPairs};
use trunkline_module_abi as abi;
use trunkline_policy::{
    FieldValue, MODULE_FIELDS_MAX, MODULE_STATE_BYTES_MAX, Module, ModuleAnswer, ModuleCall, ModuleEnd,
    ModuleError, ModuleField, ModuleInfo, ModuleState, SettingValue, Side, ValueKind,
};

// The chain and the ABI name the same limits, each for its own readers.
const _: () = assert!(MODULE_FIELDS_MAX == abi::FIELDS_MAX && MODULE_STATE_BYTES_MAX == abi::STATE_BYTES_MAX);

/// An instance. While it lives its library is loaded.
#[derive(Debug)]
pub(crate) struct Instance {
    about: ModuleInfo,
    callbacks: Callbacks,
    raw: *mut c_void,
    wants_metadata: bool,
    /// Room for words to callers, and for words to operators.
    message: Room,
    words: Room,
    /// Keeps the code mapped. The last field, so the last to be dropped.
    _library: Arc<Library>,
}

// SAFETY: the ABI demands that callbacks may be called from any thread, one at a time; `raw` is handed to them and to
// nobody else, and `&Instance` alone only lets `export` be called, which the chain's owner does.
unsafe impl Send for Instance {}

impl Instance {
    /// Makes an instance for a policy.
    pub fn create(
        library: Arc<Library>,
        policy: &str,
        settings: &[(String, SettingValue)],
    ) -> Result<Self, ModuleError> {
        let callbacks = library.callbacks.clone();
        let pairs: Vec<abi::Pair> = settings.iter().map(pair).collect();
        let config = abi::Config {
            struct_bytes: size_of::<abi::Config>() as u32,
            pairs_count: pairs.len() as u32,
            pairs: pairs.as_ptr(),
            policy: abi::Slice::of(policy.as_bytes()),
        };
        let mut created = abi::Created {
            struct_bytes: size_of::<abi::Created>() as u32,
            wants: 0,
            instance: null_mut(),
            fields: null(),
            fields_count: 0,
            reserved: 0,
        };
        let mut room = Room::new();
        let mut words = room.lend();
        // SAFETY: the pointers are to values of the ABI's types that live until it returns; the library is loaded.
        let returned = unsafe { (callbacks.create)(&config, &mut created, &mut words) };
        let label = format!("{} {}", callbacks.name, callbacks.version);
        match returned {
            abi::DONE => {}
            abi::REFUSED => {
                let problem = format!("{label} refuses its configuration: {}", room.shown(&words));
                return Err(ModuleError::of_config(problem, ""));
            }
            other => {
                return Err(ModuleError::of_path(fault(&label, "create", other, &room.shown(&words)), ""));
            }
        }
        let mut instance = Self {
            about: about(&library),
            callbacks,
            raw: created.instance,
            wants_metadata: created.wants & abi::WANTS_METADATA != 0,
            message: Room::new(),
            words: room,
            _library: library,
        };
        instance.about.wants_end = created.wants & abi::WANTS_END != 0 && instance.callbacks.finish.is_some();
        // SAFETY: the module vouches for the fields it asks for until `destroy`, which is not before `instance` drops.
        instance.about.fields = unsafe { fields(&label, &created) }?;
        Ok(instance)
    }

    fn fault(&self, callback: &str, returned: i32, words: &abi::Words) -> ModuleError {
        let label = self.about.label();
        ModuleError::of_path(fault(&label, callback, returned, &self.words.shown(words)), "")
    }

    /// What came of a callback that may refuse.
    fn done(&self, callback: &str, returned: i32, words: &abi::Words) -> Result<(), ModuleError> {
        match returned {
            abi::DONE => Ok(()),
            abi::REFUSED => Err(ModuleError::of_path(self.words.shown(words), "")),
            other => Err(self.fault(callback, other, words)),
        }
    }
}

impl Module for Instance {
    fn about(&self) -> &ModuleInfo {
        &self.about
    }

    fn decide(&mut self, call: &ModuleCall<'_>) -> Result<ModuleAnswer, ModuleError> {
        let mut values = [abi::Value::NONE; MODULE_FIELDS_MAX];
        for (raw, value) in values.iter_mut().zip(call.values) {
            *raw = value_of(value);
        }
        let metadata = if self.wants_metadata { metadata_of(call.metadata) } else { Vec::new() };
        let raw_call = raw_call(call, &metadata, &values);
        let mut added = Added::default();
        let mut words = self.words.lend();
        let mut raw_answer = abi::Answer {
            struct_bytes: size_of::<abi::Answer>() as u32,
            verdict: abi::VERDICT_PASS,
            code: 0,
            reserved: 0,
            token: 0,
            message: self.message.lend(),
            context: from_mut(&mut added).cast(),
            add_metadata: Some(add_metadata),
        };
        // SAFETY: the pointers are to values of the ABI's types that live until it returns; the library is loaded, and
        // `&mut self` keeps other callbacks out.
        let returned = unsafe { (self.callbacks.decide)(self.raw, &raw_call, &mut raw_answer, &mut words) };
        if returned != abi::DONE {
            return Err(self.fault("decide", returned, &words));
        }
        answer::checked(&raw_answer, &self.message, added)
            .map_err(|problem| ModuleError::of_path(format!("{}: {problem}", self.about.label()), ""))
    }

    fn finish(&mut self, end: &ModuleEnd) -> Result<(), ModuleError> {
        let Some(finish) = self.callbacks.finish else { return Ok(()) };
        let end = abi::End {
            struct_bytes: size_of::<abi::End>() as u32,
            code: end.code.number().into(),
            now_ns: end.now.0,
            elapsed_ns: end.elapsed_ns,
            token: end.token,
        };
        let mut words = self.words.lend();
        // SAFETY: as in `decide`.
        let returned = unsafe { finish(self.raw, &end, &mut words) };
        if returned == abi::DONE { Ok(()) } else { Err(self.fault("finish", returned, &words)) }
    }

    fn export(&self) -> Result<ModuleState, ModuleError> {
        let Some(export) = self.callbacks.export else { return Ok(ModuleState::default()) };
        let mut exported = Exported::default();
        let sink = abi::Sink {
            struct_bytes: size_of::<abi::Sink>() as u32,
            reserved: 0,
            context: from_mut(&mut exported).cast(),
            write: Some(write_state),
        };
        let mut room = Room::new();
        let mut words = room.lend();
        // SAFETY: the pointers are to values of the ABI's types that live until it returns; the library is loaded.
        // Nobody else calls this instance meanwhile: it is not `Sync`, and the ABI lets `export` only look.
        let returned = unsafe { export(self.raw, &sink, &mut words) };
        if exported.overflowed {
            let problem = format!("it exports more than {} bytes of state", abi::STATE_BYTES_MAX);
            return Err(ModuleError::of_path(problem, ""));
        }
        match returned {
            abi::DONE => Ok(ModuleState { format: self.callbacks.state_format, bytes: exported.bytes }),
            other => Err(ModuleError::of_path(
                fault(&self.about.label(), "export", other, &room.shown(&words)),
                "",
            )),
        }
    }

    fn import(&mut self, state: &ModuleState) -> Result<(), ModuleError> {
        let Some(import) = self.callbacks.import else { return Ok(()) };
        let raw_state = abi::State {
            struct_bytes: size_of::<abi::State>() as u32,
            format: state.format,
            bytes: abi::Slice::of(&state.bytes),
        };
        let mut words = self.words.lend();
        // SAFETY: as in `decide`.
        let returned = unsafe { import(self.raw, &raw_state, &mut words) };
        self.done("import", returned, &words)
    }

    fn eject(self: Box<Self>) {
        // Neither `destroy` nor unloading: who knows what it has left behind. One instance per fault is lost so.
        std::mem::forget(self);
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: `raw` is what `create` made, this is the last use of it, and the library is unloaded afterwards.
        unsafe { (self.callbacks.destroy)(self.raw) };
    }
}

fn about(library: &Library) -> ModuleInfo {
    ModuleInfo {
        name: library.callbacks.name.clone(),
        version: library.callbacks.version.clone(),
        digest: library.digest,
        keeps_state: library.callbacks.export.is_some(),
        takes_state: library.callbacks.import.is_some(),
        ..ModuleInfo::default()
    }
}

/// What an instance asks for.
///
/// # Safety
/// The fields and their expressions are readable, as the ABI demands of what `create` returns.
unsafe fn fields(label: &str, created: &abi::Created) -> Result<Vec<ModuleField>, ModuleError> {
    let count = created.fields_count as usize;
    if count > abi::FIELDS_MAX || count > 0 && created.fields.is_null() {
        let problem = format!("{label} asks for {count} fields, and a module may see {}", abi::FIELDS_MAX);
        return Err(ModuleError::of_path(problem, ""));
    }
    let mut fields = Vec::with_capacity(count);
    for index in 0..count {
        // SAFETY: the caller vouches for `fields_count` of them.
        let place = unsafe { created.fields.add(index) };
        // SAFETY: as above; a module's compiler aligned it, and nothing here relies on that.
        let raw = unsafe { place.read_unaligned() };
        // SAFETY: the caller vouches for the expression, too.
        let expression = String::from_utf8_lossy(unsafe { borrowed(&raw.expression) }).into_owned();
        let Some(kind) = kind_of(raw.kind) else {
            let problem = format!("{label} wants {expression:?} as kind {}, and kinds are 1 to 6", raw.kind);
            return Err(ModuleError::of_path(problem, ""));
        };
        fields.push(ModuleField { expression, kind, optional: raw.flags & abi::FIELD_OPTIONAL != 0 });
    }
    Ok(fields)
}

fn kind_of(kind: u32) -> Option<ValueKind> {
    Some(match kind {
        abi::KIND_BOOL => ValueKind::Bool,
        abi::KIND_INT => ValueKind::Int,
        abi::KIND_UINT => ValueKind::Uint,
        abi::KIND_DOUBLE => ValueKind::Double,
        abi::KIND_TEXT => ValueKind::Text,
        abi::KIND_BYTES => ValueKind::Bytes,
        _ => return None,
    })
}

fn pair((key, value): &(String, SettingValue)) -> abi::Pair {
    let value = match value {
        SettingValue::Bool(value) => abi::Value::number(abi::KIND_BOOL, u64::from(*value)),
        SettingValue::Int(value) => abi::Value::number(abi::KIND_INT, value.cast_unsigned()),
        SettingValue::Double(value) => abi::Value::number(abi::KIND_DOUBLE, value.to_bits()),
        SettingValue::Text(text) => abi::Value::bytes(abi::KIND_TEXT, text.as_bytes()),
    };
    abi::Pair { key: abi::Slice::of(key.as_bytes()), value }
}

fn value_of(value: &FieldValue<'_>) -> abi::Value {
    match value {
        FieldValue::None => abi::Value::NONE,
        FieldValue::Bool(value) => abi::Value::number(abi::KIND_BOOL, u64::from(*value)),
        FieldValue::Int(value) => abi::Value::number(abi::KIND_INT, value.cast_unsigned()),
        FieldValue::Uint(value) => abi::Value::number(abi::KIND_UINT, *value),
        FieldValue::Double(value) => abi::Value::number(abi::KIND_DOUBLE, value.to_bits()),
        FieldValue::Text(text) => abi::Value::bytes(abi::KIND_TEXT, text),
        FieldValue::Bytes(bytes) => abi::Value::bytes(abi::KIND_BYTES, bytes),
    }
}

/// The pairs of an encoded form, at most as many as there may be.
fn metadata_of(encoded: &[u8]) -> Vec<abi::MetadataPair> {
    let pairs = MetadataPairs::new(encoded).take(Metadata::PAIRS_MAX);
    pairs
        .map(|(key, value)| abi::MetadataPair { key: abi::Slice::of(key), value: abi::Slice::of(value) })
        .collect()
}

fn raw_call(call: &ModuleCall<'_>, metadata: &[abi::MetadataPair], values: &[abi::Value]) -> abi::Call {
    abi::Call {
        struct_bytes: size_of::<abi::Call>() as u32,
        side: match call.side {
            Side::Client => abi::SIDE_CLIENT,
            Side::Server => abi::SIDE_SERVER,
        },
        flags: if call.client_streams { abi::CALL_STREAMS } else { 0 },
        metadata_count: metadata.len() as u32,
        values_count: call.values.len() as u32,
        reserved: 0,
        now_ns: call.now.0,
        deadline_ns: call.deadline.instant().map_or(abi::NO_DEADLINE, |at| at.0),
        request_bytes: call.request_bytes,
        path: abi::Slice::of(call.path.as_bytes()),
        application: abi::Slice::of(call.application.as_bytes()),
        peer_identity: abi::Slice::of(call.peer_identity.as_bytes()),
        peer_address: abi::Slice::of(call.peer_address.as_bytes()),
        metadata: from_ref(metadata).cast(),
        values: from_ref(values).cast(),
    }
}

fn fault(label: &str, callback: &str, returned: i32, words: &str) -> String {
    match returned {
        abi::FAULT => format!("{label} failed in {callback}: {words}"),
        other => format!("{label} returned {other} from {callback}: {words}"),
    }
}
