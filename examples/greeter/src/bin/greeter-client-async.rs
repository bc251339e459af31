//! Says hello from an async function. `block_on` is Trunkline's own; under any other executor it is the same call.

use trunkline::{Channel, Status};
use trunkline_example_greeter::proto::{HelloRequest, greeter_client::GreeterClient};

async fn greet(name: String) -> Result<(), Status> {
    let reply = GreeterClient::new(Channel::local()).say_hello(HelloRequest { name }).await?;
    println!("{}", reply.view().message());
    Ok(())
}

fn main() -> Result<(), Status> {
    trunkline::block_on(greet(std::env::args().nth(1).unwrap_or_else(|| "world".to_owned())))
}
