//! The types of methods, by number: written once, named wherever they are used.

use crate::call::{Call, Calls, ClientEnd, ServerEnd};
use crate::handover::left_out::LeftOutReason;
use crate::peers::PeerEnds;
use crate::registry::{BoundSchema, Form, MessageType, MethodTypes, Registry};
use crate::session::Route;
use crate::sessions::SessionEnds;
use crate::shard::ShardLinks;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline_call::Pattern;

/// Types as they are written once.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TypesState {
    number: u64,
    path: String,
    input: Option<MessageState>,
    output: Option<MessageState>,
    pattern: Pattern,
    whole_service: bool,
}

/// A message type: the schema's place in the list that goes with the state, and the full name. (An index would mean
/// something else to a program that orders messages otherwise.)
#[derive(Debug, Serialize, Deserialize)]
struct MessageState {
    schema: usize,
    name: String,
    /// So that nothing is computed while calls wait; earlier versions do not say it.
    #[serde(default)]
    fingerprint: Option<u64>,
}

/// Types by number.
pub(super) type Known = BTreeMap<u64, Arc<MethodTypes>>;

/// Wherever types are used they are a number; [`Using::relink`] puts the types in its place again.
impl Serialize for MethodTypes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.number.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MethodTypes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        Ok(Self { number, ..Self::opaque("", false) })
    }
}

impl TypesState {
    pub fn of(types: &MethodTypes, schemas: &mut Vec<Arc<BoundSchema>>) -> Self {
        Self {
            number: types.number,
            path: types.path.to_string(),
            input: MessageState::of(&types.input, schemas),
            output: MessageState::of(&types.output, schemas),
            pattern: types.pattern,
            whole_service: types.whole_service,
        }
    }

    /// The types. A message that its schema does not define is opaque, and said: nothing linear of it is read, then.
    /// `None` if there is no such schema.
    pub fn take_up(self, schemas: &[Arc<BoundSchema>]) -> Option<(MethodTypes, Option<LeftOutReason>)> {
        let mut unknown = None;
        let mut form = |message: Option<MessageState>| {
            let Some(MessageState { schema: at, name, fingerprint }) = message else {
                return Some(Form::Opaque);
            };
            let schema = schemas.get(at)?;
            let Some(index) = schema.schema.message_named(&name) else {
                unknown = Some(LeftOutReason::Schema { schema: at, message: name });
                return Some(Form::Opaque);
            };
            Some(Form::Typed(match fingerprint {
                Some(known) => MessageType::with_fingerprint(schema, index, known),
                None => MessageType::new(schema, index),
            }))
        };
        let types = MethodTypes {
            number: self.number,
            path: self.path.into(),
            input: form(self.input)?,
            output: form(self.output)?,
            pattern: self.pattern,
            whole_service: self.whole_service,
        };
        Some((types, unknown))
    }
}

impl MessageState {
    fn of(form: &Form, schemas: &mut Vec<Arc<BoundSchema>>) -> Option<Self> {
        let Form::Typed(of) = form else { return None };
        let known = schemas.iter().position(|schema| Arc::ptr_eq(schema, &of.schema));
        let schema = known.unwrap_or_else(|| {
            schemas.push(Arc::clone(&of.schema));
            schemas.len() - 1
        });
        let name = of.schema.schema.message(of.index).full_name.clone();
        Some(Self { schema, name, fingerprint: Some(of.fingerprint) })
    }
}

/// All that names types.
pub(super) struct Using<S, R, P, C, L> {
    pub sessions: S,
    pub registry: R,
    pub peers: P,
    pub calls: C,
    pub shards: L,
}

impl Using<&SessionEnds, &Registry, &PeerEnds, &Calls, &ShardLinks> {
    /// Every types somebody here uses.
    pub fn in_use(&self) -> Known {
        let mut known = Known::new();
        let mut note = |types: &Arc<MethodTypes>| drop(known.insert(types.number, Arc::clone(types)));
        for (_, session) in self.sessions.iter() {
            for route in &session.routes {
                if let Route::Calls { types, .. } = route {
                    note(types);
                }
            }
        }
        self.registry.every_server().for_each(|(_, server)| note(&server.types));
        self.shards.all_types().for_each(&mut note);
        self.peers.types().for_each(&mut note);
        for (_, call) in self.calls.iter() {
            types_of(call).into_iter().flatten().for_each(&mut note);
        }
        known
    }
}

impl Using<&mut SessionEnds, &mut Registry, &mut PeerEnds, &mut Calls, &mut ShardLinks> {
    /// Puts types in the place of their numbers. `false`: a number nobody has.
    pub fn relink(&mut self, known: &Known) -> bool {
        let mut whole = true;
        let mut link = |types: &mut Arc<MethodTypes>| match known.get(&types.number) {
            Some(found) => *types = Arc::clone(found),
            None => whole = false,
        };
        for (_, session) in self.sessions.iter_mut() {
            for route in &mut session.routes {
                if let Route::Calls { types, .. } = route {
                    link(types);
                }
            }
        }
        self.registry.every_server_mut().for_each(|server| link(&mut server.types));
        self.shards.all_types_mut().for_each(&mut link);
        self.peers.types_mut().for_each(&mut link);
        for (_, call) in self.calls.iter_mut() {
            types_of_mut(call).into_iter().flatten().for_each(&mut link);
        }
        whole
    }
}

fn types_of(call: &Call) -> [Option<&Arc<MethodTypes>>; 3] {
    let client = match &call.client {
        ClientEnd::Session { types, .. }
        | ClientEnd::Attempt { types, .. }
        | ClientEnd::Mirror { types, .. }
        | ClientEnd::Grpc { types: Some(types), .. }
        | ClientEnd::Shard { types: Some(types), .. } => Some(types),
        _ => None,
    };
    let server = match &call.server {
        ServerEnd::Session { types, .. } | ServerEnd::Shard { types, .. } => Some(types),
        _ => None,
    };
    [client, server, call.agreed.as_ref()]
}

fn types_of_mut(call: &mut Call) -> [Option<&mut Arc<MethodTypes>>; 3] {
    let client = match &mut call.client {
        ClientEnd::Session { types, .. }
        | ClientEnd::Attempt { types, .. }
        | ClientEnd::Mirror { types, .. }
        | ClientEnd::Grpc { types: Some(types), .. }
        | ClientEnd::Shard { types: Some(types), .. } => Some(types),
        _ => None,
    };
    let server = match &mut call.server {
        ServerEnd::Session { types, .. } | ServerEnd::Shard { types, .. } => Some(types),
        _ => None,
    };
    [client, server, call.agreed.as_mut()]
}
