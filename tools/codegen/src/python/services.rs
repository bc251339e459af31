//! Stubs and services, by the names that grpcio's plugin gives them.

use super::comments::comment;
use super::literal::text_literal;
use super::names::{Mentions, PythonScope, escaped};
use crate::model::{Method, Service};
use std::fmt::Write;

/// The classes of a service: who calls, who serves, and how the latter is added to a server.
pub(super) fn code(service: &Service, mentions: &Mentions<'_>, scope: &mut PythonScope) -> String {
    let mut out = String::new();
    stub(&mut out, service, mentions, scope);
    let servicer = servicer(&mut out, service, scope);
    addition(&mut out, service, mentions, scope, &servicer);
    out
}

fn stub(out: &mut String, service: &Service, mentions: &Mentions<'_>, scope: &mut PythonScope) {
    let name = scope.take(format!("{}Stub", service.name));
    let _ = write!(
        out,
        "\n\n{}class {name}:\n    \"\"\"Calls over a channel of `trunkline` or `trunkline.aio`.\"\"\"\n\n    \
         def __init__(self, channel):\n        channel = _tl_package.channel(channel)\n",
        comment(&service.notes, "")
    );
    for method in &service.methods {
        out.push_str(&comment(&method.notes, "        "));
        let (request, response) = (mentions.path(&method.input), mentions.path(&method.output));
        let kind = match (method.client_streaming, method.server_streaming) {
            (false, false) => "unary_unary",
            (false, true) => "unary_stream",
            (true, false) => "stream_unary",
            (true, true) => "stream_stream",
        };
        let _ = writeln!(
            out,
            "        self.{} = _tl_linear.method(channel.{kind}, {}, {request}, {response})",
            escaped(&method.name, false),
            text_literal(&method.path)
        );
    }
}

fn servicer(out: &mut String, service: &Service, scope: &mut PythonScope) -> String {
    let name = scope.take(format!("{}Servicer", service.name));
    let _ = write!(
        out,
        "\n\n{}class {name}:\n    \"\"\"What is not overridden ends with UNIMPLEMENTED.\"\"\"\n",
        comment(&service.notes, "")
    );
    for method in &service.methods {
        let request = if method.client_streaming { "request_iterator" } else { "request" };
        let _ = write!(
            out,
            "\n{}    def {}(self, {request}, context):\n        return _tl_linear.unimplemented(context)\n",
            comment(&method.notes, "    "),
            escaped(&method.name, false)
        );
    }
    name
}

fn addition(
    out: &mut String,
    service: &Service,
    mentions: &Mentions<'_>,
    scope: &mut PythonScope,
    servicer: &str,
) {
    let name = scope.take(format!("add_{servicer}_to_server"));
    let _ = writeln!(out, "\n\ndef {name}(servicer, server):\n    handlers = {{");
    for method in &service.methods {
        let _ = writeln!(out, "        {}: {},", text_literal(&method.name), handler(method, mentions));
    }
    let full_name = text_literal(&service.full_name);
    let _ = writeln!(out, "    }}\n    _tl_package.serve(server, {full_name}, handlers)");
}

fn handler(method: &Method, mentions: &Mentions<'_>) -> String {
    let (request, response) = (mentions.path(&method.input), mentions.path(&method.output));
    let mut out =
        format!("_tl_linear.handler(servicer.{}, {request}, {response}", escaped(&method.name, false));
    for (is_many, what) in
        [(method.client_streaming, "many_requests"), (method.server_streaming, "many_responses")]
    {
        if is_many {
            let _ = write!(out, ", {what}=True");
        }
    }
    out + ")"
}
