//! Views: messages read where they lie.

use super::docs;
use super::linear::place_literal;
use super::plan::{FieldPlan, Item, OneofPlan, Plan};
use super::scope::Scope;
use super::types::member_type;
use super::writer::{CHAIN, SOFT, Writer, block, line};
use super::{literal, types};
use crate::model::{Field, MapEntry, Shape, Type};

/// What an iterator over a view borrows: the message, not the view.
const CAPTURES: &str = " + use<'a>";
const EXACT_SIZE: &str = "::core::iter::ExactSizeIterator";

/// Renders the view of a message declared in `scope`.
pub(super) fn render(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let (name, owned) = (&plan.names.view, &plan.names.owned);
    w.gap();
    line!(w, "/// `{owned}`, read where it lies.");
    line!(w, "#[derive(Clone, Copy)]");
    block!(w, |w| line!(w, "view: {}<'a>,", scope.runtime("View")), "pub struct {name}<'a>");
    if !plan.items.is_empty() {
        w.gap();
        scope.allow_deprecated(w);
        scope.allow_names(w, plan.items.iter().map(Item::ident));
        block!(
            w,
            |w| plan.items.iter().for_each(|item| accessors(w, item, plan, scope)),
            "impl<'a> {name}<'a>"
        );
    }
    traits(w, plan, scope);
}

/// An expression for the value of a field that is present, or for what stands for it when it is not.
pub(super) fn value(of: &Type, view: &str, at: &str, scope: &Scope<'_>) -> String {
    match of {
        Type::String => format!("{view}.str({at})"),
        Type::Bytes => format!("{view}.bytes({at})"),
        Type::Enum(name) => format!("{}::new({view}.i32({at}))", scope.owned(name)),
        Type::Message(_) => format!("{view}.message({at})"),
        _ => format!("{view}.{}({at})", types::scalar(of).unwrap_or_default()),
    }
}

/// An expression for an entry's key or value; a message that is absent from its entry is an empty one.
fn entry_value(of: &Type, at: (u32, u32), scope: &Scope<'_>) -> String {
    let at = place_literal(at, scope);
    match of {
        Type::Message(_) => format!("entry.message({at}).unwrap_or_default().into()"),
        _ => value(of, "entry", &at, scope),
    }
}

/// `plain`, an expression for the value at `at`, or the default if that is absent.
pub(super) fn or_default(plain: String, default: Option<String>, view: &str, at: &str) -> String {
    match default {
        Some(default) => {
            format!("if {view}.has({at}) {{{SOFT}    {plain}{SOFT}}} else {{{SOFT}    {default}{SOFT}}}")
        }
        None => plain,
    }
}

fn accessors(w: &mut Writer, item: &Item<'_>, plan: &Plan<'_>, scope: &Scope<'_>) {
    match item {
        Item::Field(of) => field(w, of, plan, scope),
        Item::Oneof(of) => oneof(w, of, plan, scope),
    }
}

fn field(w: &mut Writer, of: &FieldPlan<'_>, plan: &Plan<'_>, scope: &Scope<'_>) {
    let FieldPlan { field, ident, .. } = of;
    let at = format!("{}::{}", plan.names.owned, of.place());
    let (result, body) = match &field.shape {
        Shape::Repeated(of) => list(of, &at, scope),
        Shape::Map(entry) => map(entry, &at, scope),
        Shape::Implicit(of) | Shape::Optional(of) | Shape::Required(of) => single(field, of, &at, scope),
    };
    w.gap();
    docs::notes(w, &field.notes, &format!("Field `{}`.", field.name));
    if matches!(field.shape, Shape::Map(_)) {
        line!(w, "///");
        line!(w, "/// Entries as they came: of several with one key, the last counts.");
    }
    w.function(&format!("pub fn {}", ident.escaped()), &["&self".to_owned()], &tail(w, &result), |w| {
        line!(w, "{body}");
    });
    if matches!(field.shape, Shape::Optional(_) | Shape::Required(_)) {
        w.gap();
        line!(w, "/// Whether `{}` is set.", field.name);
        block!(w, |w| line!(w, "self.view.has({at})"), "pub fn {}(&self) -> bool", of.methods.has);
    }
}

/// The result of a method. One that is too long for a line is broken within its angle brackets, as rustfmt has it.
fn tail(w: &Writer, result: &str) -> String {
    let split =
        result.strip_suffix(CAPTURES).and_then(|iterator| iterator.strip_suffix('>')?.split_once('<'));
    match split {
        Some((iterator, item)) if !w.fits(") -> ".len() + result.len() - CAPTURES.len()) => {
            format!(" -> {iterator}<\n    {item},\n>{CAPTURES}")
        }
        _ => format!(" -> {result}"),
    }
}

fn single(field: &Field, of: &Type, at: &str, scope: &Scope<'_>) -> (String, String) {
    let plain = value(of, "self.view", at, scope);
    match (of, &field.default) {
        (Type::Message(name), _) => {
            let view = scope.view(name, "'a");
            let from = scope.prelude("::core::convert::From");
            (
                scope.option(&view),
                format!("{}.map({from}::from)", plain.replace(".message", &format!("{CHAIN}.message"))),
            )
        }
        (_, default) => {
            let default = default.as_ref().map(|value| literal::default_value(value, of, scope));
            (types::viewed(of, "'a", scope), or_default(plain, default, "self.view", at))
        }
    }
}

fn list(of: &Type, at: &str, scope: &Scope<'_>) -> (String, String) {
    if let Some(name) = types::scalar(of).filter(|_| *of != Type::Bool) {
        return (format!("&'a [{name}]"), format!("self.view.{name}s({at})"));
    }
    (
        format!("{}<'a, {}>", scope.runtime("List"), types::viewed(of, "'a", scope)),
        format!("self.view.list({at})"),
    )
}

fn map(entry: &MapEntry, at: &str, scope: &Scope<'_>) -> (String, String) {
    let iterator = scope.prelude(EXACT_SIZE);
    let pair =
        format!("({}, {})", types::viewed(&entry.key, "'a", scope), types::viewed(&entry.value, "'a", scope));
    let key = entry_value(&entry.key, entry.key_at, scope);
    let value = entry_value(&entry.value, entry.value_at, scope);
    let default =
        entry.value_default.as_ref().map(|value| literal::default_value(value, &entry.value, scope));
    let value = or_default(value, default, "entry", &place_literal(entry.value_at, scope));
    let value = value.replace(SOFT, &format!("{SOFT}    "));
    let entries = format!("self.view{CHAIN}.list::<{}<'a>>({at}){CHAIN}.iter()", scope.runtime("View"));
    let result = format!("impl {iterator}<Item = {pair}>{CAPTURES}");
    let pair = format!("|entry| {{\n    let key = {key};\n    let value = {value};\n    (key, value)\n}}");
    (result, format!("{entries}{CHAIN}.map({pair})"))
}

fn oneof(w: &mut Writer, of: &OneofPlan<'_>, plan: &Plan<'_>, scope: &Scope<'_>) {
    let inner = plan.inner();
    let view = format!("{inner}::{}{}", of.view, if of.borrows() { "<'a>" } else { "" });
    w.gap();
    docs::notes(w, &of.oneof.notes, &format!("Oneof `{}`.", of.oneof.name));
    let body = |w: &mut Writer| {
        for (member, variant) in &of.members {
            let at = format!("{}::{}", plan.names.owned, member.place());
            let kind = member_type(member.field);
            let value = match kind {
                Type::Message(_) => format!("self.view.message({at}).unwrap_or_default().into()"),
                _ => value(kind, "self.view", &at, scope),
            };
            let result = format!("return Some({inner}::{}::{variant}(", of.view);
            let body = |w: &mut Writer| {
                if w.fits(result.len() + value.len() + ")); ".len()) {
                    return line!(w, "{result}{value}));");
                }
                line!(w, "let value = {value};");
                line!(w, "{result}value));");
            };
            block!(w, body, "if self.view.has({at})");
        }
        line!(w, "None");
    };
    block!(w, body, "pub fn {}(&self) -> {}", of.ident.escaped(), scope.option(&view));
}

/// Renders the enum of a oneof's viewed values; `scope` is the module of the message's nested types.
pub(super) fn render_oneof(w: &mut Writer, of: &OneofPlan<'_>, plan: &Plan<'_>, scope: &Scope<'_>) {
    let generics = if of.borrows() { "<'a>" } else { "" };
    w.gap();
    line!(w, "/// The oneof `{}` of `{}`, read where it lies.", of.oneof.name, plan.names.view);
    scope.allow_deprecated(w);
    line!(w, "#[derive(Clone, Copy, Debug)]");
    block!(
        w,
        |w| for (member, variant) in &of.members {
            docs::notes(w, &member.field.notes, "");
            line!(w, "{variant}({}),", types::viewed(member_type(member.field), "'a", scope));
        },
        "pub enum {}{generics}",
        of.view
    );
}

fn traits(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let (name, owned) = (&plan.names.view, &plan.names.owned);
    let (view, message) = (scope.runtime("View"), scope.runtime("Message"));
    let from = scope.prelude("::core::convert::From");
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| block!(w, |w| line!(w, "Self {{ view }}"), "fn from(view: {view}<'a>) -> Self"),
        "impl<'a> {from}<{view}<'a>> for {name}<'a>"
    );
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| block!(w, |w| line!(w, "view.view"), "fn from(view: {name}<'a>) -> Self"),
        "impl<'a> {from}<{name}<'a>> for {view}<'a>"
    );
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| block!(w, |w| line!(w, "{message}::read(view)"), "fn from(view: {name}<'_>) -> Self"),
        "impl {from}<{name}<'_>> for {owned}"
    );
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| block!(
            w,
            |w| line!(w, "::core::fmt::Debug::fmt(&<{owned} as {message}>::read(*self), f)"),
            "fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result"
        ),
        "impl ::core::fmt::Debug for {name}<'_>"
    );
}
