//! Linear message to plain struct.

use super::{is_wide, parts_named, place_literal};
use crate::model::{Field, MapEntry, Shape, Type};
use crate::rust::plan::{Item, OneofPlan, Plan};
use crate::rust::scope::Scope;
use crate::rust::types::member_type;
use crate::rust::writer::{CHAIN, SOFT, Writer, block, line};
use crate::rust::{literal, types, view};

/// `Message::read`.
pub(super) fn method(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let body = |w: &mut Writer| {
        if plan.items.is_empty() {
            return line!(w, "Self {{}}");
        }
        line!(w, "let view = view.view;");
        if !is_wide(plan) {
            return w.compact("Self {", "}", |w| items(w, &plan.items, [": ", ","], plan, scope));
        }
        line!(w, "let mut message = <Self as ::core::default::Default>::default();");
        parts_named("read", plan).iter().for_each(|part| line!(w, "message.{part}(view);"));
        line!(w, "message");
    };
    let argument = if plan.items.is_empty() { "_view" } else { "view" };
    block!(w, body, "fn read({argument}: Self::View<'_>) -> Self");
}

/// A function that reads some of the fields.
pub(super) fn part(w: &mut Writer, name: &str, of: &[Item<'_>], plan: &Plan<'_>, scope: &Scope<'_>) {
    let view = scope.runtime("View");
    w.gap();
    block!(w, |w| items(w, of, [" = ", ";"], plan, scope), "fn {name}(&mut self, view: {view}<'_>)");
}

/// `name: value,` of a struct expression, or `self.name = value;`.
fn items(w: &mut Writer, items: &[Item<'_>], [is, end]: [&str; 2], plan: &Plan<'_>, scope: &Scope<'_>) {
    let of = if end == ";" { "self." } else { "" };
    for item in items {
        let lead = format!("{of}{}{is}", item.ident().escaped());
        match item {
            Item::Field(of) => {
                let value = read_field(of.field, &format!("Self::{}", of.place()), scope);
                line!(w, "{lead}{value}{end}");
            }
            Item::Oneof(of) => oneof(w, of, lead, end, plan, scope),
        }
    }
}

fn oneof(
    w: &mut Writer,
    of: &OneofPlan<'_>,
    mut lead: String,
    end: &str,
    plan: &Plan<'_>,
    scope: &Scope<'_>,
) {
    for (member, variant) in &of.members {
        let at = format!("Self::{}", member.place());
        line!(w, "{lead}if view.has({at}) {{");
        let value = present(member.field, member_type(member.field), &at, scope);
        line!(w, "    Some({}::{}::{variant}({value}))", plan.inner(), of.owned);
        "} else ".clone_into(&mut lead);
    }
    line!(w, "{lead}{{");
    line!(w, "    None");
    line!(w, "}}{end}");
}

/// An expression for a field of the struct.
fn read_field(field: &Field, at: &str, scope: &Scope<'_>) -> String {
    match &field.shape {
        Shape::Implicit(of) => owned_value(of, "view", at, scope),
        Shape::Optional(Type::Message(_)) => read_message(field, at),
        Shape::Optional(of) => {
            format!("view{CHAIN}.has({at}){CHAIN}.then(|| {})", owned_value(of, "view", at, scope))
        }
        Shape::Required(Type::Message(_)) if field.closes_cycle => read_message(field, at),
        Shape::Required(Type::Message(_)) => format!("view.read({at}).unwrap_or_default()"),
        Shape::Required(of) => {
            let default = field.default.as_ref().map(|value| literal::owned_default(value, of, scope));
            view::or_default(owned_value(of, "view", at, scope), default, "view", at)
        }
        Shape::Repeated(of) => read_list(of, at, scope),
        Shape::Map(entry) => read_map(entry, at, scope),
    }
}

fn read_message(field: &Field, at: &str) -> String {
    if field.closes_cycle { format!("view.read_boxed({at})") } else { format!("view.read({at})") }
}

/// An expression for the owned value of a oneof's member that is present.
fn present(field: &Field, of: &Type, at: &str, scope: &Scope<'_>) -> String {
    match of {
        Type::Message(_) => format!("{}.unwrap_or_default()", read_message(field, at)),
        _ => owned_value(of, "view", at, scope),
    }
}

/// An expression for the owned value of anything but a message.
fn owned_value(of: &Type, from: &str, at: &str, scope: &Scope<'_>) -> String {
    let viewed = view::value(of, from, at, scope);
    match of {
        Type::String => format!("{viewed}.to_owned()"),
        Type::Bytes => format!("{viewed}.to_vec()"),
        _ => viewed,
    }
}

fn read_list(of: &Type, at: &str, scope: &Scope<'_>) -> String {
    let each = |item: &str, map: &str| {
        format!("view{CHAIN}.list::<{item}>({at}){CHAIN}.iter(){map}{CHAIN}.collect()")
    };
    match of {
        Type::Bool => each("bool", ""),
        Type::String => {
            each("&str", &format!("{CHAIN}.map({}::from)", scope.prelude("::std::string::String")))
        }
        Type::Bytes => each("&[u8]", &format!("{CHAIN}.map({}::from)", scope.prelude("::std::vec::Vec"))),
        Type::Enum(name) => each(&scope.owned(name), ""),
        Type::Message(_) => format!("view.read_all({at})"),
        _ => format!("view.{}s({at}).to_vec()", types::scalar(of).unwrap_or_default()),
    }
}

fn read_map(entry: &MapEntry, at: &str, scope: &Scope<'_>) -> String {
    let part = |of: &Type, at: (u32, u32)| match of {
        Type::Message(_) => format!("entry.read({}).unwrap_or_default()", place_literal(at, scope)),
        _ => owned_value(of, "entry", &place_literal(at, scope), scope),
    };
    let (key, value) = (part(&entry.key, entry.key_at), part(&entry.value, entry.value_at));
    let default =
        entry.value_default.as_ref().map(|value| literal::owned_default(value, &entry.value, scope));
    let value = view::or_default(value, default, "entry", &place_literal(entry.value_at, scope));
    let value = value.replace(SOFT, &format!("{SOFT}    "));
    let view = scope.runtime("View");
    let pair = format!("|entry| {{\n    let key = {key};\n    let value = {value};\n    (key, value)\n}}");
    format!("view{CHAIN}.list::<{view}<'_>>({at}){CHAIN}.iter(){CHAIN}.map({pair}){CHAIN}.collect()")
}
