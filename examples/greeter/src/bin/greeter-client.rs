//! Says hello and waits for the answer.

use trunkline::{Channel, Status, Wait};
use trunkline_example_greeter::proto::{HelloRequest, greeter_client::GreeterClient};

fn main() -> Result<(), Status> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "world".to_owned());
    let reply = GreeterClient::new(Channel::local()).say_hello(HelloRequest { name }).wait()?;
    println!("{}", reply.view().message());
    Ok(())
}
