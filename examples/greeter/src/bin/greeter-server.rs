//! Serves the greeter until it is stopped.

use trunkline_example_greeter::MyGreeter;
use trunkline_example_greeter::proto::greeter_server::GreeterServer;

fn main() -> Result<(), trunkline::Status> {
    trunkline::Server::builder().name("greeter").add_service(GreeterServer::new(MyGreeter)).run()
}
