//! Clients and services.

use super::{comment, escaped};
use crate::model::{Method, Service};
use std::fmt::Write;

/// What the messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageClasses {
    /// Protobuf's own classes.
    Protobuf,
    /// Classes over linear messages.
    Linear,
}

/// What the classes of a service are called.
pub(super) struct ServiceClasses {
    pub(super) client: String,
    pub(super) server: String,
}

impl ServiceClasses {
    /// As far as nothing else has the names.
    pub(super) fn of(service: &Service) -> Self {
        Self { client: format!("{}Client", service.name), server: format!("{}Service", service.name) }
    }
}

/// The class of those who call.
pub(super) fn client(
    (service, ServiceClasses { client: name, .. }): (&Service, &ServiceClasses),
    class: &dyn Fn(&str) -> String,
    messages: MessageClasses,
) -> String {
    let mut out = comment(&service.notes, "");
    let _ = writeln!(out, "class {name} {{\n  public:");
    let _ = match messages {
        MessageClasses::Protobuf => {
            writeln!(
                out,
                "    explicit {name}(::trunkline::Channel channel) : channel_(std::move(channel)) {{}}"
            )
        }
        MessageClasses::Linear => writeln!(
            out,
            "    // Throws if the library does not take the schema.\n    \
             explicit {name}(const ::trunkline::Channel &channel) : \
             channel_(channel.typed(tl_package().get()).value()) {{}}"
        ),
    };
    for method in &service.methods {
        let (request, response) = (class(&method.input), class(&method.output));
        let (function, path) = (escaped(&method.name), &method.path);
        out.push('\n');
        out += &comment(&method.notes, "    ");
        let stream = format!("::trunkline::Stream<{request}, {response}>");
        let options = "const ::trunkline::CallOptions &options = {}";
        // What is moved in is sent from where it was built.
        let ways: &[(&str, &str)] = match messages {
            MessageClasses::Protobuf => &[("const {} &", "request")],
            MessageClasses::Linear => &[("const {} &", "request"), ("{} &&", "::std::move(request)")],
        };
        if method.client_streaming {
            let _ = writeln!(
                out,
                "    ::trunkline::Result<{stream}> {function}({options}) const {{\n        \
                 return {stream}::open(channel_, \"{path}\", options);\n    }}"
            );
            continue;
        }
        for (way, given) in ways {
            let parameter = way.replace("{}", &request);
            let _ = match method.server_streaming {
                false => writeln!(
                    out,
                    "    ::trunkline::Result<{response}> {function}({parameter}request, {options}) const {{\n        \
                     return channel_.unary<{response}>(\"{path}\", {given}, options);\n    }}"
                ),
                true => writeln!(
                    out,
                    "    ::trunkline::Result<{stream}> {function}({parameter}request, {options}) const {{\n        \
                     return {stream}::open(channel_, \"{path}\", {given}, options);\n    }}"
                ),
            };
        }
    }
    if messages == MessageClasses::Linear {
        out += "\n    // For requests that are built where they will be sent from.\n    \
                const ::trunkline::Channel &tl_channel_of() const { return channel_; }\n";
    }
    out += "\n  private:\n    ::trunkline::Channel channel_;\n};\n";
    out
}

/// The class of those who serve.
pub(super) fn server(
    (service, ServiceClasses { server: name, .. }): (&Service, &ServiceClasses),
    class: &dyn Fn(&str) -> String,
    messages: MessageClasses,
) -> String {
    let mut out = comment(&service.notes, "");
    let _ = writeln!(out, "class {name} {{\n  public:\n    virtual ~{name}() = default;");
    for method in &service.methods {
        out.push('\n');
        out += &comment(&method.notes, "    ");
        let _ = writeln!(
            out,
            "    virtual ::trunkline::Status {}({}) {{\n        \
             return ::trunkline::Status(TL_UNIMPLEMENTED, \"{} is not implemented\");\n    }}",
            escaped(&method.name),
            parameters(method, class),
            method.name
        );
    }
    let _ = writeln!(
        out,
        "\n    // For `::trunkline::Server::start`. This must live as long as the server does."
    );
    let _ = writeln!(out, "    ::trunkline::Service service() {{");
    let schema = if messages == MessageClasses::Linear { ", tl_package().get()" } else { "" };
    let _ = writeln!(out, "        ::trunkline::Service out(\"{}\"{schema});", service.full_name);
    for method in &service.methods {
        let (request, response) = (class(&method.input), class(&method.output));
        let kind = match (method.client_streaming, method.server_streaming) {
            (false, false) => "unary",
            (false, true) => "server_streaming",
            (true, false) => "client_streaming",
            (true, true) => "bidirectional",
        };
        let (function, declared) = (escaped(&method.name), &method.name);
        let _ = writeln!(
            out,
            "        out.{kind}<{request}, {response}>(\"{declared}\", [this](auto &&...with) {{ \
             return this->{function}(with...); }});"
        );
    }
    out += "        return out;\n    }\n};\n";
    out
}

/// What a handler is given.
fn parameters(method: &Method, class: &dyn Fn(&str) -> String) -> String {
    let (request, response) = (class(&method.input), class(&method.output));
    let stream = format!("::trunkline::ServedStream<{request}, {response}> &");
    let call = "::trunkline::ServedCall &";
    match (method.client_streaming, method.server_streaming) {
        (false, false) => format!("const {request} &, {response} &, {call}"),
        (false, true) => format!("const {request} &, {stream}, {call}"),
        (true, false) => format!("{stream}, {response} &, {call}"),
        (true, true) => format!("{stream}, {call}"),
    }
}
