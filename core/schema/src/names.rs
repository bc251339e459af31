//! Names: every declaration of a set with its full name, its scope's features, and what a type name refers to.

use crate::descriptor::{EnumProto, FileProto, MessageProto};
use crate::error::{Place, SchemaError};
use crate::features::Features;
use crate::kind::{EnumIndex, MessageIndex};
use crate::limits::NAME_BYTES_MAX;

/// Every message and enum of the set in order of declaration: the order of their indices.
#[derive(Default)]
pub(crate) struct Declared<'p, 'a> {
    pub(crate) messages: Vec<MessageDeclaration<'p, 'a>>,
    pub(crate) enums: Vec<Declaration<'p, EnumProto<'a>>>,
}

/// One declaration and where it stands.
pub(crate) struct Declaration<'p, P> {
    pub(crate) proto: &'p P,
    pub(crate) file: &'p str,
    pub(crate) full_name: String,
    pub(crate) features: Features,
}

pub(crate) type MessageDeclaration<'p, 'a> = Declaration<'p, MessageProto<'a>>;

impl<P> Declaration<'_, P> {
    pub(crate) fn place(&self, member: &str) -> Place {
        Place { file: self.file.to_owned(), owner: self.full_name.clone(), member: member.to_owned() }
    }

    pub(crate) fn invalid(&self, member: &str, reason: &'static str) -> SchemaError {
        SchemaError::Invalid { place: self.place(member), reason }
    }
}

impl<'p, 'a> Declared<'p, 'a> {
    /// Takes in all a file declares.
    pub(crate) fn file(&mut self, file: &'p FileProto<'a>) -> Result<(), SchemaError> {
        let place = || Place { file: file.name.to_owned(), ..Place::default() };
        let invalid = |reason| SchemaError::Invalid { place: place(), reason };
        if !file.package.is_empty() && !file.package.split('.').all(is_identifier) {
            return Err(invalid("the package is not a dotted identifier"));
        }
        let features = Features::of_language(file.syntax, file.edition).map_err(invalid)?.with(file.features);
        let scope = Scope { file: file.name, name: file.package, features };
        self.scope(&scope, &file.messages, &file.enums)
    }

    fn scope(
        &mut self,
        scope: &Scope<'p, '_>,
        messages: &'p [MessageProto<'a>],
        enums: &'p [EnumProto<'a>],
    ) -> Result<(), SchemaError> {
        for proto in enums {
            let features = scope.features.with(proto.features);
            let full_name = scope.full_name(proto.name)?;
            self.enums.push(Declaration { proto, file: scope.file, full_name, features });
        }
        for proto in messages {
            let features = scope.features.with(proto.features);
            let full_name = scope.full_name(proto.name)?;
            let inner = Scope { file: scope.file, name: &full_name.clone(), features };
            self.messages.push(Declaration { proto, file: scope.file, full_name, features });
            self.scope(&inner, &proto.messages, &proto.enums)?;
        }
        Ok(())
    }
}

/// What surrounds a declaration: a package or a message.
pub(crate) struct Scope<'p, 'n> {
    pub(crate) file: &'p str,
    pub(crate) name: &'n str,
    pub(crate) features: Features,
}

impl Scope<'_, '_> {
    /// The full name of something declared here.
    pub(crate) fn full_name(&self, name: &str) -> Result<String, SchemaError> {
        let place =
            || Place { file: self.file.to_owned(), owner: self.name.to_owned(), member: String::new() };
        if !is_identifier(name) {
            return Err(SchemaError::Invalid {
                place: place(),
                reason: "a declared name is not an identifier",
            });
        }
        let full_name = joined(self.name, name);
        if full_name.len() > NAME_BYTES_MAX {
            return Err(SchemaError::Limit {
                place: place(),
                what: "bytes of a full name",
                limit: NAME_BYTES_MAX,
            });
        }
        Ok(full_name)
    }
}

/// A type a field may name.
#[derive(Clone, Copy)]
pub(crate) enum Type {
    Message(MessageIndex),
    Enum(EnumIndex),
}

/// Full names to types, ordered by name.
pub(crate) struct Names<'d> {
    sorted: Vec<(&'d str, Type)>,
}

impl<'d> Names<'d> {
    pub(crate) fn of(declared: &'d Declared<'_, '_>) -> Result<Self, SchemaError> {
        let messages = declared.messages.iter().map(|m| m.full_name.as_str());
        let enums = declared.enums.iter().map(|e| e.full_name.as_str());
        let mut sorted: Vec<_> = messages
            .zip((0..).map(|i| Type::Message(MessageIndex(i))))
            .chain(enums.zip((0..).map(|i| Type::Enum(EnumIndex(i)))))
            .collect();
        sorted.sort_unstable_by_key(|(name, _)| *name);
        match sorted.windows(2).find(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
            Some([_, (name, _)]) => Err(SchemaError::Duplicate {
                place: Place::default(),
                what: "type",
                name: (*name).to_owned(),
            }),
            _ => Ok(Self { sorted }),
        }
    }

    /// The type with a name. Compilers write absolute names with a leading dot; without one it is taken to be
    /// absolute, too: searching scopes for names of strangers would cost time that nothing bounds.
    pub(crate) fn find(&self, name: &str) -> Option<Type> {
        let full_name = name.strip_prefix('.').unwrap_or(name);
        let at = self.sorted.binary_search_by(|(name, _)| (*name).cmp(full_name)).ok()?;
        self.sorted.get(at).map(|(_, found)| *found)
    }
}

/// Whether protobuf accepts this as a name: a letter or underscore, then letters, digits and underscores.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn joined(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}
