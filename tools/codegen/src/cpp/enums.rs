//! Enums, and protobuf's functions for their names.

use super::names::{CppNames, TakenNames};
use super::value::{int, quoted};
use super::{comment, escaped};
use crate::model::Enum;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Those of a package.
pub(super) struct Enums<'m> {
    all: Vec<NamedEnum<'m>>,
    /// Where in `all` one is, by its full name.
    places: BTreeMap<&'m str, usize>,
}

struct NamedEnum<'m> {
    of: &'m Enum,
    class: String,
    /// `Color_Name`, `Color_Parse`, `Color_IsValid`, or what they are called where something else has that name.
    functions: [String; 3],
}

const FUNCTIONS: [&str; 3] = ["Name", "Parse", "IsValid"];

impl<'m> Enums<'m> {
    pub(super) fn new(enums: Vec<&'m Enum>, names: &CppNames, scope: &mut TakenNames) -> Self {
        let class = |of: &Enum| names.get(&of.full_name).class;
        for each in &enums {
            each.values.iter().for_each(|value| _ = scope.take(enumerator(each, &class(each), &value.name)));
        }
        let all: Vec<NamedEnum<'m>> = enums
            .into_iter()
            .map(|of| {
                let class = class(of);
                let functions = FUNCTIONS.map(|function| scope.take(format!("{class}_{function}")));
                NamedEnum { of, class, functions }
            })
            .collect();
        let places = all.iter().enumerate().map(|(at, each)| (each.of.full_name.as_str(), at)).collect();
        Self { all, places }
    }

    pub(super) fn write(&self, out: &mut String) {
        for each in &self.all {
            each.write(out);
            each.write_functions(out);
        }
    }

    /// The functions of an enum within a message, under its own name in the message's class.
    pub(super) fn write_nested(&self, out: &mut String, of: &Enum) {
        let Some(NamedEnum { class, functions: [name, parse, is_valid], .. }) =
            self.places.get(of.full_name.as_str()).and_then(|at| self.all.get(*at))
        else {
            return;
        };
        let own = FUNCTIONS.map(|function| format!("{}_{function}", of.name));
        if of.values.iter().any(|value| own.contains(&value.name)) {
            return;
        }
        let [own_name, own_parse, own_is_valid] = own;
        let _ = writeln!(
            out,
            "    static const ::std::string &{own_name}(int value) {{ return {name}(value); }}\n    \
             static bool {own_parse}(::std::string_view name, {class} *value) {{ return {parse}(name, value); }}\n    \
             static bool {own_is_valid}(int value) {{ return {is_valid}(value); }}"
        );
    }
}

impl NamedEnum<'_> {
    fn write(&self, out: &mut String) {
        let Self { of, class, .. } = self;
        out.push_str(&comment(&of.notes, ""));
        let _ = writeln!(out, "enum {class} : int {{");
        for value in &of.values {
            out.push_str(&comment(&value.notes, "    "));
            let name = enumerator(of, class, &value.name);
            let _ = writeln!(out, "    {name} = {},", int(value.number.into()));
        }
        out.push_str("};\n\n");
    }

    fn write_functions(&self, out: &mut String) {
        let Self { of, class, functions: [name, parse, is_valid] } = self;
        // Of names for one number the first counts.
        let mut seen = BTreeSet::new();
        let numbers: Vec<_> = of.values.iter().filter(|value| seen.insert(value.number)).collect();
        let cases: String =
            numbers.iter().map(|value| format!("    case {}:\n", int(value.number.into()))).collect();
        let named: String = numbers
            .iter()
            .map(|value| {
                let (number, name) = (int(value.number.into()), quoted(value.name.as_bytes()));
                format!(
                    "    case {number}: {{\n        static const ::std::string name({name});\n        \
                     return name;\n    }}\n"
                )
            })
            .collect();
        let parsed: String = of
            .values
            .iter()
            .map(|value| {
                let (number, name) = (int(value.number.into()), quoted(value.name.as_bytes()));
                format!("        {{{name}, {number}}},\n")
            })
            .collect();
        let _ = writeln!(
            out,
            "inline bool {is_valid}(int value) {{\n    switch (value) {{\n{cases}        return true;\n    \
             default: return false;\n    }}\n}}\n\
             // Nothing of a number that has no name.\n\
             inline const ::std::string &{name}(int value) {{\n    static const ::std::string none;\n    \
             switch (value) {{\n{named}    default: return none;\n    }}\n}}\n\
             // False of a name that no number has.\n\
             inline bool {parse}(::std::string_view name, {class} *value) {{\n    \
             static const struct {{ ::std::string_view name; int number; }} all[] = {{\n{parsed}    }};\n    \
             for (const auto &each : all) {{\n        if (each.name != name) continue;\n        \
             *value = static_cast<{class}>(each.number);\n        return true;\n    }}\n    return false;\n}}\n"
        );
    }
}

/// What an enum's value is called in its package.
fn enumerator(of: &Enum, class: &str, value: &str) -> String {
    let is_nested = class != escaped(&of.name);
    if is_nested { format!("{class}_{value}") } else { escaped(value) }
}
