//! What is measured of the split: a server that decodes, works, builds and encodes in one process, and a client that
//! only carries bytes, so that it costs the same whoever serves.

use crate::Failure;
use crate::business::{take_orders, work};
use bytes::{Buf, BufMut, Bytes};
use futures_util::stream::{FuturesUnordered, StreamExt};
use prost::Message;
use std::path::Path;
use std::time::{Duration, Instant};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::server::{Router, TcpIncoming};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

/// Windows that hold the largest message, at both ends.
const WINDOW_BYTES: u32 = 8 << 20;
/// Looks for a server that is starting.
const LOOKS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

/// Answers every call with the same message.
struct Echo<M>(M);

impl<M: Message + Default + Clone + 'static> Echo<M> {
    fn read(wire: &Path) -> Result<Self, Failure> {
        Ok(Self(M::decode(std::fs::read(wire)?.as_slice())?))
    }

    fn answer(&self) -> Response<M> {
        work();
        Response::new(self.0.clone())
    }
}

macro_rules! echoes {
    ($($(#[$when:meta])* $module:ident $($part:ident)::+;)+) => {
        $($(#[$when])*
        mod $module {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($module), "/mod.rs"));
        }

        $(#[$when])*
        #[tonic::async_trait]
        impl $module::echo::echo_server::Echo for Echo<$module::$($part)::+> {
            async fn call(
                &self,
                _: Request<$module::$($part)::+>,
            ) -> Result<Response<$module::$($part)::+>, Status> {
                Ok(self.answer())
            }
        })+

        fn service(server: &mut Server, name: &str, wire: &Path) -> Result<Router, Failure> {
            match name {
                $($(#[$when])*
                stringify!($module) => {
                    let echo = Echo::<$module::$($part)::+>::read(wire)?;
                    let service = $module::echo::echo_server::EchoServer::new(echo);
                    Ok(server.add_service(service.max_decoding_message_size(usize::MAX)))
                })+
                other => Err(format!("no such message: {other}").into()),
            }
        }
    };
}

echoes! {
    small trunkline::shapes::Small;
    medium trunkline::shapes::Medium;
    large trunkline::shapes::Large;
    deep trunkline::shapes::Deep;
    #[cfg(hyperprotobench)] bench3_m3 hyperprotobench::M3;
    #[cfg(hyperprotobench)] bench4_m43 hyperprotobench::M43;
    #[cfg(hyperprotobench)] bench5_m34 hyperprotobench::M34;
}

/// The server: one message, on this thread.
pub async fn serve(port_file: &str, message: &str, wire: &str) -> Result<(), Failure> {
    std::thread::spawn(take_orders);
    let listener = crate::listen(port_file).await?;
    let mut server = Server::builder()
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let router = service(&mut server, message, Path::new(wire))?;
    Ok(router.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))).await?)
}

/// The driver: orders as everywhere, answers `CALLS ELAPSED_NS P50_NS P75_NS P90_NS P99_NS`.
pub async fn drive(address: &str, wire: &str) -> Result<(), Failure> {
    let request = Bytes::from(std::fs::read(wire)?);
    let channel = Endpoint::new(format!("http://{address}"))?
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .connect()
        .await?;
    let mut looks = 0;
    while let Err(status) = call(&channel, &request).await {
        looks += 1;
        if looks == LOOKS {
            return Err(status.into());
        }
        tokio::time::sleep(PAUSE).await;
    }
    for line in std::io::stdin().lines() {
        let [millis, _, outstanding] = crate::order(&line?)?;
        let began = Instant::now();
        let mut took = carry_out(&channel, &request, millis, outstanding as usize).await?;
        let elapsed_ns = began.elapsed().as_nanos();
        took.sort_unstable();
        let of = |percent| crate::quantile(&took, percent);
        println!("{} {elapsed_ns} {} {} {} {}", took.len(), of(50), of(75), of(90), of(99));
    }
    Ok(())
}

async fn carry_out(
    channel: &Channel,
    request: &Bytes,
    millis: u64,
    outstanding: usize,
) -> Result<Vec<Duration>, Failure> {
    let end = Instant::now() + Duration::from_millis(millis);
    let mut took = Vec::new();
    let mut calls: FuturesUnordered<_> = (0..outstanding).map(|_| call(channel, request)).collect();
    while let Some(answer) = calls.next().await {
        took.push(answer?);
        if Instant::now() < end {
            calls.push(call(channel, request));
        }
    }
    Ok(took)
}

async fn call(channel: &Channel, request: &Bytes) -> Result<Duration, Status> {
    let began = Instant::now();
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/echo.Echo/Call");
    let answer = grpc.unary(Request::new(request.clone()), path, Raw).await?;
    // The answer is the message that was sent; fields of one are as long in any order.
    if answer.get_ref().len() != request.len() {
        return Err(Status::data_loss(format!("{} bytes came", answer.get_ref().len())));
    }
    Ok(began.elapsed())
}

/// Messages as they lie on the wire.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}
