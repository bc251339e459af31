//! How every class begins.

use super::names::ClassNames;
use super::value::quoted;
use std::fmt::Write;

pub(super) fn declare(out: &mut String, ClassNames { class, view, fields, .. }: &ClassNames) {
    let _ = writeln!(
        out,
        "class {class};\ntemplate <class Where> class {fields};\n\
         using {view} = {fields}<::trunkline::linear::View>;\n"
    );
}

/// Size of a block and presence words of a class.
pub(super) struct BlockSize(u32);

impl From<crate::model::Layout> for BlockSize {
    fn from(layout: crate::model::Layout) -> Self {
        Self(layout.block_bytes)
    }
}

pub(super) fn open_fields(
    out: &mut String,
    fields: &str,
    bases: &str,
    full_name: &str,
    BlockSize(bytes): BlockSize,
) {
    let _ = writeln!(
        out,
        "template <class Where> class {fields} : public ::trunkline::linear::Reader<Where>{bases} {{\n  public:\n    \
         using ::trunkline::linear::Reader<Where>::Reader;\n    {fields}() = default;\n    \
         static constexpr uint32_t kBlockBytes = {bytes};\n    \
         static constexpr const char *kName = {};",
        quoted(full_name.as_bytes())
    );
}

pub(super) fn open_editor(out: &mut String, ClassNames { class, view, fields, .. }: &ClassNames) {
    let base = format!("::trunkline::linear::Editor<{class}, {fields}<::trunkline::linear::Part>>");
    let _ = writeln!(
        out,
        "class {class} : public {base} {{\n  public:\n    {class}() = default;\n    \
         {class}(const {class} &other) : {base}() {{ CopyFrom(other); }}\n    \
         {class}({class} &&other) {{ tl_steal(::std::move(other)); }}\n    \
         {class}({view} view) {{ CopyFrom(view); }}\n    \
         {class} &operator=(const {class} &other) {{\n        CopyFrom(other);\n        return *this;\n    }}\n    \
         {class} &operator=({class} &&other) {{\n        tl_steal(::std::move(other));\n        \
         return *this;\n    }}\n    \
         void CopyFrom(const {class} &from) {{\n        \
         if (this == &from || tl_copy_whole(from)) return;\n        \
         tl_copy(from);\n    }}\n    \
         template <class Where> void CopyFrom(const {fields}<Where> &from) {{ tl_copy(from); }}\n    \
         template <class Where> void tl_merge(const {fields}<Where> &from);"
    );
}
