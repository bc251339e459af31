//! A service of which only one method is called.

use trunkline::{Incoming, Receiver, Response, Sender, Status};
use trunkline_example_greeter::proto::greeter_server::Greeter;
use trunkline_example_greeter::proto::{HelloReply, HelloRequest};

/// Answers a greeting so, and nothing else.
pub struct Hello(pub fn(HelloRequest) -> HelloReply);

impl Greeter for Hello {
    async fn say_hello(&self, request: Incoming<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(self.0(request.into_inner())))
    }

    async fn say_hello_in_many_tongues(
        &self,
        _: Incoming<HelloRequest>,
        _: Sender<HelloReply>,
    ) -> Result<(), Status> {
        Err(nobody_calls())
    }

    async fn say_hello_to_all(&self, _: Receiver<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Err(nobody_calls())
    }

    async fn introduce(&self, _: Receiver<HelloRequest>, _: Sender<HelloReply>) -> Result<(), Status> {
        Err(nobody_calls())
    }
}

fn nobody_calls() -> Status {
    Status::unimplemented("nobody calls it")
}
