//! Enums: a struct around the number, with a constant per value.
//!
//! Protobuf's enums are open: a peer with a newer schema sends numbers this one does not declare. A Rust `enum` cannot
//! hold them, a bare `i32` has no type. A struct of one number with constants named like variants reads like an enum
//! (`Color::Red`, in patterns too), keeps what it does not know, and takes aliases (`allow_alias`) in its stride.

use super::docs;
use super::ident::{Taken, variant};
use super::scope::Scope;
use super::writer::{Writer, block, line};
use crate::model::{Enum, EnumValue};

/// Renders an enum declared in `scope`.
pub(super) fn render(w: &mut Writer, of: &Enum, scope: &Scope<'_>) {
    let name = &scope.names.of(&of.full_name).owned;
    let values = variants(of);
    w.gap();
    docs::notes(w, &of.notes, &format!("Enum `{}`.", of.full_name));
    scope.type_attributes(w, &of.full_name);
    line!(w, "#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]");
    block!(w, |w| line!(w, "number: i32,"), "pub struct {name}");
    w.gap();
    line!(w, "#[allow(non_upper_case_globals, deprecated)]");
    block!(
        w,
        |w| {
            constants(w, &values);
            numbers(w);
            text(w, of, scope);
        },
        "impl {name}"
    );
    traits(w, of, name, scope);
}

/// Values with the names of their constants.
fn variants(of: &Enum) -> Vec<(&EnumValue, String)> {
    let mut taken = Taken::default();
    of.values.iter().map(|value| (value, taken.take(variant(&of.name, &value.name)).escaped())).collect()
}

fn constants(w: &mut Writer, values: &[(&EnumValue, String)]) {
    for (value, name) in values {
        docs::notes(w, &value.notes, &format!("`{}`", value.name));
        line!(w, "pub const {name}: Self = Self {{ number: {} }};", value.number);
    }
}

fn numbers(w: &mut Writer) {
    w.gap();
    line!(w, "/// The value with this number, declared or not.");
    block!(w, |w| line!(w, "Self {{ number }}"), "pub const fn new(number: i32) -> Self");
    w.gap();
    line!(w, "/// The number.");
    block!(w, |w| line!(w, "self.number"), "pub const fn number(self) -> i32");
    w.gap();
    line!(w, "/// Whether the number is declared.");
    block!(w, |w| line!(w, "self.as_str_name().is_some()"), "pub fn is_known(self) -> bool");
}

fn text(w: &mut Writer, of: &Enum, scope: &Scope<'_>) {
    let mut seen = std::collections::HashSet::new();
    w.gap();
    line!(w, "/// The name in the `.proto` file; the first one, if several share the number.");
    block!(
        w,
        |w| block!(
            w,
            |w| {
                for value in of.values.iter().filter(|value| seen.insert(value.number)) {
                    line!(w, "{} => Some({:?}),", value.number, value.name);
                }
                line!(w, "_ => None,");
            },
            "match self.number"
        ),
        "pub fn as_str_name(self) -> {}",
        scope.option("&'static str")
    );
    w.gap();
    line!(w, "/// The value with this name in the `.proto` file.");
    block!(
        w,
        |w| block!(
            w,
            |w| {
                for value in &of.values {
                    line!(w, "{:?} => Some(Self::new({})),", value.name, value.number);
                }
                line!(w, "_ => None,");
            },
            "match name"
        ),
        "pub fn from_str_name(name: &str) -> {}",
        scope.option("Self")
    );
}

fn traits(w: &mut Writer, of: &Enum, name: &str, scope: &Scope<'_>) {
    let default = of.values.first().map_or(0, |value| value.number);
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| block!(w, |w| line!(w, "Self::new({default})"), "fn default() -> Self"),
        "impl {} for {name}",
        scope.prelude("::core::default::Default")
    );
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| {
            block!(
                w,
                |w| block!(
                    w,
                    |w| {
                        line!(w, "Some(name) => f.write_str(name),");
                        line!(w, "None => ::core::fmt::Debug::fmt(&self.number, f),");
                    },
                    "match self.as_str_name()"
                ),
                "fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result"
            );
        },
        "impl ::core::fmt::Debug for {name}"
    );
    let element = scope.runtime("Element");
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| {
            line!(w, "const BYTES: usize = 4;");
            w.gap();
            let arguments = format!("_: {}<'a>, chunk: &[u8]", scope.runtime("View"));
            let number = "chunk.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes))";
            block!(w, |w| line!(w, "Self::new({number})"), "fn read({arguments}) -> Self");
        },
        "impl<'a> {element}<'a> for {name}"
    );
    let from = scope.prelude("::core::convert::From");
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| block!(w, |w| line!(w, "Self::new(number)"), "fn from(number: i32) -> Self"),
        "impl {from}<i32> for {name}"
    );
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| block!(w, |w| line!(w, "value.number()"), "fn from(value: {name}) -> Self"),
        "impl {from}<{name}> for i32"
    );
}
