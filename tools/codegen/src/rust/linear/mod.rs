//! The `Message` impl: plain struct to linear message and back.

mod read;
mod write;

use super::plan::Plan;
use super::scope::Scope;
use super::writer::{SOFT, Writer, block, line};
use crate::model::Field;

/// Fields one generated function deals with. The compiler's time grows faster than a function does: at thousands of
/// fields in one it takes minutes.
const FIELDS_PER_FUNCTION_MAX: usize = 128;

/// Renders the places of all fields and the `Message` impl of a message declared in `scope`.
pub(super) fn render(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    places(w, plan, scope);
    let owned = &plan.names.owned;
    w.gap();
    scope.allow_deprecated(w);
    block!(
        w,
        |w| {
            let (view, extent) = (&plan.names.view, scope.runtime("Extent"));
            line!(w, "type View<'a> = {view}<'a>;");
            let memory = scope.extent();
            line!(w, "type Builder<'b, {memory}: {extent} + 'b> = {}<'b, {memory}>;", plan.names.builder);
            w.gap();
            line!(w, "const FULL_NAME: &'static str = {:?};", plan.message.full_name);
            line!(w, "const FINGERPRINT: u64 = {:#018x};", plan.message.layout.fingerprint);
            line!(w, "const BLOCK_BYTES: u32 = {};", plan.message.layout.block_bytes);
            w.gap();
            write::method(w, plan, scope);
            w.gap();
            read::method(w, plan, scope);
        },
        "impl {} for {owned}",
        scope.runtime("Message")
    );
    if is_wide(plan) {
        parts(w, plan, scope);
    }
}

/// Whether the struct has so many fields that the work is divided among several functions.
fn is_wide(plan: &Plan<'_>) -> bool {
    plan.items.len() > FIELDS_PER_FUNCTION_MAX
}

/// The names of the functions that the method `name` of a wide message calls.
fn parts_named(name: &str, plan: &Plan<'_>) -> Vec<String> {
    plan.parts(name, plan.items.len().div_ceil(FIELDS_PER_FUNCTION_MAX))
}

/// The functions that the methods of a wide message call.
fn parts(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    w.gap();
    scope.allow_deprecated(w);
    let body = |w: &mut Writer| {
        let (writers, readers) = (parts_named("write", plan), parts_named("read", plan));
        let names = writers.iter().zip(&readers);
        for (items, (writer, reader)) in plan.items.chunks(FIELDS_PER_FUNCTION_MAX).zip(names) {
            write::part(w, writer, items, plan, scope);
            read::part(w, reader, items, plan, scope);
        }
    };
    block!(w, body, "impl {}", plan.names.owned);
}

/// Constants that say where each field lies.
fn places(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    if plan.items.is_empty() {
        return;
    }
    let (field_at, oneof_at) = (scope.runtime("FieldAt"), scope.runtime("OneofAt"));
    w.gap();
    line!(w, "/// Where the fields lie in a linear message.");
    scope.allow_deprecated(w);
    let body = |w: &mut Writer| {
        for of in plan.fields() {
            let Field { slot, bit, .. } = of.field;
            line!(w, "pub const {}: {field_at} = {field_at}::new({slot}, {bit});", of.place());
        }
        for of in plan.oneofs() {
            let bits: Vec<String> =
                of.members.iter().map(|(member, _)| member.field.bit.to_string()).collect();
            let (slot, bytes) = (of.oneof.slot, of.oneof.slot_bytes);
            let value = format!("{oneof_at}::new({slot}, {bytes}, &[{}])", bits.join(", "));
            line!(w, "pub const {}: {oneof_at}<'static> ={SOFT}    {value};", of.place());
        }
    };
    block!(w, body, "impl {}", plan.names.owned);
}

/// `FieldAt::new(slot, bit)`, for entries of maps, which have no constants.
pub(super) fn place_literal(at: (u32, u32), scope: &Scope<'_>) -> String {
    format!("{}::new({}, {})", scope.runtime("FieldAt"), at.0, at.1)
}
