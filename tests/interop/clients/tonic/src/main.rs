//! tonic calls `examples/search`: all four patterns, metadata, compression, deadline, cancellation and errors.
//!
//! `search-tonic URL`
#![forbid(unsafe_code)]

use search::search_client::SearchClient;
use search::{Ask, Document, QueryRequest, answer, ask};
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;
use tokio_stream::StreamExt;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

mod search {
    tonic::include_proto!("search.v1");
}

type Client = SearchClient<Channel>;

/// No call may take longer.
const TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: search-tonic URL")?;
    let client = SearchClient::connect(url).await?;
    let mut failed = 0;
    let outcomes = [
        ("query", within(query(client.clone())).await),
        ("results", within(results(client.clone())).await),
        ("index", within(index(client.clone())).await),
        ("session", within(session(client.clone())).await),
        ("status", within(status(client.clone())).await),
        ("metadata", within(metadata(client.clone())).await),
        ("gzip", within(compressed(client.clone(), CompressionEncoding::Gzip)).await),
        ("deflate", within(compressed(client.clone(), CompressionEncoding::Deflate)).await),
        ("zstd", within(compressed(client.clone(), CompressionEncoding::Zstd)).await),
        ("cancelled", within(cancelled(client.clone())).await),
        ("deadline", within(deadline(client)).await),
    ];
    for (name, outcome) in outcomes {
        match outcome {
            Ok(()) => println!("passed {name}"),
            Err(status) => {
                failed += 1;
                println!("FAILED {name}: {status}");
            }
        }
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn within(case: impl Future<Output = Result<(), Status>>) -> Result<(), Status> {
    tokio::time::timeout(TIMEOUT, case).await.unwrap_or_else(|_| Err(Status::cancelled("no end in 20 s")))
}

fn wrong(what: impl std::fmt::Debug) -> Status {
    Status::unknown(format!("not what was expected: {what:?}"))
}

fn asking(query: &str) -> QueryRequest {
    QueryRequest { query: query.into(), ..QueryRequest::default() }
}

async fn query(mut client: Client) -> Result<(), Status> {
    let reply = client.query(QueryRequest { limit: 3, ..asking("daemon") }).await?.into_inner();
    if (1..=3).contains(&reply.hits.len()) { Ok(()) } else { Err(wrong(reply)) }
}

async fn results(mut client: Client) -> Result<(), Status> {
    let mut stream = client.results(asking("the")).await?.into_inner();
    let mut rank = 0;
    while let Some(hit) = stream.message().await? {
        rank += 1;
        if hit.rank != rank {
            return Err(wrong(hit));
        }
    }
    if rank > 10 { Ok(()) } else { Err(wrong(rank)) }
}

async fn index(mut client: Client) -> Result<(), Status> {
    let document = |i| Document { name: format!("tonic{i}"), text: format!("tonic words number{i}") };
    let documents: Vec<Document> = (0..200).map(document).collect();
    let summary = client.index(tokio_stream::iter(documents)).await?.into_inner();
    if summary.documents == 200 { Ok(()) } else { Err(wrong(summary)) }
}

async fn session(mut client: Client) -> Result<(), Status> {
    let kinds = [ask::Kind::Query("daemon".into()), ask::Kind::Refine("call".into())];
    let asks = kinds.map(|kind| Ask { kind: Some(kind) });
    let mut answers = client.session(tokio_stream::iter(asks)).await?.into_inner();
    for _ in 0..2 {
        match answers.message().await?.and_then(|answer| answer.kind) {
            Some(answer::Kind::Page(_)) => {}
            other => return Err(wrong(other)),
        }
    }
    match answers.message().await? {
        None => Ok(()),
        more => Err(wrong(more)),
    }
}

async fn status(mut client: Client) -> Result<(), Status> {
    match client.query(asking("")).await {
        Err(status) if status.code() == Code::InvalidArgument && !status.message().is_empty() => Ok(()),
        other => Err(wrong(other)),
    }
}

async fn metadata(mut client: Client) -> Result<(), Status> {
    let mut request = Request::new(asking("daemon"));
    request.metadata_mut().insert("tenant", MetadataValue::from_static("blue"));
    request.metadata_mut().insert_bin("raw-bin", MetadataValue::from_bytes(&[0, 255]));
    client.query(request).await.map(drop)
}

async fn compressed(client: Client, by: CompressionEncoding) -> Result<(), Status> {
    let mut client = client.send_compressed(by).accept_compressed(by);
    client.query(asking("daemon")).await.map(drop)
}

async fn cancelled(mut client: Client) -> Result<(), Status> {
    let first = Ask { kind: Some(ask::Kind::Query("daemon".into())) };
    let asks = tokio_stream::once(first).chain(tokio_stream::pending());
    let mut answers = client.session(asks).await?.into_inner();
    answers.message().await?;
    drop(answers);
    query(client).await
}

async fn deadline(mut client: Client) -> Result<(), Status> {
    let mut request = Request::new(tokio_stream::pending::<Ask>());
    request.set_timeout(Duration::from_millis(300));
    let ended = match client.session(request).await {
        Ok(answers) => answers.into_inner().message().await.map(drop),
        Err(status) => Err(status),
    };
    match ended {
        // tonic itself says CANCELLED when its own clock is first.
        Err(status) if [Code::DeadlineExceeded, Code::Cancelled].contains(&status.code()) => Ok(()),
        other => Err(wrong(other)),
    }
}
