//! Oneofs as enums in the module of their message.

use super::docs;
use super::plan::{OneofPlan, Plan};
use super::scope::Scope;
use super::structs;
use super::writer::{Writer, block, line};
use crate::model::{Shape, Type};

/// Renders the enum of owned values. `scope` is the module of the message's nested types.
pub(super) fn render(w: &mut Writer, oneof: &OneofPlan<'_>, plan: &Plan<'_>, scope: &Scope<'_>) {
    w.gap();
    let otherwise = format!("The oneof `{}` of `{}`.", oneof.oneof.name, plan.message.full_name);
    docs::notes(w, &oneof.oneof.notes, &otherwise);
    scope.allow_deprecated(w);
    scope.type_attributes(w, &format!("{}.{}", plan.message.full_name, oneof.oneof.name));
    line!(w, "#[derive(Clone, Debug, PartialEq)]");
    block!(
        w,
        |w| for (member, variant) in &oneof.members {
            docs::notes(w, &member.field.notes, "");
            scope.field_attributes(w, &plan.message.full_name, &member.field.name);
            let of = structs::value_type(member.field, member_type(member.field), scope);
            line!(w, "{variant}({of}),");
        },
        "pub enum {}",
        oneof.owned
    );
}

/// The type of a member: always a single value.
pub(super) fn member_type(field: &crate::model::Field) -> &Type {
    match &field.shape {
        Shape::Implicit(of) | Shape::Optional(of) | Shape::Required(of) | Shape::Repeated(of) => of,
        Shape::Map(entry) => &entry.value,
    }
}
