//! The schema: all types and services of one descriptor set.

use std::sync::OnceLock;

use crate::build;
use crate::error::{Place, SchemaError};
use crate::fingerprint::FingerprintWalk;
use crate::kind::{Enum, EnumIndex, MessageIndex};
use crate::limits::FINGERPRINT_FIELDS_MAX;
use crate::message::Message;
use crate::service::{Method, Service, ServiceIndex};

/// A message without fields: itself, its tables for both directions, its place in the indexes.
const MESSAGE_BYTES: usize = 600;
/// A field: itself, its slot, and its entries in the tables.
const FIELD_BYTES: usize = 260;
const ONEOF_BYTES: usize = 160;
const ENUM_BYTES: usize = 200;
const ENUM_VALUE_BYTES: usize = 70;
const SERVICE_BYTES: usize = 120;
const METHOD_BYTES: usize = 160;

/// Every message, enum and service of one descriptor set, resolved. Immutable; share it by `Arc`.
///
/// ```
/// let schema = trunkline_schema::Schema::from_proto_source(
///     "greeter.proto",
///     r#"syntax = "proto3"; package greeter;
///        message Hello { string name = 1; int32 times = 2; }
///        service Greeter { rpc Say(Hello) returns (Hello); }"#,
/// )?;
/// let hello = schema.message(schema.message_named("greeter.Hello").unwrap());
/// assert_eq!(hello.layout.block_bytes, 24); // unknown, presence, {offset, length}, int32, padding
/// assert_eq!(schema.method("greeter.Greeter", "Say").unwrap().path, "/greeter.Greeter/Say");
/// # Ok::<(), trunkline_schema::SchemaError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Schema {
    messages: Vec<Message>,
    enums: Vec<Enum>,
    services: Vec<Service>,
    service_index: ServiceIndex,
    /// Message positions ordered by full name.
    by_name: Vec<MessageIndex>,
    /// Enum positions ordered by full name.
    enums_by_name: Vec<EnumIndex>,
    /// Computed when first asked for: only the roots of methods need one, and one walks all it reaches.
    fingerprints: Vec<OnceLock<u64>>,
    descriptor_set: Vec<u8>,
}

impl Schema {
    /// Reads an encoded `FileDescriptorSet` that need not be trusted. Files may come in any order; imports that no
    /// field or method uses may be missing.
    ///
    /// # Errors
    /// [`SchemaError`] naming the file, message and field at fault.
    pub fn from_descriptor_set(bytes: &[u8]) -> Result<Self, SchemaError> {
        let resolved = build::resolve(bytes)?;
        let mut by_name: Vec<_> = (0..resolved.messages.len() as u32).map(MessageIndex).collect();
        by_name.sort_unstable_by_key(|i| resolved.messages.get(i.0 as usize).map(|m| m.full_name.as_str()));
        let mut enums_by_name: Vec<_> = (0..resolved.enums.len() as u32).map(EnumIndex).collect();
        enums_by_name
            .sort_unstable_by_key(|i| resolved.enums.get(i.0 as usize).map(|of| of.full_name.as_str()));
        Ok(Self {
            fingerprints: vec![OnceLock::new(); resolved.messages.len()],
            messages: resolved.messages,
            enums: resolved.enums,
            service_index: ServiceIndex::new(&resolved.services),
            services: resolved.services,
            by_name,
            enums_by_name,
            descriptor_set: bytes.to_vec(),
        })
    }

    /// Compiles `.proto` files with everything they import. Reads the file system.
    ///
    /// # Errors
    /// [`SchemaError::Compile`] with the compiler's words, or as [`Schema::from_descriptor_set`].
    #[cfg(feature = "protox")]
    pub fn from_proto_files(
        files: &[impl AsRef<std::path::Path>],
        includes: &[impl AsRef<std::path::Path>],
    ) -> Result<Self, SchemaError> {
        Self::from_descriptor_set(&crate::compile_proto_files(files, includes)?)
    }

    /// Compiles one `.proto` file given as text; it may import only `google/protobuf/*.proto`.
    ///
    /// # Errors
    /// As [`Schema::from_proto_files`].
    #[cfg(feature = "protox")]
    pub fn from_proto_source(name: &str, text: &str) -> Result<Self, SchemaError> {
        Self::from_descriptor_set(&crate::compile_proto_source(name, text)?)
    }

    /// About how many bytes of memory the schema takes, with the tables that messages of its types are transcoded by.
    /// What is declared counts, not how short: a message that is declared in 7 bytes takes 600.
    pub fn memory_bytes(&self) -> u64 {
        let of_message = |message: &Message| {
            let names = message.fields.iter().map(|field| field.name.len() + field.json_name.len());
            MESSAGE_BYTES
                + message.full_name.len()
                + FIELD_BYTES * message.fields.len()
                + ONEOF_BYTES * message.oneofs.len()
                + names.sum::<usize>()
        };
        let of_enum = |of: &Enum| {
            let names = of.values.iter().map(|value| value.name.len());
            ENUM_BYTES + of.full_name.len() + ENUM_VALUE_BYTES * of.values.len() + names.sum::<usize>()
        };
        let of_service = |of: &Service| {
            let names = of.methods.iter().map(|method| method.name.len() + method.path.len());
            SERVICE_BYTES + of.full_name.len() + METHOD_BYTES * of.methods.len() + names.sum::<usize>()
        };
        let messages = self.messages.iter().map(of_message).sum::<usize>();
        let enums = self.enums.iter().map(of_enum).sum::<usize>();
        let services = self.services.iter().map(of_service).sum::<usize>();
        (messages + enums + services + self.descriptor_set.len()) as u64
    }

    /// The encoded `FileDescriptorSet` this schema was made from, byte for byte.
    pub fn descriptor_set(&self) -> &[u8] {
        &self.descriptor_set
    }

    /// All messages, nested ones and map entries included.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The message at an index of this schema.
    ///
    /// # Panics
    /// If the index comes from another schema and is out of range here.
    pub fn message(&self, index: MessageIndex) -> &Message {
        &self.messages[index.0 as usize]
    }

    /// The message with a full name (no leading dot).
    pub fn message_named(&self, full_name: &str) -> Option<MessageIndex> {
        let named = |i: &MessageIndex| self.messages.get(i.0 as usize).map_or("", |m| m.full_name.as_str());
        let at = self.by_name.binary_search_by(|i| named(i).cmp(full_name)).ok()?;
        self.by_name.get(at).copied()
    }

    /// All enums.
    pub fn enums(&self) -> &[Enum] {
        &self.enums
    }

    /// The enum with a full name (no leading dot).
    pub fn enum_named(&self, full_name: &str) -> Option<&Enum> {
        let named = |i: &EnumIndex| self.enums.get(i.0 as usize).map_or("", |of| of.full_name.as_str());
        let at = self.enums_by_name.binary_search_by(|i| named(i).cmp(full_name)).ok()?;
        self.enums.get(self.enums_by_name.get(at)?.0 as usize)
    }

    /// The enum at an index of this schema.
    ///
    /// # Panics
    /// If the index comes from another schema and is out of range here.
    pub fn enumeration(&self, index: EnumIndex) -> &Enum {
        &self.enums[index.0 as usize]
    }

    /// All services, in order of declaration.
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// The service with a full name (no leading dot). Takes a few comparisons, however many services there are.
    pub fn service_named(&self, full_name: &str) -> Option<&Service> {
        self.services.get(self.service_index.service(&self.services, full_name)?)
    }

    /// A method by its service's full name and its own. Takes a few comparisons, however many there are.
    pub fn method(&self, service: &str, method: &str) -> Option<&Method> {
        let at = self.service_index.service(&self.services, service)?;
        let method = self.service_index.method(&self.services, at, method)?;
        self.services.get(at)?.methods.get(method)
    }

    /// A method by `/package.Service/Method`.
    pub fn method_at(&self, path: &str) -> Option<&Method> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        self.method(service, method)
    }

    /// The fingerprint of a message type: equal fingerprints mean that linear messages of the type may pass
    /// untouched. Computed on first use (time proportional to all the type reaches), then remembered.
    ///
    /// # Panics
    /// If the index comes from another schema and is out of range here.
    pub fn fingerprint(&self, index: MessageIndex) -> u64 {
        let cell = &self.fingerprints[index.0 as usize];
        let walk = || FingerprintWalk::new(&self.messages, &self.enums).of(index, &mut usize::MAX.clone());
        *cell.get_or_init(|| walk().unwrap_or_default())
    }

    /// Computes the fingerprints of `roots` and remembers them. A field counts once for each root that leads to it, so
    /// few descriptors can ask for any amount of work: of what is not known yet, at most [`FINGERPRINT_FIELDS_MAX`]
    /// messages and fields are walked.
    ///
    /// # Errors
    /// [`SchemaError::Limit`] that names the root at which the limit was reached.
    ///
    /// # Panics
    /// As [`Schema::fingerprint`].
    pub fn compute_fingerprints(
        &self,
        roots: impl IntoIterator<Item = MessageIndex>,
    ) -> Result<(), SchemaError> {
        let mut walk = FingerprintWalk::new(&self.messages, &self.enums);
        let mut left = FINGERPRINT_FIELDS_MAX;
        for root in roots {
            let cell = &self.fingerprints[root.0 as usize];
            if cell.get().is_none() {
                let known = walk.of(root, &mut left).ok_or_else(|| SchemaError::Limit {
                    place: Place { owner: self.message(root).full_name.clone(), ..Place::default() },
                    what: "fields that this and other methods' types lead to, counted for each type,",
                    limit: FINGERPRINT_FIELDS_MAX,
                })?;
                cell.get_or_init(|| known);
            }
        }
        Ok(())
    }
}
