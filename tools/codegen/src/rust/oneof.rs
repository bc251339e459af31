//! Oneofs as enums in the module of their message.

use super::docs;
use super::plan::{OneofPlan, Plan};
use super::scope::Scope;
use super::structs;
use super::types::member_type;
use super::writer::{Writer, block, line};
use crate::model::{Field, Type};

/// Renders the enum of owned values. `scope` is the module of the message's nested types.
pub(super) fn render(w: &mut Writer, oneof: &OneofPlan<'_>, plan: &Plan<'_>, scope: &Scope<'_>) {
    w.gap();
    let otherwise = format!("The oneof `{}` of `{}`.", oneof.oneof.name, plan.message.full_name);
    docs::notes(w, &oneof.oneof.notes, &otherwise);
    scope.allow_deprecated(w);
    // A message is held by value as in any other field; clippy would have the larger ones boxed.
    let by_value = |field: &Field| matches!(member_type(field), Type::Message(_)) && !field.closes_cycle;
    if oneof.members.len() > 1 && oneof.members.iter().any(|(member, _)| by_value(member.field)) {
        line!(w, "#[allow(clippy::large_enum_variant)]");
    }
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
