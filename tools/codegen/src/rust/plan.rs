//! A message with the Rust names of all its parts.

use super::ident::{Ident, Taken, camel, leading_letter, snake};
use super::names::{OneofNames, TypeNames};
use super::scope::Scope;
use super::types::{self, member_type};
use crate::model::{Field, Message, Oneof};

/// A message about to be rendered.
pub(super) struct Plan<'m> {
    pub(super) message: &'m Message,
    pub(super) names: TypeNames,
    /// What the struct has, in order: fields, and each oneof where its first member was declared.
    pub(super) items: Vec<Item<'m>>,
    /// Every method the fields ask for.
    taken: Taken,
}

/// A field of the generated struct.
pub(super) enum Item<'m> {
    /// Of a field.
    Field(FieldPlan<'m>),
    /// Of a oneof.
    Oneof(OneofPlan<'m>),
}

/// A field and its names.
pub(super) struct FieldPlan<'m> {
    pub(super) field: &'m Field,
    /// The struct's field, and the method of the view.
    pub(super) ident: Ident,
    pub(super) methods: Methods,
}

/// A oneof and its names.
pub(super) struct OneofPlan<'m> {
    pub(super) oneof: &'m Oneof,
    pub(super) ident: Ident,
    /// The enum of owned values, in the message's module.
    pub(super) owned: String,
    /// The enum of viewed values, beside it.
    pub(super) view: String,
    /// Its members, each with its variant.
    pub(super) members: Vec<(FieldPlan<'m>, String)>,
}

/// Methods named after a field, each where no other method has its name.
pub(super) struct Methods {
    /// Of the view: whether it is set.
    pub(super) has: String,
    /// Of the builder: the builder of the message it holds.
    pub(super) child: String,
    /// Of the builder.
    pub(super) set: String,
    /// Of the builder: one more element.
    pub(super) add: String,
    /// Of the builder: one more entry.
    pub(super) insert: String,
    /// Of the builder: bytes or scalars to fill in place.
    pub(super) fill: String,
}

impl<'m> Plan<'m> {
    /// Names the parts of `message`, which is declared in the module `scope`.
    pub(super) fn new(message: &'m Message, scope: &Scope<'_>) -> Self {
        let mut taken = Taken::default();
        let idents: Vec<Ident> = message.fields.iter().map(|field| taken.take(snake(&field.name))).collect();
        let oneof_idents: Vec<Ident> =
            message.oneofs.iter().map(|oneof| taken.take(snake(&oneof.name))).collect();
        let fields = message.fields.iter().zip(idents);
        let mut fields: Vec<Option<FieldPlan<'m>>> = fields
            .map(|(field, ident)| Some(FieldPlan { field, methods: Methods::of(&ident, &mut taken), ident }))
            .collect();
        let oneofs = message.oneofs.iter().zip(oneof_idents).zip(scope.names.oneofs(&message.full_name));
        let mut oneofs: Vec<Option<OneofPlan<'m>>> = oneofs
            .map(|((oneof, ident), names)| Some(OneofPlan::new(oneof, ident, names, &mut fields)))
            .collect();
        let mut items = Vec::with_capacity(message.fields.len());
        for (field, plan) in message.fields.iter().zip(fields) {
            let oneof = field.oneof.and_then(|index| oneofs.get_mut(index)).and_then(Option::take);
            items.extend(plan.map(Item::Field).or(oneof.map(Item::Oneof)));
        }
        Self { message, names: scope.names.of(&message.full_name).clone(), items, taken }
    }

    /// The name of the module of nested types, seen from where the message is declared.
    pub(super) fn inner(&self) -> &str {
        &self.names.inner
    }

    /// Whether there is anything to put into that module.
    pub(super) fn has_inner(&self) -> bool {
        !(self.message.messages.is_empty() && self.message.enums.is_empty() && self.oneofs().next().is_none())
    }

    /// `count` names of functions that no method named after a field has.
    pub(super) fn parts(&self, name: &str, count: usize) -> Vec<String> {
        let mut taken = self.taken.clone();
        (0..count).map(|index| taken.take(format!("{name}_part_{index}")).escaped()).collect()
    }

    /// Every field, members of oneofs where their oneof stands.
    pub(super) fn fields(&self) -> impl Iterator<Item = &FieldPlan<'m>> {
        self.items.iter().flat_map(|item| {
            let (field, members) = match item {
                Item::Field(field) => (Some(field), [].as_slice()),
                Item::Oneof(oneof) => (None, oneof.members.as_slice()),
            };
            field.into_iter().chain(members.iter().map(|(field, _)| field))
        })
    }

    /// The oneofs in order.
    pub(super) fn oneofs(&self) -> impl Iterator<Item = &OneofPlan<'m>> {
        self.items.iter().filter_map(|item| match item {
            Item::Oneof(oneof) => Some(oneof),
            Item::Field(_) => None,
        })
    }
}

impl<'m> OneofPlan<'m> {
    fn new(oneof: &'m Oneof, ident: Ident, names: &OneofNames, fields: &mut [Option<FieldPlan<'m>>]) -> Self {
        let OneofNames { owned, view } = names.clone();
        let mut variants = Taken::default();
        let members = oneof.fields.iter().filter_map(|&index| {
            let plan = fields.get_mut(index)?.take()?;
            let variant = variants.take(camel(&plan.field.name)).escaped();
            Some((plan, variant))
        });
        Self { oneof, ident, owned, view, members: members.collect() }
    }

    /// Whether any viewed value borrows.
    pub(super) fn borrows(&self) -> bool {
        self.members.iter().any(|(member, _)| types::borrows(member_type(member.field)))
    }

    /// The constant that says where its members lie.
    pub(super) fn place(&self) -> String {
        place(&self.ident)
    }
}

impl FieldPlan<'_> {
    /// The constant that says where the field lies.
    pub(super) fn place(&self) -> String {
        place(&self.ident)
    }
}

impl Item<'_> {
    /// The name of the struct's field.
    pub(super) fn ident(&self) -> &Ident {
        match self {
            Item::Field(field) => &field.ident,
            Item::Oneof(oneof) => &oneof.ident,
        }
    }
}

impl Methods {
    fn of(ident: &Ident, taken: &mut Taken) -> Self {
        let stem = ident.stem();
        let mut take = |name: String| taken.take(name).escaped();
        Self {
            child: ident.escaped(),
            has: take(format!("has_{stem}")),
            set: take(format!("set_{stem}")),
            add: take(format!("add_{stem}")),
            insert: take(format!("insert_{stem}")),
            fill: take(leading_letter(format!("{stem}_mut"))),
        }
    }
}

/// Identifiers are lower case, so no two become the same constant.
fn place(ident: &Ident) -> String {
    format!("{}_AT", ident.bare().to_ascii_uppercase())
}
