//! A greeter for every calling pattern.

use trunkline::{Incoming, Receiver, Response, Sender, Status};

use crate::proto::greeter_server::Greeter;
use crate::proto::{HelloReply, HelloRequest};

/// Greetings, one per language.
const TONGUES: [&str; 4] = ["Hello", "Hej", "Salut", "Jambo"];

/// Greets whoever has a name.
pub struct MyGreeter;

impl Greeter for MyGreeter {
    async fn say_hello(&self, request: Incoming<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(greeting("Hello", request.view().name())?))
    }

    async fn say_hello_in_many_tongues(
        &self,
        request: Incoming<HelloRequest>,
        mut out: Sender<HelloReply>,
    ) -> Result<(), Status> {
        for hello in TONGUES {
            out.send(greeting(hello, request.view().name())?).await?;
        }
        Ok(())
    }

    async fn say_hello_to_all(
        &self,
        mut input: Receiver<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let mut names = Vec::new();
        while let Some(request) = input.recv().await? {
            names.push(request.into_inner().name);
        }
        Ok(Response::new(greeting("Hello", &names.join(" and "))?))
    }

    async fn introduce(
        &self,
        mut input: Receiver<HelloRequest>,
        mut out: Sender<HelloReply>,
    ) -> Result<(), Status> {
        while let Some(request) = input.recv().await? {
            out.send(greeting("Nice to meet you", request.view().name())?).await?;
        }
        Ok(())
    }
}

fn greeting(hello: &str, name: &str) -> Result<HelloReply, Status> {
    if name.is_empty() {
        return Err(Status::invalid_argument("whom shall I greet?"));
    }
    Ok(HelloReply { message: format!("{hello}, {name}!") })
}
