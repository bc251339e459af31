//! Searches from the command line, by each of the four calling patterns.

use clap::{Args, Parser, Subcommand};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use trunkline::{Channel, Request, Status, Wait};
use trunkline_example_search::proto::search_client::SearchClient;
use trunkline_example_search::proto::{Ask, Document, Hit, Page, QueryRequest, Snippet, answer};
use trunkline_example_search::{Question, folder};

/// Searches a collection that a search-server serves
#[derive(Debug, Parser)]
struct Command {
    /// Socket of the daemon [default: $TRUNKLINE_SOCKET, else the usual places]
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Whom to call, such as tcp://10.0.0.7:7878 [default: whoever serves it]
    #[arg(long, global = true, value_name = "ENDPOINT")]
    target: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the best matches (a unary call)
    Query(QueryArgs),
    /// Show all matches (a server-streaming call)
    Results(QueryArgs),
    /// Add the text files of a folder to the collection (a client-streaming call)
    Index {
        /// The folder
        folder: PathBuf,
    },
    /// Search interactively (a bidirectional call)
    Session,
}

#[derive(Debug, Args)]
struct QueryArgs {
    /// Words, "exact phrases", +required and -excluded words, in:part-of-name; quote what begins with a hyphen
    #[arg(required = true)]
    query: Vec<String>,
    /// Most hits to show
    #[arg(long, default_value_t = 0)]
    limit: u32,
    /// Ask so many times one after the other, and show how long it took
    #[arg(long, default_value_t = 1)]
    repeat: u32,
}

/// A server that does not answer within this time is reported, not waited for.
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("search-client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    let mut channel = Channel::builder().name("search-client").target(&command.target.unwrap_or_default());
    if let Some(socket) = command.socket {
        channel = channel.socket(socket);
    }
    let client = SearchClient::new(channel.connect_lazy());
    match command.verb {
        Verb::Query(args) => query(&client, &args),
        Verb::Results(args) => results(&client, &args),
        Verb::Index { folder } => index(&client, &folder),
        Verb::Session => session(&client),
    }
}

fn query(client: &SearchClient, args: &QueryArgs) -> Result<(), Failure> {
    let mut times = Vec::with_capacity(args.repeat as usize);
    for round in 0..args.repeat.max(1) {
        let began = Instant::now();
        let response = client.query(args.request()).wait()?;
        times.push(began.elapsed());
        if round == 0 {
            let found = response.into_inner();
            println!("{} of {} documents match", found.matches, found.documents);
            found.hits.iter().try_for_each(show)?;
            if let Some(meant) = found.did_you_mean {
                println!("did you mean: {meant}");
            }
        }
    }
    if times.len() > 1 {
        println!("{}", percentiles(&mut times));
    }
    Ok(())
}

fn results(client: &SearchClient, args: &QueryArgs) -> Result<(), Failure> {
    let (began, mut first, mut count) = (Instant::now(), None, 0);
    let mut hits = client.results(args.request()).wait()?;
    while let Some(hit) = hits.recv().wait()? {
        first.get_or_insert_with(|| began.elapsed());
        count += 1;
        show(&hit.into_inner())?;
    }
    let first = first.map_or_else(String::new, |first| format!(", the first after {first:.1?}"));
    println!("{count} hits in {:.1?}{first}", began.elapsed());
    Ok(())
}

fn index(client: &SearchClient, root: &Path) -> Result<(), Failure> {
    let files = folder::text_files(root).map_err(|error| Failure::Folder(root.to_owned(), error))?;
    let began = Instant::now();
    let mut call = client.index();
    for document in files.iter().filter_map(|file| folder::read(root, file)) {
        call.send(Document { name: document.name, text: document.text }).wait()?;
    }
    let summary = call.finish().wait()?.into_inner();
    println!(
        "{} documents sent ({} replaced), {} words, {:.1} MiB in {:.0?}",
        summary.documents,
        summary.replaced,
        summary.words,
        summary.bytes as f64 / f64::from(1 << 20),
        began.elapsed()
    );
    Ok(())
}

/// Reads questions line by line; each is answered before the next is read.
fn session(client: &SearchClient) -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        println!("words to search; +words to narrow; :more, :undo, :open RANK, :complete BEGINNING; ^D ends");
    }
    let mut call = client.session();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let question = match Question::parse(&line) {
            Ok(question) => question,
            Err(why) => {
                println!("{why}");
                continue;
            }
        };
        if !io::stdin().is_terminal() {
            println!("> {line}");
        }
        call.send(Ask::from(question)).wait()?;
        match call.recv().wait()? {
            Some(answer) => show_answer(answer.into_inner().kind)?,
            None => break,
        }
    }
    Ok(())
}

fn show_answer(answer: Option<answer::Kind>) -> io::Result<()> {
    match answer {
        Some(answer::Kind::Page(page)) => show_page(&page),
        Some(answer::Kind::Completions(completions)) => {
            writeln!(io::stdout(), "{}", completions.words.join("  "))
        }
        Some(answer::Kind::Document(document)) => {
            writeln!(io::stdout(), "{}\n{}", document.name, document.text)
        }
        Some(answer::Kind::Complaint(why)) => writeln!(io::stdout(), "{why}"),
        None => Ok(()),
    }
}

fn show_page(page: &Page) -> io::Result<()> {
    println!("{}: {} documents match", page.query, page.matches);
    page.hits.iter().try_for_each(show)?;
    if let Some(meant) = &page.did_you_mean {
        println!("did you mean: {meant}");
    }
    if !page.suggestions.is_empty() {
        println!("narrow by: {}", page.suggestions.join("  "));
    }
    Ok(())
}

fn show(hit: &Hit) -> io::Result<()> {
    let snippet = hit.snippet.clone().unwrap_or_default();
    writeln!(io::stdout(), "{:4}. {}:{}  ({:.2})", hit.rank, hit.name, snippet.line, hit.score)?;
    writeln!(io::stdout(), "      {}", marked(&snippet))
}

/// The snippet with its marks in bold, on a terminal.
fn marked(snippet: &Snippet) -> String {
    let mut text = snippet.text.clone();
    if !io::stdout().is_terminal() {
        return text;
    }
    for mark in snippet.marks.iter().rev() {
        let (start, end) = (mark.start as usize, mark.end as usize);
        // What a server says about its text is checked before it is believed.
        if start <= end && text.is_char_boundary(start) && text.is_char_boundary(end) {
            text.insert_str(end, "\x1b[0m");
            text.insert_str(start, "\x1b[1m");
        }
    }
    text
}

fn percentiles(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    format!(
        "{} calls: p50 {:.1?}, p90 {:.1?}, p99 {:.1?}, max {:.1?}",
        times.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    )
}

impl QueryArgs {
    fn request(&self) -> Request<QueryRequest> {
        let request = QueryRequest { query: self.query.join(" "), limit: self.limit, offset: 0 };
        Request::new(request).with_timeout(TIMEOUT)
    }
}

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{}: {_1}", _0.display())]
    Folder(PathBuf, io::Error),
    #[error("{0}")]
    Call(#[from] Status),
    #[error("{0}")]
    Terminal(#[from] io::Error),
}
