//! Signs the guest book and reads it.

use trunkline_example_tonic::proto::guestbook_client::GuestbookClient;
use trunkline_example_tonic::proto::{ReadRequest, SignRequest};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut client = GuestbookClient::connect(trunkline_example_tonic::url()).await?;
    for name in std::env::args().skip(1) {
        let reply = client.sign(SignRequest { name: name.clone() }).await?;
        println!("{name} signed page {}", reply.into_inner().page);
    }
    if let Err(status) = client.sign(SignRequest::default()).await {
        println!("{:?}: {}", status.code(), status.message());
    }
    let mut entries = client.read(ReadRequest {}).await?.into_inner();
    while let Some(entry) = entries.message().await? {
        println!("page {}: {}", entry.page, entry.name);
    }
    Ok(())
}
