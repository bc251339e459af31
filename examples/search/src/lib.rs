//! Full-text search over a collection of documents, served over RPC.
//!
//! Hardly anything here knows of RPC: it is what a team would have written first. `service.rs` is the page of glue
//! between its types and the generated ones in [`proto`]; `bin/search-server.rs` serves it and `bin/search-client.rs`
//! calls it. Both run with a daemon or without one, and neither knows which.
//!
//! # The way of a document
//! `folder.rs` reads it, `text.rs` cuts it into words and words into terms, `segment.rs` records where each term
//! occurs, and `index.rs` adds the segment to the collection. Segments never change: readers hold the [`Index`] of
//! their moment and take no lock while they search, and an addition becomes visible at once and as a whole.
//!
//! # The way of a query
//! `query.rs` parses it, `rank.rs` scores documents by BM25, `found.rs` holds the ranking and cuts a snippet
//! (`snippet.rs`) for each hit somebody looks at. `suggest.rs` knows endings, corrections and refinements of words;
//! `conversation.rs` is an interactive search, question by question.
//!
//! # Limits
//! Words ([`WORD_BYTES_MAX`]), queries ([`QUERY_BYTES_MAX`], [`CLAUSES_MAX`]), files and folders (`folder.rs`), the
//! history of a conversation, and what is taken in from the network (`service.rs`) are bounded.
#![forbid(unsafe_code)]

mod conversation;
pub mod folder;
mod found;
mod index;
mod query;
mod rank;
mod segment;
mod service;
mod snippet;
mod suggest;
mod text;

/// Generated from `proto/search/v1/search.proto`.
pub mod proto {
    trunkline::include_proto!("search.v1");
}

pub use conversation::{Conversation, Page, Question, Reply};
pub use found::{Found, Hit};
pub use index::{Added, Collection, Index};
pub use query::{CLAUSES_MAX, Clause, QUERY_BYTES_MAX, Query, QueryError};
pub use segment::Document;
pub use service::SearchService;
pub use snippet::Snippet;
pub use text::{WORD_BYTES_MAX, Words, term};
