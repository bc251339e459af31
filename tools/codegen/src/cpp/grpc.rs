//! gRPC C++'s own surface: `x.grpc.pb.h` and `x.grpc.pb.cc` of a file, with the classes gRPC's plugin writes, over the
//! headers of `bindings/cpp/include/grpcpp`.
//!
//! Text with places in braces, filled in per method: `{M}` its name, `{Q}` and `{R}` the classes of request and
//! response, `{I}` its index in the service, `{P}` its path, and what its pattern has for the others ([`Pattern`]).

use super::{CppHeader, class, comment, escaped, included, namespace};
use crate::CodegenError;
use crate::model::{Method, Model, Service, TypeTable};
use std::fmt::Write;

/// What differs between the patterns. Lists of parameters and arguments begin with a comma if they are not empty.
struct Pattern {
    /// Of client classes: `Client{stem}{of}`; none of unary calls.
    stem: &'static str,
    of: &'static str,
    /// What a call is made with, and its name.
    made_with: &'static str,
    made: &'static str,
    /// The same in the callback API, its reactor and the function that binds it.
    asked_with: &'static str,
    reactor: &'static str,
    binds: &'static str,
    /// What a blocking handler is given, and which function makes a method of it.
    handled_with: &'static str,
    handled: &'static str,
    method_of: &'static str,
    /// What is given to ask for a call in a queue: parameters, where the request goes, who answers.
    requested_with: &'static str,
    request: &'static str,
    responder: &'static str,
    /// What a handler of the callback API is given, and gives.
    reacted_with: &'static str,
    reacted: &'static str,
    server_reactor: &'static str,
    callback_method_of: &'static str,
}

const UNARY: Pattern = Pattern {
    stem: "AsyncResponseReader",
    of: "<{R}>",
    made_with: ", const {Q} &request",
    made: ", request",
    asked_with: ", const {Q} *request, {R} *response",
    reactor: "ClientUnaryReactor",
    binds: "CallbackUnaryCall(stub_->channel_.get(), {P}, context, request, response, reactor)",
    handled_with: ", const {Q} *request, {R} *response",
    handled: ", request, response",
    method_of: "UnaryMethod",
    requested_with: ", {Q} *request, ::grpc::ServerAsyncResponseWriter<{R}> *response",
    request: "request",
    responder: "response",
    reacted_with: ", const {Q} *request, {R} *response",
    reacted: ", request, response",
    server_reactor: "ServerUnaryReactor",
    callback_method_of: "CallbackUnaryMethod",
};

const SERVER_STREAMING: Pattern = Pattern {
    stem: "Reader",
    of: "<{R}>",
    made_with: ", const {Q} &request",
    made: ", request",
    asked_with: ", const {Q} *request",
    reactor: "ClientReadReactor<{R}>",
    binds: "CallbackReaderCall(stub_->channel_.get(), {P}, context, request, reactor)",
    handled_with: ", const {Q} *request, ::grpc::ServerWriter<{R}> *writer",
    handled: ", request, writer",
    method_of: "ServerStreamingMethod",
    requested_with: ", {Q} *request, ::grpc::ServerAsyncWriter<{R}> *writer",
    request: "request",
    responder: "writer",
    reacted_with: ", const {Q} *request",
    reacted: ", request",
    server_reactor: "ServerWriteReactor<{R}>",
    callback_method_of: "CallbackServerStreamingMethod",
};

const CLIENT_STREAMING: Pattern = Pattern {
    stem: "Writer",
    of: "<{Q}>",
    made_with: ", {R} *response",
    made: ", response",
    asked_with: ", {R} *response",
    reactor: "ClientWriteReactor<{Q}>",
    binds: "CallbackWriterCall(stub_->channel_.get(), {P}, context, response, reactor)",
    handled_with: ", ::grpc::ServerReader<{Q}> *reader, {R} *response",
    handled: ", reader, response",
    method_of: "ClientStreamingMethod",
    requested_with: ", ::grpc::ServerAsyncReader<{R}, {Q}> *reader",
    request: "static_cast<{Q} *>(nullptr)",
    responder: "reader",
    reacted_with: ", {R} *response",
    reacted: ", response",
    server_reactor: "ServerReadReactor<{Q}>",
    callback_method_of: "CallbackClientStreamingMethod",
};

const BIDI_STREAMING: Pattern = Pattern {
    stem: "ReaderWriter",
    of: "<{Q}, {R}>",
    made_with: "",
    made: "",
    asked_with: "",
    reactor: "ClientBidiReactor<{Q}, {R}>",
    binds: "CallbackBidiCall(stub_->channel_.get(), {P}, context, reactor)",
    handled_with: ", ::grpc::ServerReaderWriter<{R}, {Q}> *stream",
    handled: ", stream",
    method_of: "BidiStreamingMethod",
    requested_with: ", ::grpc::ServerAsyncReaderWriter<{R}, {Q}> *stream",
    request: "static_cast<{Q} *>(nullptr)",
    responder: "stream",
    reacted_with: "",
    reacted: "",
    server_reactor: "ServerBidiReactor<{Q}, {R}>",
    callback_method_of: "CallbackBidiMethod",
};

impl Pattern {
    fn of(method: &Method) -> &'static Self {
        match (method.client_streaming, method.server_streaming) {
            (false, false) => &UNARY,
            (false, true) => &SERVER_STREAMING,
            (true, false) => &CLIENT_STREAMING,
            (true, true) => &BIDI_STREAMING,
        }
    }

    /// The name of a class of clients: `way` is `` or `Async`, `end` is `` or `Interface`.
    fn client(&self, way: &str, end: &str) -> String {
        let way = if self.stem.starts_with("Async") { "" } else { way };
        format!("::grpc::Client{way}{}{end}{}", self.stem, self.of)
    }
}

/// One method, and what fills the places of its text.
struct Rpc<'a> {
    method: &'a Method,
    index: usize,
    pattern: &'static Pattern,
    request: String,
    response: String,
}

impl Rpc<'_> {
    fn is_unary(&self) -> bool {
        !self.method.client_streaming && !self.method.server_streaming
    }

    /// Two functions begin a call in a queue: at once, which of streams has a tag, and when it is told to.
    fn ways(&self) -> [(&'static str, &'static str, &'static str, &'static str); 2] {
        let (tag, given) = if self.is_unary() { ("", "") } else { (", void *tag", ", tag") };
        [("Async", tag, given, "true"), ("PrepareAsync", "", "", "false")]
    }

    fn fill(&self, text: &str) -> String {
        text.replace("{M}", &escaped(&self.method.name))
            .replace("{P}", &format!("\"{}\"", self.method.path))
            .replace("{I}", &self.index.to_string())
            .replace("{Q}", &self.request)
            .replace("{R}", &self.response)
    }

    /// In `StubInterface` (`end` is `Interface`) or `Stub`.
    fn stub(&self, end: &str) -> String {
        let pattern = self.pattern;
        let mut out = comment(&self.method.notes, "        ");
        let (given, made) = (pattern.made_with, pattern.made);
        if self.is_unary() {
            let (opens, ends) = if end.is_empty() { ("", " override;") } else { ("virtual ", " = 0;") };
            let _ = writeln!(
                out,
                "        {opens}::grpc::Status {{M}}(::grpc::ClientContext *context{given}, {{R}} *response){ends}"
            );
        } else {
            let class = format!("std::unique_ptr<{}>", pattern.client("", end));
            let _ = writeln!(
                out,
                "        {class} {{M}}(::grpc::ClientContext *context{given}) {{\n            \
                 return {class}({{M}}Raw(context{made}));\n        }}"
            );
        }
        let class = format!("std::unique_ptr<{}>", pattern.client("Async", end));
        for (way, tag, tagged, _) in self.ways() {
            let _ = writeln!(
                out,
                "        {class} {way}{{M}}(::grpc::ClientContext *context{given}, \
                 ::grpc::CompletionQueue *cq{tag}) {{\n            \
                 return {class}({way}{{M}}Raw(context{made}, cq{tagged}));\n        }}"
            );
        }
        self.fill(&out)
    }

    /// The functions behind those, which are virtual: declared in `StubInterface` or `Stub`.
    fn raw(&self, end: &str) -> String {
        let pattern = self.pattern;
        let (opens, ends) = if end.is_empty() { ("", " override;") } else { ("virtual ", " = 0;") };
        let given = pattern.made_with;
        let mut out = String::new();
        if !self.is_unary() {
            let class = pattern.client("", end);
            let _ = writeln!(
                out,
                "        {opens}{class} *{{M}}Raw(::grpc::ClientContext *context{given}){ends}"
            );
        }
        let class = pattern.client("Async", end);
        for (way, tag, ..) in self.ways() {
            let _ = writeln!(
                out,
                "        {opens}{class} *{way}{{M}}Raw(::grpc::ClientContext *context{given}, \
                 ::grpc::CompletionQueue *cq{tag}){ends}"
            );
        }
        self.fill(&out)
    }

    /// In `async_interface` (declared) or `async` (written out).
    fn asynchronous(&self, is_interface: bool) -> String {
        let pattern = self.pattern;
        let mut out = String::new();
        let mut function = |reactor: &str| {
            let head = format!(
                "void {{M}}(::grpc::ClientContext *context{}, {reactor} reactor)",
                pattern.asked_with
            );
            let _ = match is_interface {
                true => writeln!(out, "            virtual {head} = 0;"),
                false => writeln!(
                    out,
                    "            {head} override {{\n                ::grpc::internal::{};\n            }}",
                    if reactor.starts_with("std") {
                        pattern.binds.replace("reactor)", "std::move(reactor))")
                    } else {
                        pattern.binds.to_owned()
                    }
                ),
            };
        };
        if self.is_unary() {
            function("std::function<void(::grpc::Status)>");
        }
        function(&format!("::grpc::{} *", pattern.reactor));
        self.fill(&out)
    }

    /// The functions of `Stub`, in the source.
    fn stub_source(&self, service: &str) -> String {
        let pattern = self.pattern;
        let (given, made) = (pattern.made_with, pattern.made);
        let mut out = String::new();
        if self.is_unary() {
            let _ = writeln!(
                out,
                "::grpc::Status {service}::Stub::{{M}}(::grpc::ClientContext *context{given}, {{R}} *response) {{\n    \
                 return ::grpc::internal::BlockingUnaryCall(channel_.get(), {{P}}, context, request, response);\n}}"
            );
        } else {
            let class = pattern.client("", "");
            let _ = writeln!(
                out,
                "{class} *{service}::Stub::{{M}}Raw(::grpc::ClientContext *context{given}) {{\n    \
                 return new {class}(channel_.get(), {{P}}, context{made});\n}}"
            );
        }
        let class = pattern.client("Async", "");
        for (way, tag, tagged, starts) in self.ways() {
            let last = match (self.is_unary(), tagged) {
                (true, _) => "",
                (false, "") => ", nullptr",
                (false, _) => tagged,
            };
            let _ = writeln!(
                out,
                "{class} *{service}::Stub::{way}{{M}}Raw(::grpc::ClientContext *context{given}, \
                 ::grpc::CompletionQueue *cq{tag}) {{\n    \
                 return new {class}(channel_.get(), cq, {{P}}, context{made}, {starts}{last});\n}}"
            );
        }
        self.fill(&out)
    }

    /// `Service`'s method, to be overridden.
    fn handler(&self) -> String {
        let mut out = comment(&self.method.notes, "        ");
        let _ = writeln!(
            out,
            "        virtual ::grpc::Status {{M}}(::grpc::ServerContext *context{});",
            self.pattern.handled_with
        );
        self.fill(&out)
    }

    /// What it does until it is.
    fn handler_source(&self, service: &str) -> String {
        let given = unnamed(self.pattern.handled_with);
        self.fill(&format!(
            "::grpc::Status {service}::Service::{{M}}(::grpc::ServerContext *{given}) {{\n    \
             return ::grpc::Status(::grpc::StatusCode::UNIMPLEMENTED, \"{{M}} is not implemented\");\n}}\n"
        ))
    }

    /// In the constructor of `Service`.
    fn registered(&self) -> String {
        let pattern = self.pattern;
        self.fill(&format!(
            "    trunkline_add({{P}}, ::grpc::internal::{}<{{Q}}, {{R}}>(\n        \
             [this](::grpc::ServerContext *context{}) {{ return this->{{M}}(context{}); }}));\n",
            pattern.method_of, pattern.handled_with, pattern.handled
        ))
    }

    /// The blocking method of a service that is served otherwise.
    fn closed(&self) -> String {
        format!(
            "        ::grpc::Status {{M}}(::grpc::ServerContext *{}) final {{\n            \
             return ::grpc::Status(::grpc::StatusCode::INTERNAL, \"served otherwise\");\n        }}\n",
            unnamed(self.pattern.handled_with)
        )
    }

    fn with_async(&self) -> String {
        let pattern = self.pattern;
        self.fill(&format!(
            "    template <class BaseClass> class WithAsyncMethod_{{M}} : public BaseClass {{\n      public:\n        \
             WithAsyncMethod_{{M}}() {{ ::grpc::Service::MarkMethodAsync({{I}}); }}\n{closed}        \
             void Request{{M}}(::grpc::ServerContext *context{given}, ::grpc::CompletionQueue *new_call_cq, \
             ::grpc::ServerCompletionQueue *notification_cq, void *tag) {{\n            \
             ::grpc::internal::RequestCall(::grpc::Service::trunkline_requests({{I}}), context, {request}, \
             {responder}, new_call_cq, notification_cq, tag);\n        }}\n    }};\n",
            closed = self.closed(),
            given = pattern.requested_with,
            request = pattern.request,
            responder = pattern.responder,
        ))
    }

    fn with_callback(&self) -> String {
        let pattern = self.pattern;
        self.fill(&format!(
            r#"    template <class BaseClass> class WithCallbackMethod_{{M}} : public BaseClass {{
      public:
        WithCallbackMethod_{{M}}() {{
            ::grpc::Service::MarkMethodCallback({{I}}, ::grpc::internal::{method_of}<{{Q}}, {{R}}>(
                [this](::grpc::CallbackServerContext *context{given}) {{ return this->{{M}}(context{passed}); }}));
        }}
{closed}        virtual ::grpc::{reactor} *{{M}}(::grpc::CallbackServerContext *{unnamed}) {{ return nullptr; }}
    }};
"#,
            method_of = pattern.callback_method_of,
            given = pattern.reacted_with,
            passed = pattern.reacted,
            closed = self.closed(),
            reactor = pattern.server_reactor,
            unnamed = unnamed(pattern.reacted_with),
        ))
    }
}

/// A list of parameters without their names.
fn unnamed(parameters: &str) -> String {
    let mut out = parameters.to_owned();
    for name in ["request", "response", "reader", "writer", "stream"] {
        out = out.replace(&format!(" *{name}"), " *");
    }
    out
}

/// Generates `x.grpc.pb.h` and `x.grpc.pb.cc` of each of `files` (of all files of the set, if none is named), as gRPC's
/// plugin does: also of files without services.
///
/// # Errors
/// [`CodegenError`] if the descriptors are malformed or break a rule.
pub fn generate_cpp_grpc(set: &[u8], files: &[String]) -> Result<Vec<CppHeader>, CodegenError> {
    let model = Model::read(set, files)?;
    let mut out = Vec::new();
    for package in &model.packages {
        for file in &package.files {
            let services: Vec<&Service> =
                package.services.iter().filter(|service| service.file == *file).collect();
            let messages = included(file)?;
            let stem = messages.trim_end_matches(".pb.h");
            let (header, source) = (format!("{stem}.grpc.pb.h"), format!("{stem}.grpc.pb.cc"));
            let parts = |part: fn(&Service, &TypeTable) -> String| -> String {
                services.iter().map(|service| part(service, &model.types)).collect()
            };
            let (open, close) = namespace(&package.name);
            let text = format!(
                "{MARK}#pragma once\n\n#include \"{messages}\"\n\n#include <grpcpp/grpcpp.h>\n\n\
                 #include <functional>\n#include <memory>\n\n{open}\n\n{}{close}\n",
                parts(header_of)
            );
            out.push(CppHeader { name: header.clone(), text });
            let text = format!(
                "{MARK}#include \"{messages}\"\n#include \"{header}\"\n\n{open}\n\n{}{close}\n",
                parts(source_of)
            );
            out.push(CppHeader { name: source, text });
        }
    }
    Ok(out)
}

const MARK: &str = "// Generated by Trunkline. Changes made here are lost.\n";

fn rpcs<'a>(service: &'a Service, types: &TypeTable) -> Vec<Rpc<'a>> {
    let rpc = |(index, method): (usize, &'a Method)| Rpc {
        method,
        index,
        pattern: Pattern::of(method),
        request: class(&method.input, types),
        response: class(&method.output, types),
    };
    service.methods.iter().enumerate().map(rpc).collect()
}

fn header_of(service: &Service, types: &TypeTable) -> String {
    let rpcs = rpcs(service, types);
    let each = |part: &dyn Fn(&Rpc<'_>) -> String| -> String { rpcs.iter().map(part).collect() };
    format!(
        r#"{comment}class {name} final {{
  public:
    static constexpr char const *service_full_name() {{ return "{full_name}"; }}
    class StubInterface {{
      public:
        virtual ~StubInterface() = default;
{stub_interface}        class async_interface {{
          public:
            virtual ~async_interface() = default;
{async_interface}        }};
        typedef class async_interface experimental_async_interface;
        virtual class async_interface *async() {{ return nullptr; }}
        class async_interface *experimental_async() {{ return async(); }}

      private:
{raw_interface}    }};

    class Stub final : public StubInterface {{
      public:
        explicit Stub(const std::shared_ptr<::grpc::ChannelInterface> &channel,
                      const ::grpc::StubOptions &options = ::grpc::StubOptions());
{stub}        class async final : public StubInterface::async_interface {{
          public:
{asynchronous}
          private:
            friend class Stub;
            explicit async(Stub *stub) : stub_(stub) {{}}
            Stub *stub_;
        }};
        class async *async() override {{ return &async_stub_; }}

      private:
        std::shared_ptr<::grpc::ChannelInterface> channel_;
        class async async_stub_{{this}};
{raw}    }};
    static std::unique_ptr<Stub> NewStub(const std::shared_ptr<::grpc::ChannelInterface> &channel,
                                         const ::grpc::StubOptions &options = ::grpc::StubOptions());
    class Service : public ::grpc::Service {{
      public:
        Service();
        ~Service() override;
{handlers}    }};

{with_async}    typedef {async_service} AsyncService;

{with_callback}    typedef {callback_service} CallbackService;
    typedef CallbackService ExperimentalCallbackService;
}};

"#,
        comment = comment(&service.notes, ""),
        name = escaped(&service.name),
        full_name = service.full_name,
        stub_interface = each(&|rpc| rpc.stub("Interface")),
        async_interface = each(&|rpc| rpc.asynchronous(true)),
        raw_interface = each(&|rpc| rpc.raw("Interface")),
        stub = each(&|rpc| rpc.stub("")),
        asynchronous = each(&|rpc| rpc.asynchronous(false)),
        raw = each(&|rpc| rpc.raw("")),
        handlers = each(&|rpc| rpc.handler()),
        with_async = each(&|rpc| rpc.with_async()),
        async_service = nested(&rpcs, "WithAsyncMethod"),
        with_callback = each(&|rpc| rpc.with_callback()),
        callback_service = nested(&rpcs, "WithCallbackMethod"),
    )
}

/// All methods of a service by one API; the template of the first is the outermost.
fn nested(rpcs: &[Rpc<'_>], with: &str) -> String {
    let within = |inner: String, rpc: &Rpc<'_>| format!("{with}_{}<{inner}>", escaped(&rpc.method.name));
    rpcs.iter().rev().fold("Service".to_owned(), within)
}

fn source_of(service: &Service, types: &TypeTable) -> String {
    let rpcs = rpcs(service, types);
    let name = escaped(&service.name);
    let each = |part: &dyn Fn(&Rpc<'_>) -> String| -> String { rpcs.iter().map(part).collect() };
    format!(
        r#"std::unique_ptr<{name}::Stub> {name}::NewStub(const std::shared_ptr<::grpc::ChannelInterface> &channel,
                                              const ::grpc::StubOptions &options) {{
    return std::make_unique<Stub>(channel, options);
}}

{name}::Stub::Stub(const std::shared_ptr<::grpc::ChannelInterface> &channel, const ::grpc::StubOptions &)
    : channel_(channel) {{}}

{stub}
{name}::Service::Service() {{
{registered}}}

{name}::Service::~Service() = default;

{handlers}
"#,
        stub = each(&|rpc| rpc.stub_source(&name)),
        registered = each(&|rpc| rpc.registered()),
        handlers = each(&|rpc| rpc.handler_source(&name)),
    )
}

#[cfg(test)]
mod tests {
    //! Shows that files have gRPC's names, and their classes gRPC's functions, of all four patterns.
    use super::*;

    fn files(source: &str) -> Vec<CppHeader> {
        let set = trunkline_schema::compile_proto_source("a/odd.proto", source).unwrap();
        generate_cpp_grpc(&set, &["a/odd.proto".to_owned()]).unwrap()
    }

    #[test]
    fn classes_have_the_functions_of_all_patterns() {
        let files = files(
            "syntax = \"proto3\"; package odd.class; message Q {} message R {}\n\
             service S { rpc One(Q) returns (R); rpc Many(Q) returns (stream R);\n\
             rpc Sum(stream Q) returns (R); rpc delete(stream Q) returns (stream R); }",
        );
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a/odd.grpc.pb.h", "a/odd.grpc.pb.cc"]);
        for part in [
            "#include \"a/odd.pb.h\"",
            "::grpc::Status One(::grpc::ClientContext *context, const ::odd::class_::Q &request, ",
            "std::unique_ptr<::grpc::ClientAsyncResponseReader<::odd::class_::R>> PrepareAsyncOne(",
            "std::unique_ptr<::grpc::ClientReader<::odd::class_::R>> Many(::grpc::ClientContext *context, const",
            "std::unique_ptr<::grpc::ClientWriter<::odd::class_::Q>> Sum(::grpc::ClientContext *context, ",
            "<::grpc::ClientAsyncReaderWriter<::odd::class_::Q, ::odd::class_::R>> Asyncdelete_(",
            "void RequestSum(::grpc::ServerContext *context, ::grpc::ServerAsyncReader<::odd::class_::R, ",
            "::grpc::ServerBidiReactor<::odd::class_::Q, ::odd::class_::R> *delete_(",
            "<WithAsyncMethod_Sum<WithAsyncMethod_delete_<Service>>>> AsyncService;",
        ] {
            assert!(files[0].text.contains(part), "{part:?} is not in\n{}", files[0].text);
        }
        assert!(files[1].text.contains("\"/odd.class.S/delete\""), "{}", files[1].text);
        assert!(
            files.iter().all(|file| !["{M}", "{Q}", "{R}", "{P}", "{I}"]
                .iter()
                .any(|place| file.text.contains(place)))
        );
    }

    #[test]
    fn a_file_without_services_has_its_files() {
        let files = files("syntax = \"proto3\"; message M {}");
        assert!(files.len() == 2 && files[0].text.contains("#pragma once"));
    }
}
