//! Indexes a folder and serves it.
//!
//! Runs with the host's daemon if there is one, else with an engine of its own; `TRUNKLINE_SOCKET` or `--socket` names
//! a certain daemon. Nothing in this program depends on which it is.

use clap::Parser;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trunkline::{Server, ServerBuilder, Status, Wait};
use trunkline_example_search::proto::search_server::SearchServer;
use trunkline_example_search::{Collection, SearchService, folder};

/// Serves full-text search over a folder
#[derive(Debug, Parser)]
struct Args {
    /// Folder to index at the start; more can be sent by clients
    folder: Option<PathBuf>,
    /// Socket of the daemon [default: $TRUNKLINE_SOCKET, else the usual places]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Threads that answer
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// End when standard input closes
    #[arg(long)]
    until_stdin_closes: bool,
}

/// Time calls in flight get to finish when the server ends.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("search-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let collection = Arc::new(Collection::default());
    if let Some(folder) = &args.folder {
        index(&collection, folder)?;
    }
    let service = SearchServer::new(SearchService::new(collection));
    let server = Server::builder().name("search-server").workers(args.workers).add_service(service);
    let server = at(server, args).spawn()?;
    server.ready().wait()?;
    println!("serving search.v1.Search");
    if args.until_stdin_closes {
        // What comes is not asked for; only its end matters.
        let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
        server.shutdown(GRACE).wait()?;
    }
    Ok(server.wait()?)
}

fn at(server: ServerBuilder, args: &Args) -> ServerBuilder {
    match &args.socket {
        Some(path) => server.socket(path),
        None => server,
    }
}

fn index(collection: &Collection, root: &Path) -> Result<(), Failure> {
    let began = Instant::now();
    let files = folder::text_files(root).map_err(|error| Failure::Folder(root.to_owned(), error))?;
    let added = collection.add(files.iter().filter_map(|file| folder::read(root, file)).collect());
    println!(
        "indexed {} files, {} words, {:.1} MiB of text in {:.0} ms",
        added.documents,
        added.words,
        added.bytes as f64 / f64::from(1 << 20),
        began.elapsed().as_secs_f64() * 1e3,
    );
    Ok(())
}

/// Why the server ended.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{}: {_1}", _0.display())]
    Folder(PathBuf, io::Error),
    #[error("{0}")]
    Call(#[from] Status),
}
