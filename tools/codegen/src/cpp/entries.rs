//! Classes of the entries of maps.

use super::names::{ClassNames, CppNames};
use super::shell::{open_editor, open_fields};
use super::value::{plain, single};
use crate::model::{MapEntry, Type};
use std::fmt::Write;

/// The names of the classes of a map's entries.
pub(super) fn entry_names(class: &str) -> ClassNames {
    ClassNames::beside(class)
}

pub(super) fn entry_fields(out: &mut String, class: &str, entry: &MapEntry, names: &CppNames) {
    let own = entry_names(class);
    open_fields(out, &own.fields, "", class, entry.layout.into());
    let at = |(slot, bit): (u32, u32)| format!("{slot}, {bit}");
    let (_, key_value) = single(&entry.key, &at(entry.key_at), None, names);
    let (_, value_value) = single(&entry.value, &at(entry.value_at), entry.value_default.as_ref(), names);
    let _ = writeln!(
        out,
        "    auto key() const {{ return {key_value}; }}\n    auto value() const {{ return {value_value}; }}\n}};\n"
    );
}

pub(super) fn entry_editor(out: &mut String, class: &str, entry: &MapEntry, names: &CppNames) {
    open_editor(out, &entry_names(class));
    let set = |name: &str, of: &Type, (slot, bit): (u32, u32)| {
        let kind = plain(of, names);
        match of {
            Type::Message(name) => format!("    inline {} *mutable_value();\n", names.get(name).class_path()),
            Type::String | Type::Bytes => {
                format!("    void set_{name}({kind} value) {{ tl_set_text({slot}, {bit}, value); }}\n")
            }
            _ => format!("    void set_{name}({kind} value) {{ tl_set<{kind}>({slot}, {bit}, value); }}\n"),
        }
    };
    out.push_str(&set("key", &entry.key, entry.key_at));
    out.push_str(&set("value", &entry.value, entry.value_at));
    out.push_str("};\n\n");
}

pub(super) fn entry_definitions(out: &mut String, class: &str, entry: &MapEntry, names: &CppNames) {
    let (slot, bit) = entry.value_at;
    let fields = entry_names(class).fields;
    let (key_bit, value) = (
        entry.key_at.1,
        match &entry.value {
            Type::Message(name) => {
                let of = names.get(name).class_path();
                let _ = writeln!(
                    out,
                    "{of} *{class}::mutable_value() {{ return tl_mutable<{of}>({slot}, {bit}); }}"
                );
                "mutable_value()->tl_merge(from.value())"
            }
            _ => "set_value(from.value())",
        },
    );
    let _ = writeln!(
        out,
        "template <class Where> void {class}::tl_merge(const {fields}<Where> &from) {{\n    \
         tl_note(from);\n    if (from.tl_has({key_bit})) set_key(from.key());\n    \
         if (from.tl_has({bit})) {value};\n}}\n"
    );
}
