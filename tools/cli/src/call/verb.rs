//! The verb itself.

use super::attachment::{AttachError, Attachment, PATIENCE};
use super::descriptors;
use super::exchange::{Answer, Exchange, ExchangeError, Feeder, Order};
use super::input::{Following, StandardInput};
use super::json::{Requests, Style};
use super::response::{Responses, describe, pair};
use super::types::{self, TypesError};
use super::way::{Way, WayError};
use super::{Sources, show};
use prost_reflect::{DescriptorPool, MethodDescriptor};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use trunkline_call::{Instant, Metadata, Status, printable};
use trunkline_daemon::{Config, Daemon};
use trunkline_shm::Places;

/// What the command line says.
pub struct CallOrder {
    /// `package.Service/Method`, `list` or `describe`.
    pub method: String,
    /// What is sent, or what is to be listed or described.
    pub input: Input,
    /// Where the types come from.
    pub sources: Sources,
    /// Whom to call.
    pub way: Way,
    /// What is shown, and how.
    pub how: How,
}

/// Requests.
#[derive(Debug, Default)]
pub struct Input {
    /// As JSON, or none: they come from `data` or standard input.
    pub requests: Vec<String>,
    /// JSON, `@FILE`, or `@` and `-` for standard input.
    pub data: Option<String>,
}

/// What is shown, and how.
#[derive(Debug, Default)]
pub struct How {
    /// Zeros, too.
    pub defaults: bool,
    /// Pass over unknown members of requests.
    pub unknown: bool,
    /// With `describe`: a message's JSON.
    pub template: bool,
    /// Method, metadata and counts, too.
    pub verbose: bool,
    /// Where the types are written.
    pub descriptor_set_out: Option<PathBuf>,
}

/// Why there was no call, or no end of one.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The types.
    #[error(transparent)]
    Types(#[from] TypesError),
    /// Whom to call.
    #[error(transparent)]
    Way(#[from] WayError),
    /// The session.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The requests, or what else was asked for.
    #[error("{0}")]
    Request(String),
    /// A response that cannot be shown.
    #[error("response: {0}")]
    Response(String),
    /// A file that is to have the types.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// An engine of our own, for want of a daemon, did not start.
    #[error("no daemon, and no engine of our own: {0}")]
    Engine(String),
}

impl From<descriptors::DescriptorError> for CallError {
    fn from(error: descriptors::DescriptorError) -> Self {
        Self::Types(error.into())
    }
}

/// Does what the order says, printing to standard output, and a failure to standard error. Returns how it ended.
///
/// # Errors
/// [`CallError`] if it did not end with a status.
pub fn call(order: CallOrder) -> Result<Status, CallError> {
    // Lives as long as the call, if it is needed at all.
    let mut own_engine = None;
    // Without files the types come through the daemon: if there is none, that is what is to be said.
    let attachment = match order.sources.is_empty() {
        true => Some(attach(&order.way, &mut own_engine)?),
        false => None,
    };
    match order.method.as_str() {
        "list" => list(&order).map(|()| Status::ok()),
        "describe" => describe_symbol(&order).map(|()| Status::ok()),
        _ => make(order, attachment, &mut own_engine),
    }
}

fn list(order: &CallOrder) -> Result<(), CallError> {
    let service = symbol(order)?;
    let catalog = types::of_symbol(&order.sources, &order.way, service, false)?;
    let text = match service {
        Some(service) => show::methods(&catalog.pool, service).ok_or_else(|| {
            CallError::Request(format!("there is no service {service:?}; `list` shows those there are"))
        })?,
        None => catalog.services.iter().map(|name| printable(name) + "\n").collect(),
    };
    keep(&catalog.pool, order.how.descriptor_set_out.as_deref())?;
    print!("{text}");
    Ok(())
}

fn describe_symbol(order: &CallOrder) -> Result<(), CallError> {
    let symbol = symbol(order)?;
    let catalog = types::of_symbol(&order.sources, &order.way, symbol, true)?;
    let services = || catalog.services.iter().map(String::as_str).collect();
    let mut texts = Vec::new();
    for symbol in symbol.map_or_else(services, |symbol| vec![symbol]) {
        let text = show::describe(&catalog.pool, symbol);
        texts.push(text.ok_or_else(|| CallError::Request(format!("nothing is called {symbol:?}")))?);
        let message = catalog.pool.get_message_by_name(symbol.trim_start_matches('.'));
        if let Some(message) = message.filter(|_| order.how.template) {
            texts.push(format!("as JSON:\n{:#}\n", show::template(&message)));
        }
    }
    keep(&catalog.pool, order.how.descriptor_set_out.as_deref())?;
    print!("{}", texts.join("\n"));
    Ok(())
}

/// What is to be listed or described.
fn symbol(order: &CallOrder) -> Result<Option<&str>, CallError> {
    match &order.input.requests[..] {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        _ => Err(CallError::Request(format!("{} takes one name at most", order.method))),
    }
}

/// Makes the call.
fn make(
    order: CallOrder,
    attachment: Option<Attachment>,
    own_engine: &mut Option<Daemon>,
) -> Result<Status, CallError> {
    let entered = Instant(trunkline_shm::monotonic_ns());
    let pool = types::of_method(&order.sources, &order.way, &order.method)?;
    keep(&pool, order.how.descriptor_set_out.as_deref())?;
    let method = descriptors::method(&pool, &order.method)?;
    let input = from_input(&order.input).then(StandardInput::open).transpose();
    let input = input.map_err(|error| CallError::Request(format!("cannot read standard input: {error}")))?;
    let requests = requests(&method, &order.input, input.as_ref(), order.how.unknown)?;
    let descriptor_set = pool.encode_to_vec();
    let responses = Responses::new(method.output(), &descriptor_set).map_err(CallError::Response)?;
    let mut attachment = attachment.map_or_else(|| attach(&order.way, own_engine), Ok)?;
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let route = attachment.bind(&path, &order.way.target, &descriptor_set)?;
    let streams = method.is_client_streaming();
    let (how, metadata, timeout) = (order.how, order.way.metadata.clone(), order.way.timeout);
    let printing = Printing {
        style: Style {
            pretty: !method.is_server_streaming() && io::stdout().is_terminal(),
            defaults: how.defaults,
        },
        verbose: how.verbose,
        pool,
        entered,
        requests: Arc::default(),
    };
    printing.beginning(&method, &metadata);
    let count = Arc::clone(&printing.requests);
    let (exchange, feeder) =
        Exchange::new(&mut attachment, Order { route, streams, metadata, timeout, entered })?;
    let takes = match streams {
        true => Takes::Any,
        false if input.is_some() && io::stdin().is_terminal() => Takes::First,
        false => Takes::One(method.full_name().to_owned(), input),
    };
    std::thread::spawn(move || feed(requests, &takes, &feeder, &count));
    print(exchange, &responses, &printing)
}

/// Writes the types to a file, if that was asked for.
fn keep(pool: &DescriptorPool, path: Option<&Path>) -> Result<(), CallError> {
    let Some(path) = path else { return Ok(()) };
    let written = std::fs::write(path, pool.encode_to_vec());
    written.map_err(|error| CallError::File { path: path.to_owned(), error })
}

/// The daemon's session; with a target, and where no socket was named and nothing says that there is a daemon on this
/// host, one with an engine inside this process: it has neither the policies nor the identity of a daemon's.
///
/// # Errors
/// [`CallError`] if there is neither.
pub fn attach(way: &Way, own_engine: &mut Option<Daemon>) -> Result<Attachment, CallError> {
    // The time limit is the call's, which has not begun.
    let patience = way.timeout.map_or(PATIENCE, |timeout| timeout.max(PATIENCE));
    match Attachment::open(way.socket.as_deref(), "trunkline call", patience) {
        Err(AttachError::NoDaemon(_) | AttachError::Unreachable(_))
            if way.socket.is_none()
                && !way.target.is_empty()
                && Places::of_this_process().meant().is_none() =>
        {
            eprintln!("there is no daemon on this host: called from this process, by no daemon's policies");
            let failed = |error: io::Error| CallError::Engine(error.to_string());
            let engine =
                Daemon::embedded(Config::default()).map_err(|error| CallError::Engine(error.to_string()))?;
            let control = own_engine.insert(engine).connect().map_err(failed)?;
            Ok(Attachment::over(control, "trunkline call", patience)?)
        }
        attached => Ok(attached?),
    }
}

/// Requests that a method takes.
enum Takes {
    Any,
    /// One, and more than one is a mistake: the method, for people, and the input if more may come later.
    One(String, Option<StandardInput>),
    /// The first: somebody types them, and waits for the response to one before the input ends.
    First,
}

/// Whether the requests come from standard input.
fn from_input(given: &Input) -> bool {
    match (given.data.as_deref(), &given.requests[..]) {
        (None, []) | (Some("@" | "@-" | "-"), _) => true,
        (None, [only]) => only == "-",
        _ => false,
    }
}

/// Requests of the command line are checked before anything is sent; those of files and standard input as they come.
fn requests(
    method: &MethodDescriptor,
    given: &Input,
    input: Option<&StandardInput>,
    unknown: bool,
) -> Result<Requests<Box<dyn Read + Send>>, CallError> {
    let read = |input| Ok(Requests::new(method.input(), input).allow_unknown(unknown));
    if let Some(input) = input {
        let nothing_is_typed = given.data.is_none() && given.requests.is_empty();
        if nothing_is_typed && io::stdin().is_terminal() && !method.is_client_streaming() {
            return read(Box::new(io::empty()) as Box<dyn Read + Send>);
        }
        return read(Box::new(input.clone()));
    }
    let text = match (given.data.as_deref(), &given.requests[..]) {
        (Some(data), _) => match data.strip_prefix('@') {
            Some(path) => return read(Box::new(opened(path)?)),
            None => data.to_owned(),
        },
        (None, given) => given.join("\n"),
    };
    let checked = Requests::new(method.input(), text.as_bytes()).allow_unknown(unknown);
    let checked: Result<Vec<_>, _> = checked.collect();
    let count = checked.map_err(|error| CallError::Request(error.to_string()))?.len();
    if count != 1 && !method.is_client_streaming() {
        let problem = format!("{} takes one request, and {count} were given", method.full_name());
        return Err(CallError::Request(problem));
    }
    read(Box::new(io::Cursor::new(text.into_bytes())))
}

fn opened(path: &str) -> Result<io::BufReader<std::fs::File>, CallError> {
    let file = std::fs::File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(file),
    });
    file.map(io::BufReader::new).map_err(|error| CallError::Request(format!("cannot read {path}: {error}")))
}

/// Runs on a thread of its own, because reading standard input blocks; ends with the input, the call or the process.
fn feed(requests: Requests<Box<dyn Read + Send>>, takes: &Takes, feeder: &Feeder, count: &AtomicUsize) {
    let counted = |request: Result<_, _>| {
        count.fetch_add(1, Ordering::Relaxed);
        request
    };
    let mut requests = requests.map(|request| counted(request.map_err(|error| error.to_string())));
    if matches!(takes, Takes::Any) {
        // `false` ends it: the call is over.
        requests.all(|request| feeder.feed(request));
        return;
    }
    let only = match (requests.next(), takes) {
        (Some(Ok(only)), Takes::One(method, input)) => {
            let more = |words: &str| Err(format!("{method} takes one request, and more were given{words}"));
            // Before it is sent, if it is known: what is not sent is not to look as if it had been.
            match input.as_ref().map(StandardInput::following) {
                Some(Following::More) => more(""),
                Some(Following::End) => Ok(only),
                // Whoever writes may wait for the response before there is more, or an end.
                Some(Following::Unknown) => {
                    if feeder.feed(Ok(only))
                        && let Some(next) = requests.next()
                    {
                        feeder.feed(next.and(more(": the first was sent, and its call is cancelled")));
                    }
                    return;
                }
                None => requests.next().map_or(Ok(only), |next| next.and(more(""))),
            }
        }
        (Some(first), _) => first,
        // No request at all is the empty one: many methods take nothing.
        (None, _) => counted(Ok(Vec::new())),
    };
    feeder.feed(only);
}

struct Printing {
    style: Style,
    verbose: bool,
    pool: DescriptorPool,
    entered: Instant,
    requests: Arc<AtomicUsize>,
}

fn print(mut exchange: Exchange<'_>, responses: &Responses, how: &Printing) -> Result<Status, CallError> {
    let mut count = 0;
    loop {
        let answer = exchange.next().map_err(|error| match error {
            ExchangeError::Attach(error) => CallError::Attach(error),
            ExchangeError::Request(why) => CallError::Request(why),
        })?;
        match answer {
            Answer::Headers(headers) => how.metadata("header", &headers),
            Answer::Message(payload, bytes) => {
                let json = responses.json(payload, &bytes, how.style).map_err(CallError::Response)?;
                println!("{json}");
                count += 1;
            }
            Answer::End(status, trailers) => {
                if !status.is_ok() {
                    eprintln!("{}", describe(&status, &trailers, &how.pool));
                } else {
                    how.metadata("trailer", &trailers);
                }
                how.end(count);
                return Ok(status);
            }
        }
    }
}

impl Printing {
    fn beginning(&self, method: &MethodDescriptor, metadata: &Metadata) {
        if self.verbose {
            eprint!("{}", show::describe(&self.pool, method.full_name()).unwrap_or_default());
        }
        self.metadata("request", metadata);
    }

    fn end(&self, responses: usize) {
        if self.verbose {
            let requests = self.requests.load(Ordering::Relaxed);
            let elapsed = Duration::from_nanos(trunkline_shm::monotonic_ns().saturating_sub(self.entered.0));
            eprintln!("requests {requests}, responses {responses}, {elapsed:.1?}");
        }
    }

    fn metadata(&self, what: &str, metadata: &Metadata) {
        for (key, value) in metadata.iter().filter(|_| self.verbose) {
            eprintln!("{what} {}", pair(key, value));
        }
    }
}
