//! Services: a description, a client, and a trait with its server.

use heck::ToShoutySnakeCase as _;

use super::docs;
use super::ident::{Ident, Taken, snake};
use super::scope::Scope;
use super::writer::{Writer, block, line};
use crate::model::{Method, Service};

/// A service with the Rust names of its parts.
struct Plan<'m> {
    service: &'m Service,
    /// The static that describes it.
    description: String,
    /// The trait; client and server are named after it.
    name: String,
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
        description: scope.take(format!("{}_SERVICE", service.name.to_shouty_snake_case())).escaped(),
        name: super::ident::camel(&service.name),
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
    block!(w, |w| inner.render(w, |w| body(w, plan, &inner)), "pub mod {name}");
}

fn client(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let name = format!("{}Client", plan.name);
    w.gap();
    docs::notes(w, &plan.service.notes, &format!("Calls `{}`.", plan.service.full_name));
    line!(w, "#[derive(Clone, Debug)]");
    let body = |w: &mut Writer| {
        if plan.methods.is_empty() {
            line!(w, "#[allow(dead_code)]");
        }
        line!(w, "core: rt::ClientCore,");
    };
    block!(w, body, "pub struct {name}");
    w.gap();
    allow_deprecated(w, plan);
    scope.allow_names(w, plan.methods.iter().map(|(_, ident)| ident));
    block!(
        w,
        |w| {
            line!(w, "/// A client that calls through `channel`.");
            let new = format!("Self {{ core: rt::ClientCore::new(channel, &super::{}) }}", plan.description);
            block!(w, |w| line!(w, "{new}"), "pub fn new(channel: rt::Channel) -> Self");
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
        arguments.push(format!("request: impl rt::IntoRequest<{input}>"));
        passed.push_str(", request");
    }
    let tail = format!(" -> rt::{}<{input}, {output}>", words.call);
    w.function(&format!("pub fn {}", ident.escaped()), &arguments, &tail, |w| {
        line!(w, "self.core.{}({passed})", words.method);
    });
}

fn interface(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    w.gap();
    docs::notes(w, &plan.service.notes, &format!("Answers calls of `{}`.", plan.service.full_name));
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
        plan.name
    );
}

fn interface_method(w: &mut Writer, method: &Method, ident: &Ident, scope: &Scope<'_>) {
    let (input, output) = (scope.owned(&method.input), scope.owned(&method.output));
    let mut arguments = vec!["&self".to_owned()];
    arguments.push(match method.client_streaming {
        true => format!("input: rt::Receiver<{input}>"),
        false => format!("request: rt::Incoming<{input}>"),
    });
    if method.server_streaming {
        arguments.push(format!("out: rt::Sender<{output}>"));
    }
    let answer = if method.server_streaming { "()".to_owned() } else { format!("rt::Response<{output}>") };
    let result = format!("{}<{answer}, rt::Status>", scope.prelude("::core::result::Result"));
    let send = marker(scope, "Send");
    let mut tail = format!(" -> impl ::core::future::Future<Output = {result}> + {send};");
    // As rustfmt has it, what follows the last angle bracket does not count.
    if !w.fits(tail.len() + ")".len() - format!(" + {send};").len()) {
        tail = format!(" -> impl ::core::future::Future<\n    Output = {result},\n> + {send};");
    }
    w.signature(&format!("fn {}", ident.escaped()), &arguments, &tail);
}

fn server(w: &mut Writer, plan: &Plan<'_>, scope: &Scope<'_>) {
    let (name, interface) = (format!("{}Server", plan.name), &plan.name);
    w.gap();
    line!(w, "/// Serves `{}` by a `{interface}`.", plan.service.full_name);
    line!(w, "#[derive(Debug)]");
    block!(w, |w| line!(w, "inner: rt::Arc<T>,"), "pub struct {name}<T>");
    w.gap();
    allow_deprecated(w, plan);
    block!(
        w,
        |w| {
            line!(w, "/// A server that hands calls to `service`.");
            block!(
                w,
                |w| line!(w, "Self::from_arc(rt::Arc::new(service))"),
                "pub fn new(service: T) -> Self"
            );
            w.gap();
            line!(w, "/// A server that shares `inner` with others.");
            block!(w, |w| line!(w, "Self {{ inner }}"), "pub fn from_arc(inner: rt::Arc<T>) -> Self");
        },
        "impl<T: {interface}> {name}<T>"
    );
    let clone = scope.prelude("::core::clone::Clone");
    w.gap();
    block!(
        w,
        |w| block!(
            w,
            |w| line!(w, "Self {{ inner: rt::Arc::clone(&self.inner) }}"),
            "fn clone(&self) -> Self"
        ),
        "impl<T> {clone} for {name}<T>"
    );
    w.gap();
    allow_deprecated(w, plan);
    block!(w, |w| dispatch(w, plan), "impl<T: {interface}> rt::Service for {name}<T>");
}

fn dispatch(w: &mut Writer, plan: &Plan<'_>) {
    block!(
        w,
        |w| line!(w, "&super::{}", plan.description),
        "fn description(&self) -> &'static rt::ServiceDescription"
    );
    w.gap();
    let body = |w: &mut Writer| {
        if plan.methods.is_empty() {
            line!(w, "let _ = method;");
            return line!(w, "call.unimplemented()");
        }
        line!(w, "let inner = rt::Arc::clone(&self.inner);");
        block!(
            w,
            |w| {
                for (index, (method, ident)) in plan.methods.iter().enumerate() {
                    dispatch_method(w, index, words(method), ident);
                }
                line!(w, "_ => call.unimplemented(),");
            },
            "match method"
        );
    };
    block!(w, body, "fn call(&self, method: usize, call: rt::Delivered) -> rt::Handling");
}

fn dispatch_method(w: &mut Writer, index: usize, words: Words, ident: &Ident) {
    let (arguments, name) = (words.arguments, ident.escaped());
    let handler = format!("move |{arguments}| async move {{ T::{name}(&inner, {arguments}).await }}");
    let one_line = format!("{index} => call.{}({handler}),", words.method);
    if w.fits(one_line.len()) {
        return line!(w, "{one_line}");
    }
    let head = format!("{index} => call.{}(move |{arguments}| async move {{", words.method);
    w.bracket(format_args!("{head}"), "}),", |w| line!(w, "T::{name}(&inner, {arguments}).await"));
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

fn allow_deprecated(w: &mut Writer, plan: &Plan<'_>) {
    if plan.service.notes.deprecated || plan.methods.iter().any(|(method, _)| method.notes.deprecated) {
        line!(w, "#[allow(deprecated)]");
    }
}
