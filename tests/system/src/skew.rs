//! The notes service served in two versions of its definition.

use crate::proto::{newer, older};
use trunkline::{Incoming, Receiver, Response, Sender, Status};

/// Serves the notes service as either version's programs do.
#[derive(Debug)]
pub struct Notes;

impl older::notes_server::Notes for Notes {
    async fn store(&self, request: Incoming<older::Note>) -> Result<Response<older::Note>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn pass(
        &self,
        mut input: Receiver<older::Note>,
        mut out: Sender<older::Note>,
    ) -> Result<(), Status> {
        while let Some(note) = input.recv().await? {
            out.send(note).await?;
        }
        Ok(())
    }
}

impl newer::notes_server::Notes for Notes {
    async fn store(&self, request: Incoming<newer::Note>) -> Result<Response<newer::Note>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn pass(
        &self,
        mut input: Receiver<newer::Note>,
        mut out: Sender<newer::Note>,
    ) -> Result<(), Status> {
        while let Some(note) = input.recv().await? {
            out.send(note).await?;
        }
        Ok(())
    }

    async fn forget(&self, request: Incoming<newer::Note>) -> Result<Response<newer::Note>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}
