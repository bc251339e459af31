//! The split's application: it reads nothing it does not need, works, and answers with a message of the kind it got.

use crate::harness::business::{take_orders, work};
use crate::harness::children::Failure;
use clap::ValueEnum;
use std::path::Path;
use trunkline::codegen::Message;
use trunkline::{Incoming, Response, Server, Status};
use trunkline_message::transcode::{DecodeLimits, Transcoder};
use trunkline_message::{AlignedBuf, Extent};
use trunkline_schema::Schema;

/// How the application makes its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Making {
    /// A struct of its own, which the library then writes where it is sent from: linearization.
    Struct,
    /// Written field by field where it is sent from.
    InPlace,
}

/// Answers every call with the same message.
struct Echo<M> {
    message: M,
    making: Making,
}

/// A message that can be copied field by field into a builder.
trait Fill: Message {
    /// Answers with it, built in place.
    fn in_place(&self, request: &Incoming<Self>) -> Result<Response<Self>, Status>;
}

impl<M: Fill> Echo<M> {
    fn read(set: &[u8], wire: &Path, making: Making) -> Result<Self, Failure> {
        let schema = Schema::from_descriptor_set(set)?;
        let root = schema.message_named(M::FULL_NAME).ok_or("a schema without its message")?;
        let transcoder = Transcoder::new(std::sync::Arc::new(schema));
        let mut extent = AlignedBuf::new();
        let limits = DecodeLimits::default();
        let len = transcoder.decode(root, &std::fs::read(wire)?, &mut extent, &limits)?;
        Ok(Self { message: M::read(M::view(&extent.bytes()[..len])), making })
    }

    fn answer(&self, request: &Incoming<M>) -> Result<Response<M>, Status> {
        work();
        match self.making {
            Making::Struct => Ok(Response::new(self.message.clone())),
            Making::InPlace => self.message.in_place(request),
        }
    }
}

/// `module message { field by field }`; what has no fields here is answered with a struct.
macro_rules! echoes {
    ($($(#[$when:meta])* $module:ident $($part:ident)::+ $(|$from:ident, $into:ident| $fill:block)?;)+) => {
        $($(#[$when])*
        mod $module {
            #![allow(dead_code, missing_docs, reason = "generated, and of many messages one is used")]
            include!(concat!(env!("OUT_DIR"), "/", stringify!($module), "/trunkline_protos.rs"));
        }

        $(#[$when])*
        impl Fill for $module::$($part)::+ {
            fn in_place(&self, request: &Incoming<Self>) -> Result<Response<Self>, Status> {
                $(return Ok(request.build::<Self>(|builder| {
                    let ($from, $into) = (self, builder);
                    $fill
                })?.into());)?
                #[allow(unreachable_code, reason = "what is filled has returned")]
                {
                    let _ = request;
                    Ok(Response::new(self.clone()))
                }
            }
        }

        $(#[$when])*
        impl $module::echo::echo_server::Echo for Echo<$module::$($part)::+> {
            async fn call(
                &self,
                request: Incoming<$module::$($part)::+>,
            ) -> Result<Response<$module::$($part)::+>, Status> {
                self.answer(&request)
            }
        })+

        /// The process: serves one message until it is ended; takes its work from standard input.
        pub fn serve(socket: &Path, message: &str, wire: &Path, making: Making) -> Result<(), Failure> {
            std::thread::spawn(take_orders);
            let server = Server::builder().socket(socket);
            match message {
                $($(#[$when])*
                stringify!($module) => {
                    let set = $module::echo::FILE_DESCRIPTOR_SET;
                    let echo = Echo::<$module::$($part)::+>::read(set, wire, making)?;
                    Ok(server.add_service($module::echo::echo_server::EchoServer::new(echo)).run()?)
                })+
                other => Err(format!("no such message: {other}").into()),
            }
        }
    };
}

echoes! {
    small trunkline::shapes::Small |from, into| {
        into.set_route(from.route.as_ref().unwrap_or(&Default::default()));
        into.set_window(from.window.as_ref().unwrap_or(&Default::default()));
        into.set_health(from.health.as_ref().unwrap_or(&Default::default()));
        into.set_phase(from.phase).set_wanted(from.wanted).set_sticky(from.sticky);
        into.set_trace_id(from.trace_id).set_span_id(from.span_id);
        into.set_summary(&from.summary).set_detail(&from.detail).set_owner(&from.owner);
        into.set_zone(from.zone).set_rank(from.rank).set_created(from.created);
    };
    medium trunkline::shapes::Medium;
    large trunkline::shapes::Large |from, into| {
        into.set_part(from.part.as_ref().unwrap_or(&Default::default()));
        into.set_frame(from.frame.as_ref().unwrap_or(&Default::default()));
        into.set_up(from.up.as_ref().unwrap_or(&Default::default()));
        into.set_down(from.down.as_ref().unwrap_or(&Default::default()));
        into.set_from(from.from).set_to(from.to).set_path(&from.path);
        into.set_a(from.a).set_b(from.b).set_c(from.c).set_d(from.d);
        into.set_e(from.e).set_f(from.f).set_g(from.g);
    };
    deep trunkline::shapes::Deep;
    #[cfg(hyperprotobench)] bench3_m3 hyperprotobench::M3;
    #[cfg(hyperprotobench)] bench4_m43 hyperprotobench::M43;
    #[cfg(hyperprotobench)] bench5_m34 hyperprotobench::M34;
}
