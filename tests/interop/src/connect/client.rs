//! The client under test: reads calls, makes them, says what came of them.

use super::calls;
use super::words::Words;
use crate::codec::CodecError;
use crate::framed::{self, ByteOrder};
use crate::proto::connectrpc::conformance::v1::client_compat_response::Result as Outcome;
use crate::proto::connectrpc::conformance::v1::{
    ClientCompatRequest, ClientCompatResponse, ClientErrorResult,
};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use trunkline::Channel;

/// Calls under way at once, at most: each may wait for a second, and the runner has hundreds.
const CALLS_MAX: usize = 32;

/// Reads calls from the runner until there are no more, makes them through channels that `open` makes, and reports.
///
/// # Errors
/// If the pipe breaks, or what comes is not a call.
pub fn serve_calls<O: Write + Send + 'static>(
    from: &mut impl Read,
    to: O,
    mut open: impl FnMut(&ClientCompatRequest) -> io::Result<Channel>,
    words: Words,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let (words, to) = (Arc::new(words), Arc::new(Mutex::new(to)));
    let under_way = Arc::new(Semaphore::new(CALLS_MAX));
    let mut tasks = Vec::new();
    while let Some(request) = framed::read(from, ByteOrder::Big)? {
        let request: ClientCompatRequest = words.codec().decode(&request).map_err(io::Error::other)?;
        let permit = runtime.block_on(Arc::clone(&under_way).acquire_owned()).map_err(io::Error::other)?;
        let test_name = request.test_name.clone();
        let (channel, words, to) = (open(&request)?, Arc::clone(&words), Arc::clone(&to));
        tasks.push(runtime.spawn(async move {
            let reported = report(&words, request, channel).await;
            drop(permit);
            let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
            let reported = reported.map_err(io::Error::other);
            let written = reported.and_then(|reported| framed::write(&mut *to, ByteOrder::Big, &reported));
            written.inspect_err(|error| eprintln!("connect-client: {test_name}: {error}"))
        }));
    }
    for task in tasks {
        runtime.block_on(task).map_err(io::Error::other)??;
    }
    Ok(())
}

/// Makes a call; a call that cannot be made is reported, too.
async fn report(
    words: &Words,
    request: ClientCompatRequest,
    channel: Channel,
) -> Result<Vec<u8>, CodecError> {
    let test_name = request.test_name.clone();
    let result = match calls::make(words, request, channel).await {
        Ok(response) => Outcome::Response(response),
        Err(why) => Outcome::Error(ClientErrorResult { message: why.to_string() }),
    };
    words.codec().encode(&ClientCompatResponse { test_name, result: Some(result) })
}
