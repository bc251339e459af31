//! Serves the guest book until it is stopped.

use trunkline_example_tonic as guestbook;
use trunkline_example_tonic::proto::guestbook_server::GuestbookServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = GuestbookServer::new(guestbook::MyGuestbook::default());
    trunkline_tonic::Server::builder().add_service(service).serve().await?;
    Ok(())
}
