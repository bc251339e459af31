//! Builders: messages written in place, in any order.

use super::docs;
use super::linear::place_literal;
use super::plan::{FieldPlan, Item, OneofPlan, Plan};
use super::scope::Scope;
use super::types;
use super::types::member_type;
use super::writer::{CHAIN, SOFT, Writer, block, line};
use crate::model::{MapEntry, Notes, Shape, Type};

/// Renders the builder of a message declared in `scope`.
pub(super) fn render(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let (name, owned) = (&plan.names.builder, &plan.names.owned);
    let (block_type, extent, memory) = (scope.runtime("Block"), scope.runtime("Extent"), scope.extent());
    w.gap();
    line!(w, "/// `{owned}`, built in place.");
    line!(w, "#[derive(Debug)]");
    block!(w, |w| line!(w, "block: {block_type}<'b, {memory}>,"), "pub struct {name}<'b, {memory}>");
    if !plan.items.is_empty() {
        w.gap();
        scope.allow_deprecated(w);
        scope.allow_names(w, plan.fields().map(|field| &field.ident));
        block!(w, |w| methods(w, plan, scope), "impl<{memory}: {extent}> {name}<'_, {memory}>");
    }
    let from = scope.prelude("::core::convert::From");
    w.gap();
    block!(
        w,
        |w| block!(w, |w| line!(w, "Self {{ block }}"), "fn from(block: {block_type}<'b, {memory}>) -> Self"),
        "impl<'b, {memory}> {from}<{block_type}<'b, {memory}>> for {name}<'b, {memory}>"
    );
    w.gap();
    block!(
        w,
        |w| block!(w, |w| line!(w, "builder.block"), "fn from(builder: {name}<'b, {memory}>) -> Self"),
        "impl<'b, {memory}> {from}<{name}<'b, {memory}>> for {block_type}<'b, {memory}>"
    );
}

fn methods(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    for item in &plan.items {
        match item {
            Item::Field(of) => field(w, &Methods::of(of, plan, None, scope)),
            Item::Oneof(of) => members(w, of, plan, scope),
        }
    }
}

fn field(w: &mut Writer, methods: &Methods<'_>) {
    match &methods.of.field.shape {
        Shape::Implicit(kind) | Shape::Optional(kind) | Shape::Required(kind) => methods.single(w, kind),
        Shape::Repeated(kind) => methods.list(w, kind),
        Shape::Map(entry) => methods.map(w, entry),
    }
}

fn members(w: &mut Writer, oneof: &OneofPlan<'_>, plan: &Plan<'_>, scope: &Scope<'_>) {
    for (member, _) in &oneof.members {
        Methods::of(member, plan, Some(oneof), scope).single(w, member_type(member.field));
    }
}

/// The methods of one field.
struct Methods<'r> {
    of: &'r FieldPlan<'r>,
    /// The constant that says where the field lies.
    at: String,
    /// The constant of the oneof that is to be switched first.
    oneof: Option<String>,
    scope: &'r Scope<'r>,
}

/// A method about to be written.
struct Method<'s> {
    docs: String,
    name: &'s str,
    argument: String,
    result: String,
    body: Vec<String>,
}

impl<'r> Methods<'r> {
    fn of(
        of: &'r FieldPlan<'r>,
        plan: &Plan<'_>,
        oneof: Option<&OneofPlan<'_>>,
        scope: &'r Scope<'r>,
    ) -> Self {
        let constant = |place: String| format!("{}::{place}", plan.names.owned);
        Self { of, at: constant(of.place()), oneof: oneof.map(|oneof| constant(oneof.place())), scope }
    }

    fn single(&self, w: &mut Writer, of: &Type) {
        let (at, set) = (&self.at, &self.of.methods.set);
        match of {
            Type::Message(name) => {
                let owned = self.scope.owned(name);
                let child = format!("self.block.child::<{owned}>({at})");
                self.child(w, "Builds", &self.of.methods.child, name, vec![child]);
                let body = format!("self.block.set_message({at}, value);");
                self.setter(w, "Sets", set, format!("value: &{owned}"), vec![body]);
            }
            _ => {
                let argument = format!("value: {}", self.argument(of));
                self.setter(w, "Sets", set, argument, vec![set_value(of, "self.block", at, "value")]);
            }
        }
        if *of == Type::Bytes {
            self.filler(w, "u8", format!("self.block.fill_bytes({at}, count)"));
        }
    }

    fn list(&self, w: &mut Writer, of: &Type) {
        let (at, names) = (&self.at, &self.of.methods);
        match of {
            Type::Message(name) => {
                let owned = self.scope.owned(name);
                let list = format!("self.block{CHAIN}.messages::<{owned}>({at})");
                self.child(
                    w,
                    "Builds one more of",
                    &names.add,
                    name,
                    vec![format!("{list}{CHAIN}.into_push()")],
                );
                let result = format!(
                    "{}<'_, {}, {owned}>",
                    self.scope.runtime("MessagesBuilder"),
                    self.scope.extent()
                );
                let docs = format!("Adds to `{}`, several at once.", self.of.field.name);
                let argument = String::new();
                self.method(w, Method { docs, name: &names.child, argument, result, body: vec![list] });
            }
            Type::String | Type::Bytes | Type::Enum(_) | Type::Bool => self.elements(w, of),
            _ => {
                let name = types::scalar(of).unwrap_or_default();
                let set = format!("self.block.set_{name}s({at}, values);");
                self.setter(w, "Sets", &names.set, format!("values: &[{name}]"), vec![set]);
                self.filler(w, name, format!("self.block.fill_{name}s({at}, count)"));
                let push = format!("self.block{CHAIN}.list::<{name}>({at}){CHAIN}.push(value);");
                self.setter(w, "Adds to", &names.add, format!("value: {name}"), vec![push]);
            }
        }
    }

    /// Lists whose elements do not lie as Rust has them.
    fn elements(&self, w: &mut Writer, of: &Type) {
        let (at, names) = (&self.at, &self.of.methods);
        let (item, one) = match of {
            Type::String => ("str", self.argument(of)),
            Type::Bytes => ("[u8]", self.argument(of)),
            Type::Enum(_) => ("i32", self.argument(of)),
            _ => ("bool", "bool".to_owned()),
        };
        let each = match of {
            Type::String | Type::Bytes => {
                format!(": {}<{item}>", self.scope.prelude("::core::convert::AsRef"))
            }
            _ => format!(" = {one}"),
        };
        let (value, values) = match of {
            Type::Enum(_) => ("value.number()", "values.into_iter().map(|value| value.number())"),
            _ => ("value", "values"),
        };
        let list = format!("self.block{CHAIN}.list::<{item}>({at})");
        let replace = vec![format!("self.block.clear({at});"), format!("{list}{CHAIN}.extend({values});")];
        let iterator = self.scope.prelude("::core::iter::IntoIterator");
        self.setter(w, "Sets", &names.set, format!("values: impl {iterator}<Item{each}>"), replace);
        let push = format!("{list}{CHAIN}.push({value});");
        self.setter(w, "Adds to", &names.add, format!("value: {one}"), vec![push]);
    }

    fn map(&self, w: &mut Writer, entry: &MapEntry) {
        let (scope, insert) = (self.scope, &self.of.methods.insert);
        let list = format!("self.block.blocks::<()>({}, {})", self.at, entry.layout.block_bytes);
        let value_at = place_literal(entry.value_at, scope);
        let mut body = vec![
            format!("let mut entry ={SOFT}    {list}.into_push_block();"),
            set_value(&entry.key, "entry", &place_literal(entry.key_at, scope), "key"),
        ];
        let key = format!("key: {}", self.argument(&entry.key));
        if let Type::Message(name) = &entry.value {
            body.push(format!("entry.into_child::<{}>({value_at})", scope.owned(name)));
            let docs = format!("Builds one more entry of `{}`.", self.of.field.name);
            let result = self.scope.builder(name, "'_");
            return self.method(w, Method { docs, name: insert, argument: key, result, body });
        }
        body.push(set_value(&entry.value, "entry", &value_at, "value"));
        let arguments = format!("{key}, value: {}", self.argument(&entry.value));
        self.setter(w, "Adds an entry to", insert, arguments, body);
    }

    /// A method that sets something and returns the builder.
    fn setter(&self, w: &mut Writer, does: &str, name: &str, argument: String, mut body: Vec<String>) {
        body.push("self".to_owned());
        let docs = format!("{does} `{}`.", self.of.field.name);
        self.method(w, Method { docs, name, argument, result: "&mut Self".to_owned(), body });
    }

    /// A method that hands out the builder of a message within.
    fn child(&self, w: &mut Writer, does: &str, name: &str, message: &str, body: Vec<String>) {
        let docs = format!("{does} `{}`.", self.of.field.name);
        let result = self.scope.builder(message, "'_");
        self.method(w, Method { docs, name, argument: String::new(), result, body });
    }

    /// A method that hands out zeros.
    fn filler(&self, w: &mut Writer, of: &str, body: String) {
        let name = &self.of.field.name;
        let docs = format!("Sets `{name}` to zeros to be filled in place; to none if there is no room.");
        let (argument, result) = ("count: usize".to_owned(), format!("&mut [{of}]"));
        self.method(w, Method { docs, name: &self.of.methods.fill, argument, result, body: vec![body] });
    }

    fn method(&self, w: &mut Writer, method: Method<'_>) {
        let Method { docs, name, argument, result, body } = method;
        let mut arguments = vec!["&mut self".to_owned()];
        arguments.extend(argument.split(", ").filter(|one| !one.is_empty()).map(str::to_owned));
        w.gap();
        docs::notes(w, &Notes { docs: Vec::new(), deprecated: self.of.field.notes.deprecated }, &docs);
        w.function(&format!("pub fn {name}"), &arguments, &format!(" -> {result}"), |w| {
            if let Some(oneof) = &self.oneof {
                line!(w, "self.block.switch({oneof}, {});", self.at);
            }
            body.iter().for_each(|body| line!(w, "{body}"));
        });
    }

    /// The type a value is passed as.
    fn argument(&self, of: &Type) -> String {
        match of {
            Type::String => "&str".to_owned(),
            Type::Bytes => "&[u8]".to_owned(),
            _ => types::owned(of, self.scope),
        }
    }
}

/// A statement that sets a single value other than a message from the argument `value`.
fn set_value(of: &Type, to: &str, at: &str, value: &str) -> String {
    match of {
        Type::String => format!("{to}.set_str({at}, {value});"),
        Type::Bytes => format!("{to}.set_bytes({at}, {value});"),
        Type::Enum(_) => format!("{to}.set_i32({at}, {value}.number());"),
        _ => format!("{to}.set_{}({at}, {value});", types::scalar(of).unwrap_or_default()),
    }
}
