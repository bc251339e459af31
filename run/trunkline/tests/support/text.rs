//! A message and a service, as generated code would have them.

use std::future::Future;
use std::sync::LazyLock;
use trunkline::codegen::{
    Arc, Bidirectional, Block, Channel, ClientCore, ClientStreaming, Delivered, Extent, FieldAt, Handling,
    Incoming, IntoRequest, Message, MethodDescription, Pattern, Receiver, Response, Sender, ServerStreaming,
    Service, ServiceDescription, Status, Unary, View,
};
use trunkline::{LoadReport, Metadata};
use trunkline_schema::Schema;

/// `message Text { string text = 1; }`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    pub text: String,
}

#[derive(Clone, Copy)]
pub struct TextView<'a>(View<'a>);

pub struct TextBuilder<'b, E>(Block<'b, E>);

const TEXT: FieldAt = FieldAt::new(8, 0);

impl Text {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl Message for Text {
    type View<'a> = TextView<'a>;
    type Builder<'b, E: Extent + 'b> = TextBuilder<'b, E>;
    const FULL_NAME: &'static str = "test.Text";
    const FINGERPRINT: u64 = 17_386_218_068_168_293_260;
    const BLOCK_BYTES: u32 = 16;

    fn write<E: Extent>(&self, mut block: Block<'_, E>) {
        block.set_str(TEXT, &self.text);
    }

    fn read(TextView(view): TextView<'_>) -> Self {
        Self { text: view.str(TEXT).to_owned() }
    }
}

impl<'a> TextView<'a> {
    pub fn text(self) -> &'a str {
        self.0.str(TEXT)
    }
}

impl<'a> From<View<'a>> for TextView<'a> {
    fn from(view: View<'a>) -> Self {
        Self(view)
    }
}

impl<'a> From<TextView<'a>> for View<'a> {
    fn from(view: TextView<'a>) -> Self {
        view.0
    }
}

impl<E: Extent> TextBuilder<'_, E> {
    pub fn set_text(&mut self, value: &str) {
        self.0.set_str(TEXT, value);
    }
}

impl<'b, E> From<Block<'b, E>> for TextBuilder<'b, E> {
    fn from(block: Block<'b, E>) -> Self {
        Self(block)
    }
}

/// The service as a `.proto` file has it.
const PROTO: &str = r#"
syntax = "proto3";
package test;
message Text { string text = 1; }
service Echo {
  rpc Say(Text) returns (Text);
  rpc Repeat(Text) returns (stream Text);
  rpc Collect(stream Text) returns (Text);
  rpc Chat(stream Text) returns (stream Text);
}
"#;

pub static ECHO: LazyLock<ServiceDescription> = LazyLock::new(|| {
    let schema = Schema::from_proto_source("echo.proto", PROTO).unwrap();
    let text = schema.message_named(Text::FULL_NAME).unwrap();
    assert_eq!(schema.fingerprint(text), Text::FINGERPRINT);
    ServiceDescription {
        name: "test.Echo",
        descriptor_set: schema.descriptor_set().to_vec().leak(),
        methods: &[
            MethodDescription { path: "/test.Echo/Say", pattern: Pattern::Unary },
            MethodDescription { path: "/test.Echo/Repeat", pattern: Pattern::ServerStreaming },
            MethodDescription { path: "/test.Echo/Collect", pattern: Pattern::ClientStreaming },
            MethodDescription { path: "/test.Echo/Chat", pattern: Pattern::Bidirectional },
        ],
    }
});

#[derive(Clone, Debug)]
pub struct EchoClient {
    core: ClientCore,
}

impl EchoClient {
    pub fn new(channel: Channel) -> Self {
        Self { core: ClientCore::new(channel, &ECHO) }
    }

    pub fn say(&self, request: impl IntoRequest<Text>) -> Unary<Text, Text> {
        self.core.unary(0, request)
    }

    pub fn repeat(&self, request: impl IntoRequest<Text>) -> ServerStreaming<Text, Text> {
        self.core.server_streaming(1, request)
    }

    pub fn collect(&self) -> ClientStreaming<Text, Text> {
        self.core.client_streaming(2)
    }

    pub fn chat(&self) -> Bidirectional<Text, Text> {
        self.core.bidirectional(3)
    }
}

pub trait Echo: Send + Sync + 'static {
    fn say(&self, request: Incoming<Text>) -> impl Future<Output = Result<Response<Text>, Status>> + Send;
    fn repeat(
        &self,
        request: Incoming<Text>,
        out: Sender<Text>,
    ) -> impl Future<Output = Result<(), Status>> + Send;
    fn collect(&self, input: Receiver<Text>) -> impl Future<Output = Result<Response<Text>, Status>> + Send;
    fn chat(
        &self,
        input: Receiver<Text>,
        out: Sender<Text>,
    ) -> impl Future<Output = Result<(), Status>> + Send;
}

pub struct EchoServer<T> {
    inner: Arc<T>,
}

impl<T: Echo> EchoServer<T> {
    pub fn new(inner: T) -> Self {
        Self { inner: Arc::new(inner) }
    }
}

impl<T: Echo> Service for EchoServer<T> {
    fn description(&self) -> &'static ServiceDescription {
        &ECHO
    }

    fn call(&self, method: usize, call: Delivered) -> Handling {
        let inner = Arc::clone(&self.inner);
        match method {
            0 => call.unary(move |request| async move { inner.say(request).await }),
            1 => call.server_streaming(move |request, out| async move { inner.repeat(request, out).await }),
            2 => call.client_streaming(move |input| async move { inner.collect(input).await }),
            3 => call.bidirectional(move |input, out| async move { inner.chat(input, out).await }),
            _ => call.unimplemented(),
        }
    }
}

/// Says back what it is told; some words are orders.
pub struct Parrot;

impl Echo for Parrot {
    async fn say(&self, request: Incoming<Text>) -> Result<Response<Text>, Status> {
        match request.view().text() {
            "panic" => panic!("told to panic"),
            "fail" => {
                let status = Status::not_found("50% gone").with_details([1, 2, 3]);
                Err(status.with_metadata("found", "nothing").expect("a legal pair"))
            }
            "pend" => std::future::pending().await,
            "headers" => {
                let tenant = request.metadata().text("tenant").unwrap_or_default().to_owned();
                let response = Response::new(Text::new(tenant));
                let load = LoadReport { cpu_utilization: 0.5, ..LoadReport::default() };
                Ok(response.with_header("h", "1")?.with_trailer("t", "2")?.with_load_report(&load)?)
            }
            text => Ok(request.build::<Text>(|b| b.set_text(text))?.into()),
        }
    }

    async fn repeat(&self, request: Incoming<Text>, mut out: Sender<Text>) -> Result<(), Status> {
        let text = request.view().text().to_owned();
        let mut trailers = Metadata::new();
        trailers.insert("words", text.split(' ').count().to_string()).expect("a legal pair");
        out.set_trailers(trailers);
        for word in text.split(' ') {
            out.send(Text::new(word)).await?;
        }
        if text == "fail" { Err(Status::aborted("told to fail")) } else { Ok(()) }
    }

    async fn collect(&self, mut input: Receiver<Text>) -> Result<Response<Text>, Status> {
        let mut all = Vec::new();
        while let Some(text) = input.recv().await? {
            all.push(text.view().text().to_owned());
        }
        Ok(Response::new(Text::new(all.join(" "))))
    }

    async fn chat(&self, mut input: Receiver<Text>, mut out: Sender<Text>) -> Result<(), Status> {
        while let Some(text) = input.recv().await? {
            out.send(text).await?;
        }
        Ok(())
    }
}
