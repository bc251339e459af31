//! Making opaque calls.

use super::message::{Message, OpaqueBody, Outcome};
use super::types::{Space, Types};
use super::unary::UnaryExchange;
use crate::channel::Channel;
use crate::client::{Arrival, Binding, Draft, OpenStream, Target, outcome, send_on, start};
use crate::leases::usual_session;
use crate::message::Raw;
use crate::session;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use trunkline_call::{Code, Encoding, Metadata, Status};

/// Calls methods by their path. Cheap to clone.
///
/// Each path is agreed on with the daemon once per session, when it is first called. A program that makes up paths
/// without end runs into the daemon's limit on the routes of a session; its calls fail with FAILED_PRECONDITION then.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    channel: Channel,
    types: Option<Types>,
    targets: RwLock<HashMap<Box<str>, Arc<Target>>>,
}

/// Paths a client remembers; further ones are looked up anew for each call. As many as a session has routes.
const TARGETS_MAX: usize = 4096;

impl Client {
    /// A client through `channel`. Nothing is sent until the first call.
    pub fn new(channel: Channel) -> Self {
        Self::with(channel, None)
    }

    /// A client through `channel` of methods that `types` declares: what it sends and gets is linear.
    pub fn typed(channel: Channel, types: Types) -> Self {
        Self::with(channel, Some(types))
    }

    fn with(channel: Channel, types: Option<Types>) -> Self {
        Self { inner: Arc::new(Inner { channel, types, targets: RwLock::default() }) }
    }

    /// A call of the method at `path` (`/package.Service/Method`), to be opened.
    pub fn call(&self, path: &str) -> Call {
        let encoding = self.encoding();
        Call { draft: Draft::of_stream(&self.target(path), 0), encoding }
    }

    /// The types of what is sent and received; `None` if that is protobuf.
    pub fn types(&self) -> Option<&Types> {
        self.inner.types.as_ref()
    }

    /// Memory of `bytes` or more to build a linear message in: of the session that this thread would most likely call
    /// through, if there is one and it has so much.
    pub fn space(&self, bytes: usize) -> Space {
        Space::of_session(usual_session(&self.inner.channel.hub()).as_ref(), bytes)
    }

    /// What calls go through.
    pub fn channel(&self) -> &Channel {
        &self.inner.channel
    }

    fn encoding(&self) -> Encoding {
        if self.inner.types.is_some() { Encoding::Linear } else { Encoding::Protobuf }
    }

    fn target(&self, path: &str) -> Arc<Target> {
        // Never waits: in a forked child whoever has the lock may not exist.
        if let Some(target) = self.inner.targets.try_read().and_then(|targets| targets.get(path).cloned()) {
            return target;
        }
        let channel = self.inner.channel.clone();
        let binding = match &self.inner.types {
            Some(types) => Binding::of_typed_method(path, types, channel.target_arc()),
            None => Binding::of_method(path, channel.target_arc()),
        };
        let target = Arc::new(Target { channel, binding });
        if let Some(mut targets) = self.inner.targets.try_write()
            && targets.len() < TARGETS_MAX
        {
            targets.insert(path.into(), Arc::clone(&target));
        }
        target
    }
}

/// A call that has not been made.
#[must_use = "a call is made when it is opened"]
pub struct Call {
    draft: Draft<Raw>,
    encoding: Encoding,
}

impl Call {
    /// The call's metadata, instead of what was said before.
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.draft.metadata = metadata;
        self
    }

    /// The call must have ended when this time has passed since [`Client::call`].
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.draft.limit(timeout);
        self
    }

    /// The first message; it travels with the opening.
    pub fn with_message(mut self, message: impl Into<OpaqueBody>) -> Self {
        self.draft.body = Some(message.into().into_raw(self.encoding));
        self
    }

    /// No messages follow those said so far.
    pub fn with_no_more(mut self) -> Self {
        self.draft.end = true;
        self
    }

    /// The call is complete, and goes into a queue of the application's: what passes until it is opened is *client send
    /// queue*, and not stack, wherever somebody looks where time goes.
    pub fn queued(mut self) -> Self {
        self.draft.wait_in_queue();
        self
    }

    /// Makes a call of one request, which was said, and one response.
    pub fn unary(self) -> UnaryExchange {
        let Self { draft, encoding } = self.with_no_more();
        UnaryExchange::new(draft, encoding)
    }

    /// Makes the call, waiting for whatever has to be waited for, until its time limit.
    ///
    /// # Errors
    /// What kept the call from being made; it was not executed.
    ///
    /// # Cancel safety
    /// Dropping the future makes no call, or cancels the call it made.
    pub async fn open(self) -> Result<(Requests, Answers), Status> {
        let encoding = self.encoding;
        let made = Arc::new(OpenStream::new(start(self.draft).await?));
        let requests = Requests { made: Arc::clone(&made), encoding };
        Ok((requests, Answers { made, ending: Ending::Open, encoding }))
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("draft", &self.draft).finish()
    }
}

/// The sending half of a call. Dropping it says that nothing follows; while a panic unwinds it cancels the call. To
/// give a call up, drop its [`Answers`] first.
#[derive(Debug)]
pub struct Requests {
    made: Arc<OpenStream>,
    encoding: Encoding,
}

impl Requests {
    /// Sends a message; waits while the server has as many bytes before it as it allows.
    ///
    /// # Errors
    /// The status of the call if it has ended; what is wrong with the message, which then ends the call: it is
    /// cancelled at the daemon, and its answers end with that status.
    ///
    /// # Cancel safety
    /// A message whose `send` is dropped was not sent.
    pub async fn send(&mut self, message: impl Into<OpaqueBody>) -> Result<(), Status> {
        send_on(&self.made, message.into().into_raw(self.encoding)).await
    }

    /// The messages cannot be had to their end: the call is cancelled, and its answers end with this outcome. Nothing
    /// happens if it has ended.
    pub fn abandon(self, outcome: &Outcome) {
        let status = Status::take_from(&mut outcome.trailers.clone(), outcome.code);
        self.made.fail(&status);
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.made.drop_sender();
    }
}

/// What a server answers, as it comes. Dropping it cancels the call, unless the end was taken.
#[derive(Debug)]
pub struct Answers {
    made: Arc<OpenStream>,
    ending: Ending,
    encoding: Encoding,
}

/// One answer.
#[derive(Debug)]
pub enum Answer {
    /// Response headers: at most once, and before all else.
    Headers(Metadata),
    /// A message.
    Message(Message),
    /// The end; nothing follows.
    End(Outcome),
}

/// Somebody asks for an answer, until this is dropped.
struct AskingNext<'a> {
    answers: &'a mut Answers,
    /// There was none when it was last polled: nobody wakes a task that has gone.
    waits: bool,
}

impl Drop for AskingNext<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.answers.made.stop_receiving();
        }
    }
}

#[derive(Debug)]
enum Ending {
    Open,
    /// The last message was given out, the outcome was not.
    Known(Outcome),
    Over,
}

impl Answers {
    /// The next answer; `None` after the end.
    ///
    /// # Cancel safety
    /// Safe: an answer not returned is returned next time.
    pub async fn next(&mut self) -> Option<Answer> {
        let mut asking = AskingNext { answers: self, waits: false };
        poll_fn(|cx| {
            let next = asking.answers.poll_next(cx);
            asking.waits = next.is_pending();
            next
        })
        .await
    }

    /// As [`Answers::next`], for hand-written futures.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        match std::mem::replace(&mut self.ending, Ending::Over) {
            Ending::Open => self.ending = Ending::Open,
            Ending::Known(outcome) => return Poll::Ready(Some(Answer::End(outcome))),
            Ending::Over => return Poll::Ready(None),
        }
        let arrival = ready!(self.made.poll_arrival(cx));
        Poll::Ready(Some(self.take(arrival).unwrap_or_else(|status| self.give_up(&status))))
    }

    /// Tells when the call has ended, also while answers before its end have not been taken.
    pub fn watch(&self) -> EndWatch {
        EndWatch { made: Arc::clone(&self.made) }
    }

    fn take(&mut self, arrival: Option<Arrival>) -> Result<Answer, Status> {
        let (session, call) = (self.made.session(), self.made.call());
        match arrival {
            Some(Arrival::Headers(block)) => outcome::take_headers(session, call, block).map(Answer::Headers),
            Some(Arrival::Message(payload)) => {
                let received = session::Received::message(session, call, payload, self.encoding)?;
                Ok(Answer::Message(Message(received)))
            }
            Some(Arrival::End(end)) => {
                self.ending = Ending::Over;
                let (message, outcome) = outcome::of_opaque(session, end, self.encoding)?;
                if outcome.code != Code::Ok {
                    let status = Status::take_from(&mut outcome.trailers.clone(), outcome.code);
                    self.made.note_end(&status.with_execution(outcome.execution));
                }
                let Some(message) = message else { return Ok(Answer::End(outcome)) };
                self.ending = Ending::Known(outcome);
                Ok(Answer::Message(Message(message)))
            }
            None => Err(self.made.given_up()),
        }
    }

    /// What came cannot be taken: the call ends here.
    fn give_up(&mut self, status: &Status) -> Answer {
        self.ending = Ending::Over;
        self.made.abandon();
        Answer::End(Outcome::from(status))
    }
}

/// Who wants to know when a call has ended, and takes nothing that comes along it. Of one call, one at a time waits.
#[derive(Clone, Debug)]
pub struct EndWatch {
    made: Arc<OpenStream>,
}

impl EndWatch {
    /// Waits until the call has ended: answered, cancelled, too late, or lost with its session. The metadata of an OK
    /// are not in it; [`Answers::next`] gives them.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn ended(self) -> Status {
        poll_fn(|cx| self.made.poll_end(cx)).await;
        outcome::how_ended(&self.made)
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.made.abandon();
    }
}
