//! The verb itself.

use super::attachment::{AttachError, Attachment};
use super::descriptors::{self, DescriptorError, Sources};
use super::exchange::{Answer, Exchange, ExchangeError, Feeder, Order};
use super::json::{Requests, Style};
use super::response::{Responses, describe, pair};
use prost_reflect::{DescriptorPool, MethodDescriptor};
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::Duration;
use trunkline_call::{Instant, Metadata, Status};
use trunkline_daemon::{Config, Daemon};

/// What the command line says.
#[derive(Debug)]
pub struct CallOrder {
    /// `package.Service/Method`.
    pub method: String,
    /// Requests as JSON, or none: they come from standard input.
    pub requests: Vec<String>,
    /// Where the types come from.
    pub sources: Sources,
    /// Whom to call; empty for whoever serves it.
    pub target: String,
    /// Request metadata.
    pub metadata: Metadata,
    /// Time the call may take.
    pub timeout: Option<Duration>,
    /// Print metadata, too.
    pub verbose: bool,
    /// The daemon's socket, if it was named.
    pub socket: Option<PathBuf>,
}

/// Why there was no call, or no end of one.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The types.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// The session.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The requests.
    #[error("{0}")]
    Request(String),
    /// A response that cannot be shown.
    #[error("response: {0}")]
    Response(String),
    /// Standard output.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
    /// An engine of our own, for want of a daemon, did not start.
    #[error("no daemon, and no engine of our own: {0}")]
    Engine(String),
}

/// Makes the call, printing responses to standard output and a failure to standard error. Returns how it ended.
///
/// # Errors
/// [`CallError`] if it did not end with a status.
pub fn call(order: CallOrder) -> Result<Status, CallError> {
    let entered = Instant(trunkline_shm::monotonic_ns());
    if order.sources.is_empty() {
        let what = "name the types: --proto FILE, or --descriptor-set FILE";
        return Err(CallError::Request(what.into()));
    }
    let pool = order.sources.load()?;
    let method = descriptors::method(&pool, &order.method)?;
    let requests = requests(&method, &order.requests)?;

    let descriptor_set = pool.encode_to_vec();
    let responses = Responses::new(method.output(), &descriptor_set).map_err(CallError::Response)?;
    // Lives as long as the call, if it is needed at all.
    let mut own_engine = None;
    let mut attachment = attach(&order, &mut own_engine)?;
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let route = attachment.bind(&path, &order.target, &descriptor_set)?;
    let streams = method.is_client_streaming();
    let CallOrder { metadata, timeout, verbose, .. } = order;
    let order = Order { route, streams, metadata, timeout, entered };
    let (exchange, feeder) = Exchange::new(&mut attachment, order)?;
    std::thread::spawn(move || feed(requests, streams, &feeder));
    let style =
        if method.is_server_streaming() || !io::stdout().is_terminal() { Style::Line } else { Style::Pretty };
    print(exchange, &responses, &Printing { style, verbose, pool })
}

/// The daemon's session; without a daemon but with a target, one with an engine inside this process.
fn attach(order: &CallOrder, own_engine: &mut Option<Daemon>) -> Result<Attachment, CallError> {
    match Attachment::open(order.socket.as_deref(), "trunkline call") {
        Err(AttachError::NoDaemon(_)) if order.socket.is_none() && !order.target.is_empty() => {
            let engine =
                Daemon::embedded(Config::default()).map_err(|error| CallError::Engine(error.to_string()))?;
            let control = own_engine.insert(engine).connect()?;
            Ok(Attachment::over(control, "trunkline call")?)
        }
        attached => Ok(attached?),
    }
}

/// Requests of the command line are checked before anything is sent; those of standard input as they come.
fn requests(
    method: &MethodDescriptor,
    given: &[String],
) -> Result<Requests<Box<dyn Read + Send>>, CallError> {
    let text = given.join("\n");
    let input: Box<dyn Read + Send> = match given {
        [] if io::stdin().is_terminal() && !method.is_client_streaming() => Box::new(io::empty()),
        [] => Box::new(io::stdin()),
        [only] if only == "-" => Box::new(io::stdin()),
        _ => {
            let checked: Result<Vec<_>, _> = Requests::new(method.input(), text.as_bytes()).collect();
            let count = checked.map_err(|error| CallError::Request(error.to_string()))?.len();
            if count != 1 && !method.is_client_streaming() {
                let problem = format!("{} takes one request, and {count} were given", method.full_name());
                return Err(CallError::Request(problem));
            }
            Box::new(io::Cursor::new(text.into_bytes()))
        }
    };
    Ok(Requests::new(method.input(), input))
}

/// Runs on a thread of its own, because reading standard input blocks; ends with the input, the call or the process.
fn feed(requests: Requests<Box<dyn Read + Send>>, streams: bool, feeder: &Feeder) {
    let mut requests = requests.map(|request| request.map_err(|error| error.to_string()));
    if streams {
        // `false` ends it: the call is over.
        requests.all(|request| feeder.feed(request));
    } else {
        // No request at all is the empty one: many methods take nothing.
        feeder.feed(requests.next().unwrap_or_else(|| Ok(Vec::new())));
    }
}

struct Printing {
    style: Style,
    verbose: bool,
    pool: DescriptorPool,
}

fn print(mut exchange: Exchange<'_>, responses: &Responses, how: &Printing) -> Result<Status, CallError> {
    let mut out = io::stdout().lock();
    loop {
        let answer = exchange.next().map_err(|error| match error {
            ExchangeError::Attach(error) => CallError::Attach(error),
            ExchangeError::Request(why) => CallError::Request(why),
        })?;
        match answer {
            Answer::Headers(headers) => how.metadata("header", &headers),
            Answer::Message(payload, bytes) => {
                let json = responses.json(payload, &bytes, how.style).map_err(CallError::Response)?;
                writeln!(out, "{json}")?;
                out.flush()?;
            }
            Answer::End(status, trailers) => {
                if !status.is_ok() {
                    eprintln!("{}", describe(&status, &trailers, &how.pool));
                } else {
                    how.metadata("trailer", &trailers);
                }
                return Ok(status);
            }
        }
    }
}

impl Printing {
    fn metadata(&self, what: &str, metadata: &Metadata) {
        for (key, value) in metadata.iter().filter(|_| self.verbose) {
            eprintln!("{what} {}", pair(key, value));
        }
    }
}
