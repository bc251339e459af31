//! Calls whose messages no generated Rust code reads: protobuf, sent and received as it is, or linear by [`Types`].
//!
//! For those who bring generated code and codecs of their own and want the calls: `trunkline-tonic` is built on this. A
//! [`Client`] calls methods by path, without knowing who streams; a [`Service`] gets every call of a service it names,
//! with the path. Messages are bytes. Where the other end of a call is typed (a generated client or server of this
//! library), its daemon converts by that end's schema; where it is opaque too, or a gRPC peer, nobody reads them on the
//! way.
//!
//! Bindings for other languages bring generated code that reads and writes linear messages. They say the [`Types`] of a
//! client or a service, and build what they send in a [`Space`] of the send heap: nothing is copied or encoded on its
//! way to an end of equal types.
//!
//! ```no_run
//! # async fn example() -> Result<(), trunkline::Status> {
//! use trunkline::{Channel, opaque};
//!
//! let client = opaque::Client::new(Channel::local());
//! let hello = [0x0a, 5, b'w', b'o', b'r', b'l', b'd'];
//! let call = client.call("/greeter.v1.Greeter/SayHello").with_message(hello.to_vec()).with_no_more();
//! let (_, mut answers) = call.open().await?;
//! while let Some(answer) = answers.next().await {
//!     println!("{answer:?}");
//! }
//! # Ok(())
//! # }
//! ```

mod client;
mod message;
mod service;
mod types;
mod unary;

pub use client::{Answer, Answers, Call, Client, EndWatch, Requests};
pub use message::{Message, OpaqueBody, Outcome};
pub use service::{Delivered, Incoming, Responder, Scope, Service};
pub use types::{Space, Types};
pub use unary::{UnaryAnswer, UnaryExchange};
