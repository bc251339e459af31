//! Serves the greeter and calls it by each of the four patterns, then once more without a struct in between.

use std::error::Error;
use std::time::Duration;

use trunkline::{Channel, Request, Server, Status, Wait};
use trunkline_example_greeter::MyGreeter;
use trunkline_example_greeter::proto::greeter_client::GreeterClient;
use trunkline_example_greeter::proto::greeter_server::GreeterServer;
use trunkline_example_greeter::proto::{HelloReply, HelloRequest};

fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().name("greeter").add_service(GreeterServer::new(MyGreeter)).spawn()?;
    server.ready().wait()?;
    let channel = Channel::local();
    let client = GreeterClient::new(channel.clone());
    one_to_one(&client)?;
    one_to_many(&client)?;
    many_to_one(&client)?;
    trunkline::block_on(many_to_many(&client))?;
    in_place(&client, &channel)?;
    Ok(server.shutdown(Duration::from_secs(1)).wait()?)
}

/// Unary, with a deadline, and an error that the server chose.
fn one_to_one(client: &GreeterClient) -> Result<(), Status> {
    let request = Request::new(named("Ada")).with_timeout(Duration::from_secs(5));
    let HelloReply { message } = client.say_hello(request).wait()?.into_inner();
    println!("{message}");
    if let Err(status) = client.say_hello(named("")).wait() {
        println!("{status}");
    }
    Ok(())
}

/// Server streaming.
fn one_to_many(client: &GreeterClient) -> Result<(), Status> {
    let mut greetings = client.say_hello_in_many_tongues(named("Ada")).wait()?;
    while let Some(reply) = greetings.recv().wait()? {
        println!("{}", reply.view().message());
    }
    Ok(())
}

/// Client streaming.
fn many_to_one(client: &GreeterClient) -> Result<(), Status> {
    let mut guests = client.say_hello_to_all();
    for name in ["Ada", "Grace", "Barbara"] {
        guests.send(named(name)).wait()?;
    }
    println!("{}", guests.finish().wait()?.view().message());
    Ok(())
}

/// Bidirectional: each greeting comes before the next introduction.
async fn many_to_many(client: &GreeterClient) -> Result<(), Status> {
    let (mut introductions, mut greetings) = client.introduce().split();
    for name in ["Ada", "Grace"] {
        introductions.send(named(name)).await?;
        if let Some(reply) = greetings.recv().await? {
            println!("{}", reply.view().message());
        }
    }
    Ok(())
}

/// Written where it is sent from, read where it was received.
fn in_place(client: &GreeterClient, channel: &Channel) -> Result<(), Box<dyn Error>> {
    let request = channel.build::<HelloRequest>(|request| {
        request.set_name("Margaret");
    })?;
    println!("{}", client.say_hello(request).wait()?.view().message());
    Ok(())
}

fn named(name: &str) -> HelloRequest {
    HelloRequest { name: name.to_owned() }
}
