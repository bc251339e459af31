//! Services: a description, a client, and a trait with its server.

use super::docs;
use super::ident::{Ident, Taken, camel, escaped, shouty, snake};
use super::scope::Scope;
use super::writer::{Writer, block, line};
use crate::model::{Method, Service};

/// A service with the Rust names of its parts.
struct Plan<'m> {
    service: &'m Service,
    /// The static that describes it.
    description: String,
    /// What client and server are named after.
    name: String,
    /// The trait.
    interface: String,
    methods: Vec<(&'m Method, Ident)>,
}

/// Renders a service of the package `scope`.
pub(super) fn render(w: &mut Writer, service: &Service, descriptor_set: &str, scope: &mut Scope<'_>) {
    let mut taken = Taken::default();
    // The client's constructor and what every client derives.
    for reserved in ["new", "clone"] {
        taken.take(reserved);
    }
    let plan = Plan {
        service,
        description: scope.take(format!("{}_SERVICE", shouty(&service.name))).escaped(),
        name: camel(&service.name),
        interface: escaped(&camel(&service.name)),
        methods: service.methods.iter().map(|method| (method, taken.take(snake(&method.name)))).collect(),
    };
    description(w, &plan, descriptor_set, scope);
    if scope.options.client {
        module(w, &plan, "client", scope, client);
    }
    if scope.options.server {
        module(w, &plan, "server", scope, |w, plan, scope| {
            interface(w, plan, scope);
            server(w, plan, scope);
        });
    }
}

fn description(w: &mut Writer, plan: &Plan<'_>, descriptor_set: &str, scope: &Scope<'_>) {
    let runtime = scope.runtime("ServiceDescription");
    w.gap();
    line!(w, "/// Service `{}`, as its `.proto` file describes it.", plan.service.full_name);
    let body = |w: &mut Writer| {
        line!(w, "name: {:?},", plan.service.full_name);
        line!(w, "descriptor_set: {descriptor_set},");
        methods(w, plan, scope);
    };
    w.bracket(format_args!("pub static {}: {runtime} = {runtime} {{", plan.description), "};", body);
}

fn methods(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let describe = |w: &mut Writer, method: &Method, open: &str, close: &str| {
        let pattern = format!("{}::{}", scope.runtime("Pattern"), words(method).pattern);
        w.compact(&format!("{open}{} {{", scope.runtime("MethodDescription")), close, |w| {
            line!(w, "path: {:?},", method.path);
            line!(w, "pattern: {pattern},");
        });
    };
    match plan.methods.as_slice() {
        [] => line!(w, "methods: &[],"),
        [(method, _)] => describe(w, method, "methods: &[", "}],"),
        methods => w.bracket(format_args!("methods: &["), "],", |w| {
            methods.iter().for_each(|(method, _)| describe(w, method, "", "},"));
        }),
    }
}

/// `mod <service>_<side>`, in which the library's words are short.
fn module<'r>(
    w: &mut Writer,
    plan: &Plan<'_>,
    side: &str,
    scope: &mut Scope<'r>,
    body: impl FnOnce(&mut Writer, &Plan<'_>, &Scope<'r>),
) {
    let name = scope.take(format!("{}_{side}", snake(&plan.service.name))).escaped();
    let mut inner = scope.inner(&name);
    inner.take(plan.name.as_str());
    w.gap();
    line!(w, "/// The {side} side of `{}`.", plan.service.full_name);
    w.may_be_unused();
    block!(w, |w| inner.render(w, |w| body(w, plan, &inner)), "pub mod {name}");
}

fn client(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let name = format!("{}Client", plan.name);
    w.gap();
    docs::notes(w, &plan.service.notes, &format!("Calls `{}`.", plan.service.full_name));
    line!(w, "#[derive(Clone, Debug)]");
    let body = |w: &mut Writer| {
        line!(w, "core: {},", scope.runtime("ClientCore"));
    };
    block!(w, body, "pub struct {name}");
    w.gap();
    allow_deprecated(w, plan, scope);
    scope.allow_names(w, plan.methods.iter().map(|(_, ident)| ident));
    block!(
        w,
        |w| {
            line!(w, "/// A client that calls through `channel`.");
            let core = scope.runtime("ClientCore");
            let new = format!("Self {{ core: {core}::new(channel, &super::{}) }}", plan.description);
            block!(w, |w| line!(w, "{new}"), "pub fn new(channel: {}) -> Self", scope.runtime("Channel"));
            for (index, (method, ident)) in plan.methods.iter().enumerate() {
                client_method(w, index, method, ident, scope);
            }
        },
        "impl {name}"
    );
}

fn client_method(w: &mut Writer, index: usize, method: &Method, ident: &Ident, scope: &Scope<'_>) {
    let words = words(method);
    let (input, output) = (scope.owned(&method.input), scope.owned(&method.output));
    w.gap();
    docs::notes(w, &method.notes, &format!("Calls `{}`.", method.path));
    let mut arguments = vec!["&self".to_owned()];
    let mut passed = index.to_string();
    if !method.client_streaming {
        arguments.push(format!("request: impl {}<{input}>", scope.runtime("IntoRequest")));
        passed.push_str(", request");
    }
    let tail = format!(" -> {}<{input}, {output}>", scope.runtime(words.call));
    w.function(&format!("pub fn {}", ident.escaped()), &arguments, &tail, |w| {
        line!(w, "self.core.{}({passed})", words.method);
    });
}

fn interface(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    w.gap();
    docs::notes(w, &plan.service.notes, &format!("Answers calls of `{}`.", plan.service.full_name));
    allow_deprecated(w, plan, scope);
    scope.allow_names(w, plan.methods.iter().map(|(_, ident)| ident));
    let bounds = format!("{} + {} + 'static", marker(scope, "Send"), marker(scope, "Sync"));
    block!(
        w,
        |w| for (method, ident) in &plan.methods {
            w.gap();
            docs::notes(w, &method.notes, &format!("Answers `{}`.", method.path));
            interface_method(w, method, ident, scope);
        },
        "pub trait {}: {bounds}",
        plan.interface
    );
}

fn interface_method(w: &mut Writer, method: &Method, ident: &Ident, scope: &Scope<'_>) {
    let (input, output) = (scope.owned(&method.input), scope.owned(&method.output));
    let mut arguments = vec!["&self".to_owned()];
    arguments.push(match method.client_streaming {
        true => format!("input: {}<{input}>", scope.runtime("Receiver")),
        false => format!("request: {}<{input}>", scope.runtime("Incoming")),
    });
    if method.server_streaming {
        arguments.push(format!("out: {}<{output}>", scope.runtime("Sender")));
    }
    let answer = match method.server_streaming {
        true => "()".to_owned(),
        false => format!("{}<{output}>", scope.runtime("Response")),
    };
    let (result, status) = (scope.prelude("::core::result::Result"), scope.runtime("Status"));
    let result = format!("{result}<{answer}, {status}>");
    let send = marker(scope, "Send");
    let mut tail = format!(" -> impl ::core::future::Future<Output = {result}> + {send};");
    // As rustfmt has it, what follows the last angle bracket does not count.
    if !w.fits(tail.len() + ")".len() - format!(" + {send};").len()) {
        tail = format!(" -> impl ::core::future::Future<\n    Output = {result},\n> + {send};");
    }
    w.signature(&format!("fn {}", ident.escaped()), &arguments, &tail);
}

fn server(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let (name, interface, served) = (format!("{}Server", plan.name), &plan.interface, scope.parameter("T"));
    let arc = scope.runtime("Arc");
    w.gap();
    line!(w, "/// Serves `{}` by a `{interface}`.", plan.service.full_name);
    line!(w, "#[derive(Debug)]");
    block!(w, |w| line!(w, "inner: {arc}<{served}>,"), "pub struct {name}<{served}>");
    w.gap();
    allow_deprecated(w, plan, scope);
    block!(
        w,
        |w| {
            line!(w, "/// A server that hands calls to `service`.");
            block!(
                w,
                |w| line!(w, "Self::from_arc({arc}::new(service))"),
                "pub fn new(service: {served}) -> Self"
            );
            w.gap();
            line!(w, "/// A server that shares `inner` with others.");
            block!(w, |w| line!(w, "Self {{ inner }}"), "pub fn from_arc(inner: {arc}<{served}>) -> Self");
        },
        "impl<{served}: {interface}> {name}<{served}>"
    );
    let clone = scope.prelude("::core::clone::Clone");
    w.gap();
    block!(
        w,
        |w| block!(w, |w| line!(w, "Self {{ inner: {arc}::clone(&self.inner) }}"), "fn clone(&self) -> Self"),
        "impl<{served}> {clone} for {name}<{served}>"
    );
    w.gap();
    allow_deprecated(w, plan, scope);
    let service = scope.runtime("Service");
    block!(
        w,
        |w| dispatch(w, plan, &served, scope),
        "impl<{served}: {interface}> {service} for {name}<{served}>"
    );
}

fn dispatch(w: &mut Writer, plan: &Plan<'_>, served: &str, scope: &Scope<'_>) {
    block!(
        w,
        |w| line!(w, "&super::{}", plan.description),
        "fn description(&self) -> &'static {}",
        scope.runtime("ServiceDescription")
    );
    w.gap();
    let body = |w: &mut Writer| {
        if plan.methods.is_empty() {
            line!(w, "let _ = method;");
            return line!(w, "call.unimplemented()");
        }
        line!(w, "let inner = {}::clone(&self.inner);", scope.runtime("Arc"));
        block!(
            w,
            |w| {
                for (index, (method, ident)) in plan.methods.iter().enumerate() {
                    dispatch_method(w, index, words(method), &format!("{served}::{}", ident.escaped()));
                }
                line!(w, "_ => call.unimplemented(),");
            },
            "match method"
        );
    };
    let (delivered, handling) = (scope.runtime("Delivered"), scope.runtime("Handling"));
    block!(w, body, "fn call(&self, method: usize, call: {delivered}) -> {handling}");
}

fn dispatch_method(w: &mut Writer, index: usize, words: Words, function: &str) {
    let arguments = words.arguments;
    let handler = format!("move |{arguments}| async move {{ {function}(&inner, {arguments}).await }}");
    let one_line = format!("{index} => call.{}({handler}),", words.method);
    if w.fits(one_line.len()) {
        return line!(w, "{one_line}");
    }
    let head = format!("{index} => call.{}(move |{arguments}| async move {{", words.method);
    w.bracket(format_args!("{head}"), "}),", |w| line!(w, "{function}(&inner, {arguments}).await"));
}

/// The library's words for a calling pattern.
#[derive(Clone, Copy)]
struct Words {
    pattern: &'static str,
    /// Of `ClientCore` and `Delivered`.
    method: &'static str,
    /// What the client's method returns.
    call: &'static str,
    /// What a handler is given.
    arguments: &'static str,
}

fn words(method: &Method) -> Words {
    let (pattern, method, call, arguments) = match (method.client_streaming, method.server_streaming) {
        (false, false) => ("Unary", "unary", "Unary", "request"),
        (true, false) => ("ClientStreaming", "client_streaming", "ClientStreaming", "input"),
        (false, true) => ("ServerStreaming", "server_streaming", "ServerStreaming", "request, out"),
        (true, true) => ("Bidirectional", "bidirectional", "Bidirectional", "input, out"),
    };
    Words { pattern, method, call, arguments }
}

fn marker(scope: &Scope<'_>, name: &str) -> String {
    scope.prelude(&format!("::core::marker::{name}"))
}

/// Of the service, of its methods, or of what they take and give.
fn allow_deprecated(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    if scope.names.has_deprecated()
        || plan.service.notes.deprecated
        || plan.methods.iter().any(|(method, _)| method.notes.deprecated)
    {
        line!(w, "#[allow(deprecated)]");
    }
}
