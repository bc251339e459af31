//! The types of methods, as sessions have them: schemas, and what a method takes and gives.

use std::collections::HashSet;
use std::sync::Arc;
use trunkline_call::Pattern;
use trunkline_message::Transcoder;
use trunkline_schema::{MessageIndex, Schema, SchemaError};

/// A schema and its transcoding tables, built once per descriptor set and shared by every session that sends the same.
#[derive(Debug)]
pub struct BoundSchema {
    /// Types, layouts, services.
    pub schema: Arc<Schema>,
    /// Tables for protobuf in and out.
    pub transcoder: Transcoder,
    /// The descriptor set it was built from, for a host that hands it over.
    pub source: Option<Arc<[u8]>>,
}

impl BoundSchema {
    /// Builds the tables for a schema.
    pub fn new(schema: Schema) -> Self {
        let schema = Arc::new(schema);
        let transcoder = Transcoder::new(Arc::clone(&schema));
        Self { schema, transcoder, source: None }
    }

    /// Computes the fingerprints that a bind of these services and paths asks for: a host does so where it may take its
    /// time, and the bind itself finds them. What the schema does not define is left to the bind to refuse.
    ///
    /// # Errors
    /// [`SchemaError::Limit`] if they ask for too much.
    pub fn compute_fingerprints<'n>(
        &self,
        serves: &[String],
        calls: impl Iterator<Item = &'n str>,
    ) -> Result<(), SchemaError> {
        let served = serves.iter().filter_map(|name| self.schema.service_named(name));
        let called = calls.filter_map(|path| self.schema.method_at(path));
        let methods = served.flat_map(|service| &service.methods).chain(called);
        self.schema.compute_fingerprints(methods.flat_map(|method| [method.input, method.output]))
    }

    /// Those that these types are defined by, each once.
    pub(crate) fn each_once<'t>(types: impl Iterator<Item = &'t Arc<MethodTypes>>) -> Vec<Arc<Self>> {
        let (mut schemas, mut known) = (Vec::new(), HashSet::new());
        for types in types {
            let Form::Typed(MessageType { schema, .. }) = &types.input else { continue };
            if known.insert(Arc::as_ptr(schema)) {
                schemas.push(Arc::clone(schema));
            }
        }
        schemas
    }

    /// The same, and what it was built from.
    pub fn with_source(schema: Schema, source: Arc<[u8]>) -> Self {
        Self { source: Some(source), ..Self::new(schema) }
    }
}

/// A message type of one schema.
#[derive(Clone, Debug)]
pub struct MessageType {
    /// Where it is defined.
    pub schema: Arc<BoundSchema>,
    /// Which it is.
    pub index: MessageIndex,
    /// Equal fingerprints: extents may pass unchanged.
    pub fingerprint: u64,
}

impl MessageType {
    /// The type at `index` of `schema`.
    pub fn new(schema: &Arc<BoundSchema>, index: MessageIndex) -> Self {
        Self::with_fingerprint(schema, index, schema.schema.fingerprint(index))
    }

    /// The same, whose fingerprint is known.
    pub(crate) fn with_fingerprint(schema: &Arc<BoundSchema>, index: MessageIndex, fingerprint: u64) -> Self {
        Self { schema: Arc::clone(schema), index, fingerprint }
    }
}

/// The messages of a method in one direction, as one session has them in shared memory.
#[derive(Clone, Debug)]
pub enum Form {
    /// Linear extents of this type.
    Typed(MessageType),
    /// Protobuf of a type that only the application knows.
    Opaque,
}

impl Form {
    /// What is told to peers; zero, which never equals anything, for a type nobody here knows.
    pub fn fingerprint(&self) -> u64 {
        match self {
            Self::Typed(of) => of.fingerprint,
            Self::Opaque => 0,
        }
    }

    /// Whether only the application knows the type.
    pub fn is_opaque(&self) -> bool {
        matches!(self, Self::Opaque)
    }
}

/// A method as one session sees it: calls it or serves it with these types.
#[derive(Clone, Debug)]
pub struct MethodTypes {
    /// Its number among all that were ever bound here: what it is called when it is handed over. No other types of this
    /// host's have it, however often applications come and bind: numbers are not used again, and there are more of
    /// them than can be bound ([`MethodTypes::next_number`]).
    pub number: u64,
    /// `/package.Service/Method`, or `/package.Service/*`.
    pub path: Arc<str>,
    /// Request.
    pub input: Form,
    /// Response.
    pub output: Form,
    /// Who streams. An opaque method may stream both ways.
    pub pattern: Pattern,
    /// Whether this stands for every method of a service, so that each call delivered must name its own.
    pub whole_service: bool,
}

/// Shards of one host, at most.
const SHARDS_MAX: u64 = 64;

impl MethodTypes {
    /// The number of what is bound next on a shard. Each shard has numbers of its own: types go along with calls from
    /// one to another. There are 2^58 of them: a million binds a second use them up in nine thousand years.
    pub(crate) fn next_number(bound: &mut u64, own: u16) -> u64 {
        *bound = bound.wrapping_add(1);
        bound.wrapping_mul(SHARDS_MAX).wrapping_add(own.into())
    }

    /// A method, or a whole service, of which nothing is known but the path.
    pub fn opaque(path: &str, whole_service: bool) -> Self {
        let pattern = Pattern::Bidirectional;
        Self {
            number: 0,
            path: path.into(),
            input: Form::Opaque,
            output: Form::Opaque,
            pattern,
            whole_service,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that no types ever get the number of others that are still there.
    use super::*;

    #[test]
    fn numbers_do_not_come_again() {
        let mut bound = 0;
        let first = MethodTypes::next_number(&mut bound, 1);
        // As many as there were numbers for in 32 bits, of one shard of 64.
        bound += 1 << 26;
        let next = MethodTypes::next_number(&mut bound, 1);
        assert!(next > first && next > u64::from(u32::MAX), "{first} {next}");
        assert_ne!(MethodTypes::next_number(&mut bound.clone(), 2), MethodTypes::next_number(&mut bound, 1));
    }
}
