//! The service, as a user of tonic writes it.

use crate::proto::guestbook_server::Guestbook;
use crate::proto::{Entry, ReadRequest, SignReply, SignRequest};
use std::net::SocketAddr;
use std::pin::Pin;
use tokio::sync::Mutex;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// Names on a page each.
#[derive(Debug, Default)]
pub struct MyGuestbook {
    names: Mutex<Vec<String>>,
}

#[tonic::async_trait]
impl Guestbook for MyGuestbook {
    async fn sign(&self, request: Request<SignRequest>) -> Result<Response<SignReply>, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("who signs?"));
        }
        let mut names = self.names.lock().await;
        names.push(name);
        Ok(Response::new(SignReply { page: page(names.len()) }))
    }

    type ReadStream = Pin<Box<dyn Stream<Item = Result<Entry, Status>> + Send>>;

    async fn read(&self, _: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let names = self.names.lock().await.clone();
        let entries = (1..).zip(names).map(|(number, name)| Ok(Entry { page: page(number), name }));
        Ok(Response::new(Box::pin(tokio_stream::iter(entries))))
    }
}

fn page(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Where the server listens before it moved: `GUESTBOOK_ADDRESS`, or a usual place.
pub fn address() -> SocketAddr {
    let said = std::env::var("GUESTBOOK_ADDRESS").ok().and_then(|address| address.parse().ok());
    said.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 50051)))
}

/// The same, as clients write it.
pub fn url() -> String {
    format!("http://{}", address())
}
