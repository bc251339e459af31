//! All that is generated for one message.

use super::builder;
use super::enums;
use super::linear;
use super::oneof;
use super::plan::Plan;
use super::scope::Scope;
use super::structs;
use super::view;
use super::writer::{Writer, block, line};
use crate::model::Message;

/// Renders `message`, declared in `scope`, and the module of its nested types. Recursion is as deep as declarations
/// nest, which the schema limits.
pub(super) fn render(w: &mut Writer, message: &Message, scope: &Scope<'_>) {
    let plan = Plan::new(message, scope);
    structs::render(w, &plan, scope);
    linear::render(w, &plan, scope);
    view::render(w, &plan, scope);
    builder::render(w, &plan, scope);
    if plan.has_inner() {
        let mut module = scope.module().clone();
        module.push(plan.inner().to_owned());
        let inner = Scope::new(scope.options, scope.names, module, &message.full_name);
        w.gap();
        line!(w, "/// Types declared within `{}`.", message.name);
        if scope.module().last().is_some_and(|outer| outer == plan.inner()) {
            line!(w, "#[allow(clippy::module_inception)]");
        }
        block!(w, |w| inner.render(w, |w| nested(w, &plan, &inner)), "pub mod {}", plan.inner());
    }
}

fn nested(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    for of in plan.oneofs() {
        oneof::render(w, of, plan, scope);
        view::render_oneof(w, of, plan, scope);
    }
    for message in &plan.message.messages {
        render(w, message, scope);
    }
    for enumeration in &plan.message.enums {
        enums::render(w, enumeration, scope);
    }
}
