//! Plain struct to linear message.

use super::{is_wide, parts_named, place_literal};
use crate::model::{Field, MapEntry, Shape, Type};
use crate::rust::plan::{FieldPlan, Item, OneofPlan, Plan};
use crate::rust::scope::Scope;
use crate::rust::types;
use crate::rust::types::member_type;
use crate::rust::writer::{Writer, block, line};

/// `Message::write`.
pub(super) fn method(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let unused = if plan.items.is_empty() { "_" } else { "mut " };
    let memory = scope.extent();
    let argument = format!("{unused}block: {}<'_, {memory}>", scope.runtime("Block"));
    let head = format!("fn write<{memory}: {}>", scope.runtime("Extent"));
    w.function(&head, &["&self".to_owned(), argument], "", |w| {
        if is_wide(plan) {
            let parts = parts_named("write", plan);
            return parts.iter().for_each(|part| line!(w, "self.{part}(&mut block);"));
        }
        items(w, &plan.items, plan, scope);
    });
}

/// A function that writes some of the fields.
pub(super) fn part(w: &mut Writer, name: &str, of: &[Item<'_>], plan: &Plan<'_>, scope: &Scope<'_>) {
    let memory = scope.extent();
    let argument = format!("block: &mut {}<'_, {memory}>", scope.runtime("Block"));
    let head = format!("fn {name}<{memory}: {}>", scope.runtime("Extent"));
    w.gap();
    w.function(&head, &["&self".to_owned(), argument], "", |w| items(w, of, plan, scope));
}

fn items(w: &mut Writer, items: &[Item<'_>], plan: &Plan<'_>, scope: &Scope<'_>) {
    for item in items {
        match item {
            Item::Field(of) => write_field(w, of, scope),
            Item::Oneof(of) => write_oneof(w, of, plan),
        }
    }
}

fn write_field(w: &mut Writer, of: &FieldPlan<'_>, scope: &Scope<'_>) {
    let (field, at) = (of.field, format!("Self::{}", of.place()));
    let source = format!("self.{}", of.ident.escaped());
    match &field.shape {
        Shape::Implicit(kind) => {
            let set = setter(kind, "block", &at, &Source::Place(&source), field);
            block!(w, |w| line!(w, "{set};"), "if {}", is_set(kind, &source));
        }
        Shape::Required(Type::Message(_)) if field.closes_cycle => write_optional(w, field, &at, &source),
        Shape::Required(kind) => {
            line!(w, "{};", setter(kind, "block", &at, &Source::Place(&source), field));
        }
        Shape::Optional(_) => write_optional(w, field, &at, &source),
        Shape::Repeated(kind) => {
            block!(w, |w| write_list(w, kind, &at, &source), "if !{source}.is_empty()");
        }
        Shape::Map(entry) => {
            block!(w, |w| write_map(w, entry, &at, &source, scope), "if !{source}.is_empty()");
        }
    }
}

fn write_optional(w: &mut Writer, field: &Field, at: &str, source: &str) {
    let kind = member_type(field);
    let set = setter(kind, "block", at, &Source::Reference("value"), field);
    block!(w, |w| line!(w, "{set};"), "if let Some(value) = &{source}");
}

fn write_oneof(w: &mut Writer, of: &OneofPlan<'_>, plan: &Plan<'_>) {
    let body = |w: &mut Writer| {
        for (member, variant) in &of.members {
            let at = format!("Self::{}", member.place());
            let source = Source::Reference("value");
            let set = setter(member_type(member.field), "block", &at, &source, member.field);
            let pattern = format!("Some({}::{}::{variant}(value))", plan.inner(), of.owned);
            match w.fits(pattern.len() + set.len() + " => ,".len()) {
                true => line!(w, "{pattern} => {set},"),
                false => block!(w, |w| line!(w, "{set}"), "{pattern} =>"),
            }
        }
        line!(w, "None => {{}}");
    };
    block!(w, body, "match &self.{}", of.ident.escaped());
}

/// How a value is at hand.
enum Source<'s> {
    /// An expression for the value's place, such as `self.name`.
    Place(&'s str),
    /// The name of a reference to it.
    Reference(&'s str),
}

/// A call that sets a single value, without a semicolon.
fn setter(of: &Type, to: &str, at: &str, from: &Source<'_>, field: &Field) -> String {
    let (value, reference) = match from {
        Source::Place(place) => ((*place).to_owned(), format!("&{place}")),
        Source::Reference(name) => (format!("*{name}"), (*name).to_owned()),
    };
    match of {
        Type::String => format!("{to}.set_str({at}, {reference})"),
        Type::Bytes => format!("{to}.set_bytes({at}, {reference})"),
        Type::Enum(_) => format!("{to}.set_i32({at}, {}.number())", reference.trim_start_matches('&')),
        Type::Message(_) if field.closes_cycle => format!("{to}.set_message({at}, &**{reference})"),
        Type::Message(_) => format!("{to}.set_message({at}, {reference})"),
        _ => format!("{to}.set_{}({at}, {value})", types::scalar(of).unwrap_or_default()),
    }
}

/// A condition: the value is not the zero that stands for absence.
fn is_set(of: &Type, value: &str) -> String {
    match of {
        Type::Bool => value.to_owned(),
        Type::String | Type::Bytes => format!("!{value}.is_empty()"),
        Type::Enum(_) => format!("{value}.number() != 0"),
        // Negative zero is a value of its own.
        Type::F32 | Type::F64 => format!("{value}.to_bits() != 0"),
        _ => format!("{value} != 0"),
    }
}

fn write_list(w: &mut Writer, of: &Type, at: &str, source: &str) {
    let many = |w: &mut Writer, item: &str, values: &str| {
        line!(w, "let mut list = block.list::<{item}>({at});");
        line!(w, "list.reserve({source}.len());");
        line!(w, "list.extend({values});");
    };
    match of {
        Type::String => many(w, "str", &format!("&{source}")),
        Type::Bytes => many(w, "[u8]", &format!("&{source}")),
        Type::Enum(_) => many(w, "i32", &format!("{source}.iter().map(|value| value.number())")),
        Type::Message(_) => line!(w, "block.extend_messages({at}, &{source});"),
        _ => line!(w, "block.set_{}s({at}, &{source});", types::scalar(of).unwrap_or_default()),
    }
}

fn write_map(w: &mut Writer, entry: &MapEntry, at: &str, source: &str, scope: &Scope<'_>) {
    line!(w, "let mut list = block.blocks::<()>({at}, {});", entry.layout.block_bytes);
    line!(w, "list.reserve({source}.len());");
    let body = |w: &mut Writer| {
        line!(w, "let mut entry = list.push_block();");
        line!(w, "{};", entry_setter(&entry.key, "entry", entry.key_at, "key", scope));
        line!(w, "{};", entry_setter(&entry.value, "entry", entry.value_at, "value", scope));
    };
    block!(w, body, "for (key, value) in &{source}");
}

/// A call that sets an entry's key or value from the reference `from`.
fn entry_setter(of: &Type, to: &str, at: (u32, u32), from: &str, scope: &Scope<'_>) -> String {
    let entry_field = Field::unnamed(of.clone());
    let at = place_literal(at, scope);
    setter(of, to, &at, &Source::Reference(from), &entry_field)
}
