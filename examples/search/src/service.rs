//! The service: generated types on one side, ours on the other.

use crate::conversation::{Conversation, Page, Question, Reply};
use crate::found::{Found, Hit};
use crate::index::{Added, Collection};
use crate::proto::search_server::Search;
use crate::proto::{self, answer, ask};
use crate::query::{Query, QueryError};
use crate::segment::Document;
use crate::snippet::Snippet;
use std::sync::Arc;
use std::time::Instant;
use trunkline::{Incoming, Receiver, Response, Sender, Status};

/// Hits of a query that does not say how many it wants.
const HITS_USUAL: u32 = 10;
/// Documents are added in batches of this size, so that a long stream does not wait in memory for its end.
const BATCH_BYTES: usize = 8 << 20;
/// Longest name of a document.
const NAME_BYTES_MAX: usize = 4096;
/// Text the collection takes in over the network; it lives in memory, with an index about as large.
const COLLECTION_BYTES_MAX: u64 = 1 << 30;

/// Answers calls from a collection.
#[derive(Clone, Debug, Default)]
pub struct SearchService {
    collection: Arc<Collection>,
}

impl SearchService {
    /// Serves this collection.
    pub fn new(collection: Arc<Collection>) -> Self {
        Self { collection }
    }

    fn search(&self, query: &str) -> Result<Found, Status> {
        Ok(Found::search(self.collection.index(), Query::parse(query)?))
    }

    fn add(&self, batch: &mut Vec<Document>) -> Result<Added, Status> {
        let bytes: u64 = batch.iter().map(|document| document.text.len() as u64).sum();
        if self.collection.index().bytes() + bytes > COLLECTION_BYTES_MAX {
            let problem = format!("the collection holds at most {COLLECTION_BYTES_MAX} bytes of text");
            return Err(Status::resource_exhausted(problem));
        }
        Ok(self.collection.add(std::mem::take(batch)))
    }
}

impl Search for SearchService {
    async fn query(
        &self,
        request: Incoming<proto::QueryRequest>,
    ) -> Result<Response<proto::QueryResponse>, Status> {
        let began = Instant::now();
        let asked = request.into_inner();
        let found = self.search(&asked.query)?;
        let count_max = if asked.limit == 0 { HITS_USUAL } else { asked.limit };
        let hits = found.hits(asked.offset as usize, count_max as usize);
        Ok(Response::new(proto::QueryResponse {
            hits: hits.map(proto::Hit::from).collect(),
            matches: found.len() as u32,
            documents: found.searched() as u32,
            did_you_mean: found.did_you_mean().map(|query| query.to_string()),
            elapsed_ns: began.elapsed().as_nanos() as u64,
        }))
    }

    async fn results(
        &self,
        request: Incoming<proto::QueryRequest>,
        mut out: Sender<proto::Hit>,
    ) -> Result<(), Status> {
        let asked = request.into_inner();
        let found = self.search(&asked.query)?;
        let count_max = if asked.limit == 0 { usize::MAX } else { asked.limit as usize };
        // A hit is made when the reader has room for it.
        for hit in found.hits(asked.offset as usize, count_max) {
            out.send(proto::Hit::from(hit)).await?;
        }
        Ok(())
    }

    async fn index(
        &self,
        mut input: Receiver<proto::Document>,
    ) -> Result<Response<proto::IndexSummary>, Status> {
        let (mut batch, mut batch_bytes, mut added) = (Vec::new(), 0, Added::default());
        while let Some(document) = input.recv().await? {
            let proto::Document { name, text } = document.into_inner();
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return Err(Status::invalid_argument(format!("a name has 1 to {NAME_BYTES_MAX} bytes")));
            }
            batch_bytes += text.len();
            batch.push(Document { name, text });
            if batch_bytes > BATCH_BYTES {
                added = added.and(self.add(&mut batch)?);
                batch_bytes = 0;
            }
        }
        added = added.and(self.add(&mut batch)?);
        Ok(Response::new(proto::IndexSummary {
            documents: added.documents as u32,
            replaced: added.replaced as u32,
            bytes: added.bytes,
            words: added.words,
        }))
    }

    async fn session(
        &self,
        mut input: Receiver<proto::Ask>,
        mut out: Sender<proto::Answer>,
    ) -> Result<(), Status> {
        let mut conversation = Conversation::default();
        while let Some(ask) = input.recv().await? {
            let reply = match ask.into_inner().kind {
                Some(kind) => conversation.answer(&self.collection, kind.into()),
                None => Reply::Complaint("an empty question".into()),
            };
            out.send(proto::Answer::from(reply)).await?;
        }
        Ok(())
    }
}

impl From<QueryError> for Status {
    fn from(error: QueryError) -> Self {
        Status::invalid_argument(error.to_string())
    }
}

impl From<ask::Kind> for Question {
    fn from(kind: ask::Kind) -> Self {
        match kind {
            ask::Kind::Query(text) => Self::Query(text),
            ask::Kind::Refine(text) => Self::Refine(text),
            ask::Kind::Undo(_) => Self::Undo,
            ask::Kind::More(_) => Self::More,
            ask::Kind::Complete(prefix) => Self::Complete(prefix),
            ask::Kind::Open(rank) => Self::Open(rank),
        }
    }
}

impl From<Question> for proto::Ask {
    fn from(question: Question) -> Self {
        let kind = match question {
            Question::Query(text) => ask::Kind::Query(text),
            Question::Refine(text) => ask::Kind::Refine(text),
            Question::Undo => ask::Kind::Undo(proto::Undo::default()),
            Question::More => ask::Kind::More(proto::More::default()),
            Question::Complete(prefix) => ask::Kind::Complete(prefix),
            Question::Open(rank) => ask::Kind::Open(rank),
        };
        Self { kind: Some(kind) }
    }
}

impl From<Reply> for proto::Answer {
    fn from(reply: Reply) -> Self {
        let kind = match reply {
            Reply::Page(page) => answer::Kind::Page(page.into()),
            Reply::Completions(words) => answer::Kind::Completions(proto::Completions { words }),
            Reply::Document(name, text) => answer::Kind::Document(proto::Document { name, text }),
            Reply::Complaint(why) => answer::Kind::Complaint(why),
        };
        Self { kind: Some(kind) }
    }
}

impl From<Page> for proto::Page {
    fn from(page: Page) -> Self {
        Self {
            query: page.query,
            hits: page.hits.into_iter().map(proto::Hit::from).collect(),
            matches: page.matches as u32,
            suggestions: page.suggestions,
            did_you_mean: page.did_you_mean,
        }
    }
}

impl From<Hit> for proto::Hit {
    fn from(hit: Hit) -> Self {
        Self { rank: hit.rank, name: hit.name, score: hit.score, snippet: Some(hit.snippet.into()) }
    }
}

impl From<Snippet> for proto::Snippet {
    fn from(snippet: Snippet) -> Self {
        let mark = |range: std::ops::Range<u32>| proto::Mark { start: range.start, end: range.end };
        Self { line: snippet.line, text: snippet.text, marks: snippet.marks.into_iter().map(mark).collect() }
    }
}
