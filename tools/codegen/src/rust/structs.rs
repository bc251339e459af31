//! Messages as plain structs.

use super::docs;
use super::literal;
use super::plan::{FieldPlan, Item, OneofPlan, Plan};
use super::scope::Scope;
use super::types;
use super::writer::{SOFT, Writer, block, line};
use crate::model::{Field, Shape, Type};

/// Fields up to which equality is derived. What is derived is one expression that nests as deep as there are fields:
/// at some thousands the compiler runs out of stack.
const DERIVED_FIELDS_MAX: usize = 256;

/// Renders the struct of a message declared in `scope`, with its `Default` where that cannot be derived.
pub(super) fn render(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let name = &plan.names.owned;
    let derived = !plan.message.fields.iter().any(starts_with_value);
    let comparable = plan.items.len() <= DERIVED_FIELDS_MAX;
    w.gap();
    docs::notes(w, &plan.message.notes, &format!("Message `{}`.", plan.message.full_name));
    scope.allow_deprecated(w);
    scope.type_attributes(w, &plan.message.full_name);
    let default_derive = if derived { ", Default" } else { "" };
    line!(w, "#[derive(Clone, Debug{default_derive}{})]", if comparable { ", PartialEq" } else { "" });
    block!(w, |w| plan.items.iter().for_each(|item| declare(w, item, plan, scope)), "pub struct {name}");
    if !derived {
        default(w, plan, scope);
    }
    if !comparable {
        equality(w, plan, scope);
    }
    accessors(w, plan, scope);
}

/// The type of a field in the struct.
pub(super) fn field_type(field: &Field, scope: &Scope<'_>) -> String {
    match &field.shape {
        Shape::Implicit(of) => types::owned(of, scope),
        Shape::Required(of @ Type::Message(_)) if field.closes_cycle => {
            scope.option(&value_type(field, of, scope))
        }
        Shape::Required(of) => types::owned(of, scope),
        Shape::Optional(of) => scope.option(&value_type(field, of, scope)),
        Shape::Repeated(of) => format!("{}<{}>", scope.prelude("::std::vec::Vec"), types::owned(of, scope)),
        Shape::Map(entry) => {
            let map = if scope.options.btree_maps { "BTreeMap" } else { "HashMap" };
            let (key, value) = (types::owned(&entry.key, scope), types::owned(&entry.value, scope));
            format!("::std::collections::{map}<{key}, {value}>")
        }
    }
}

/// The type of one value, boxed where a cycle of messages is closed.
pub(super) fn value_type(field: &Field, of: &Type, scope: &Scope<'_>) -> String {
    let owned = types::owned(of, scope);
    if field.closes_cycle { format!("{}<{owned}>", scope.prelude("::std::boxed::Box")) } else { owned }
}

fn declare(w: &mut Writer, item: &Item<'_>, plan: &Plan<'_>, scope: &Scope<'_>) {
    match item {
        Item::Field(FieldPlan { field, ident, .. }) => {
            docs::notes(w, &field.notes, "");
            scope.field_attributes(w, &plan.message.full_name, &field.name);
            line!(w, "pub {}:{SOFT}    {},", ident.escaped(), field_type(field, scope));
        }
        Item::Oneof(OneofPlan { oneof, ident, owned, .. }) => {
            docs::notes(w, &oneof.notes, "");
            scope.field_attributes(w, &plan.message.full_name, &oneof.name);
            let of = scope.option(&format!("{}::{owned}", plan.inner()));
            line!(w, "pub {}:{SOFT}    {of},", ident.escaped());
        }
    }
}

/// A required field with a declared default begins with it, as there is no `None` to stand for "not set".
fn starts_with_value(field: &Field) -> bool {
    field.default.is_some() && matches!(field.shape, Shape::Required(_) | Shape::Implicit(_))
}

fn default(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let trait_path = scope.prelude("::core::default::Default");
    let value = |item: &Item<'_>| match item {
        Item::Field(FieldPlan {
            field: Field { default: Some(value), shape: Shape::Required(of), .. },
            ..
        }) => literal::owned_default(value, of, scope),
        _ => format!("{trait_path}::default()"),
    };
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| block!(
            w,
            |w| block!(
                w,
                |w| for item in &plan.items {
                    line!(w, "{}: {},", item.ident().escaped(), value(item));
                },
                "Self"
            ),
            "fn default() -> Self"
        ),
        "impl {trait_path} for {}",
        plan.names.owned
    );
}

/// Field by field, for a struct with more fields than the compiler bears in one derived expression.
fn equality(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let body = |w: &mut Writer| {
        for item in &plan.items {
            let ident = item.ident().escaped();
            block!(w, |w| line!(w, "return false;"), "if self.{ident} != other.{ident}");
        }
        line!(w, "true");
    };
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| block!(w, body, "fn eq(&self, other: &Self) -> bool"),
        "impl {} for {}",
        scope.prelude("::core::cmp::PartialEq"),
        plan.names.owned
    );
}

/// Methods that give an optional value or its default, as prost's users expect them.
fn accessors(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let fields = plan.items.iter().filter_map(|item| match item {
        Item::Field(FieldPlan { field, ident, .. }) => match &field.shape {
            Shape::Optional(of) if !matches!(of, Type::Message(_)) => Some((*field, ident, of)),
            _ => None,
        },
        Item::Oneof(_) => None,
    });
    let fields: Vec<_> = fields.collect();
    if fields.is_empty() {
        return;
    }
    w.gap();
    scope.allow_deprecated(w);
    scope.allow_names(w, fields.iter().map(|(_, ident, _)| *ident));
    block!(
        w,
        |w| for (field, ident, of) in fields {
            w.gap();
            line!(w, "/// The value of `{}`, or its default if it is not set.", field.name);
            let body = accessor(field, &ident.escaped(), of, scope);
            let name = ident.escaped();
            block!(
                w,
                |w| line!(w, "{body}"),
                "pub fn {name}(&self) -> {}",
                types::viewed(of, "", scope).replace("& ", "&")
            );
        },
        "impl {}",
        plan.names.owned
    );
}

fn accessor(field: &Field, ident: &str, of: &Type, scope: &Scope<'_>) -> String {
    let borrow = if types::borrows(of) { ".as_deref()" } else { "" };
    match &field.default {
        Some(value) => {
            format!("self.{ident}{borrow}.unwrap_or({})", literal::default_value(value, of, scope))
        }
        None => format!("self.{ident}{borrow}.unwrap_or_default()"),
    }
}
