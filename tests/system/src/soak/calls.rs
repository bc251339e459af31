//! The kinds of calls, and what each must come to.

use super::Shared;
use crate::proto::probe::order::Task;
use crate::proto::probe::{Failure, Item, Order, Text, Total, Wanted};
use crate::random::Random;
use futures_util::future::join;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use trunkline::codegen::Message;
use trunkline::opaque::Answer;
use trunkline::{Bidirectional, ClientStreaming, Code, Execution, Receiver, Request, Status};

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Echo,
    Fails,
    Hangs,
    GivenUp,
    Refused,
    NoSuchMethod,
    ServerStream,
    ServerStreamDropped,
    ClientStream,
    ClientStreamDropped,
    EndedByServer,
    PingPong,
    BothAtOnce,
    HalvesDropped,
}

/// Makes calls.
pub(super) struct Caller {
    shared: Arc<Shared>,
    random: Random,
}

/// A call's number and the time it has.
struct Terms {
    number: u64,
    timeout: Duration,
    /// It may be over before the call is.
    hasty: bool,
}

/// A patient call ends before this.
const PATIENT: Duration = Duration::from_secs(60);
/// Milliseconds a hasty one has at most.
const HASTY_MS_MAX: u64 = 40;
/// Bytes of all messages of one stream in one direction.
const STREAM_BYTES_MAX: u64 = 8 << 20;
/// Messages of one stream.
const STREAM_COUNT_MAX: u64 = 300;
/// What fits in any stream's window, so that a client may send it without reading.
const UNREAD_BYTES_MAX: u64 = 64 << 10;
/// Everything under one label, so that the server's books do not grow.
const LABEL: &str = "soak";

/// What is wrong, if anything is.
type Verdict = Result<(), String>;

impl Kind {
    const UNARY: [Self; 6] =
        [Self::Echo, Self::Fails, Self::Hangs, Self::GivenUp, Self::Refused, Self::NoSuchMethod];
    const STREAMS: [Self; 8] = [
        Self::ServerStream,
        Self::ServerStreamDropped,
        Self::ClientStream,
        Self::ClientStreamDropped,
        Self::EndedByServer,
        Self::PingPong,
        Self::BothAtOnce,
        Self::HalvesDropped,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "an echo",
            Self::Fails => "a failure by order",
            Self::Hangs => "a handler that hangs",
            Self::GivenUp => "a call given up",
            Self::Refused => "a message too large",
            Self::NoSuchMethod => "no such method",
            Self::ServerStream => "a server stream",
            Self::ServerStreamDropped => "a server stream given up",
            Self::ClientStream => "a client stream",
            Self::ClientStreamDropped => "a client stream given up",
            Self::EndedByServer => "a client stream that the server ends",
            Self::PingPong => "ping-pong",
            Self::BothAtOnce => "both directions at once",
            Self::HalvesDropped => "halves dropped",
        }
    }
}

impl Caller {
    pub(super) fn new(shared: Arc<Shared>, random: Random) -> Self {
        Self { shared, random }
    }

    /// What to do next.
    pub(super) fn choose(&mut self) -> Kind {
        // Echoes are what everything else must not disturb.
        if self.random.once_in(3) {
            return Kind::Echo;
        }
        if self.shared.extent.streams && !self.random.once_in(3) {
            return Kind::STREAMS[self.random.below(Kind::STREAMS.len() as u64) as usize];
        }
        let kind = Kind::UNARY[self.random.below(Kind::UNARY.len() as u64) as usize];
        match kind {
            // They take long, or are hardly ever as large.
            Kind::Refused if self.shared.extent.refused_bytes == 0 || !self.random.once_in(8) => Kind::Echo,
            kind => kind,
        }
    }

    pub(super) async fn call(&mut self, kind: Kind) -> Verdict {
        match kind {
            Kind::Echo => self.echo().await,
            Kind::Fails => self.fails().await,
            Kind::Hangs => self.hangs().await,
            Kind::GivenUp => self.given_up().await,
            Kind::Refused => self.refused().await,
            Kind::NoSuchMethod => self.no_such_method().await,
            Kind::ServerStream => self.server_stream(false).await,
            Kind::ServerStreamDropped => self.server_stream(true).await,
            Kind::ClientStream => self.client_stream(false).await,
            Kind::ClientStreamDropped => self.client_stream(true).await,
            Kind::EndedByServer => self.ended_by_server().await,
            Kind::PingPong => self.ping_pong().await,
            Kind::BothAtOnce => self.both_at_once().await,
            Kind::HalvesDropped => self.halves_dropped().await,
        }
    }

    async fn echo(&mut self) -> Verdict {
        let terms = self.terms();
        let sent = self.text(self.shared.extent.bytes_max);
        match self.shared.client.echo(terms.of(Text { text: sent.clone() })).await {
            Ok(reply) if reply.view().text() == sent => self.answered(&terms),
            Ok(_) => Err(format!("{} bytes came back different", sent.len())),
            Err(status) => self.failed(&terms, &status),
        }
    }

    async fn fails(&mut self) -> Verdict {
        let terms = self.terms();
        let code = Code::from_number(1 + self.random.below(16) as u16);
        let details = vec![7; self.random.magnitude(1000) as usize];
        let failure =
            Failure { code: code.number().into(), message: "50 % größer".into(), details: details.clone() };
        let order = Order { label: LABEL.into(), task: Some(Task::Fail(failure)) };
        let Err(status) = self.shared.client.r#do(terms.of(order)).await else {
            return Err("was answered".into());
        };
        let as_ordered =
            status.code() == code && status.message() == "50 % größer" && status.details() == details;
        if as_ordered { Ok(()) } else { self.failed(&terms, &status) }
    }

    async fn hangs(&mut self) -> Verdict {
        let timeout = Duration::from_millis(self.random.magnitude(HASTY_MS_MAX));
        let order = Order { label: LABEL.into(), task: Some(Task::Hang(true)) };
        match self.shared.client.r#do(Request::new(order).with_timeout(timeout)).await {
            Err(status) if status.code() == Code::DeadlineExceeded => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    async fn given_up(&mut self) -> Verdict {
        let terms = self.terms();
        let sent = self.text(self.shared.extent.bytes_max);
        let mut call = pin!(self.shared.client.echo(terms.of(Text { text: sent })));
        let _begun = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
        pause(self.random.magnitude(2000));
        Ok(())
    }

    async fn refused(&mut self) -> Verdict {
        let terms = self.terms();
        let bytes =
            self.shared.extent.refused_bytes + self.random.magnitude(self.shared.extent.refused_bytes);
        match self.shared.client.echo(terms.of(Text { text: "x".repeat(bytes as usize) })).await {
            Ok(_) => Err(format!("{bytes} bytes were taken")),
            Err(status) if status.code() == Code::ResourceExhausted => {
                self.shared.ledger.failed(terms.number, &status);
                Ok(())
            }
            Err(status) => self.failed(&terms, &status),
        }
    }

    async fn no_such_method(&mut self) -> Verdict {
        let call = self.shared.opaque.call("/probe.v1.Probe/Nothing").with_timeout(PATIENT);
        let body = vec![0; 0];
        let (_requests, mut answers) = match call.with_message(body).with_no_more().open().await {
            Ok(halves) => halves,
            Err(status) if status.code() == Code::Unimplemented => return Ok(()),
            Err(status) => return Err(format!("{status}")),
        };
        while let Some(answer) = answers.next().await {
            if let Answer::End(outcome) = answer {
                let right =
                    outcome.code == Code::Unimplemented && outcome.execution == Execution::NotExecuted;
                return if right { Ok(()) } else { Err(format!("{outcome:?}")) };
            }
        }
        Err("no end".into())
    }

    async fn server_stream(&mut self, dropped: bool) -> Verdict {
        let terms = self.terms();
        let (count, bytes) = self.stream();
        let wanted = Wanted { count: count as u32, bytes: bytes as u32, label: LABEL.into() };
        let mut items = match self.shared.client.count(terms.of(wanted)).await {
            Ok(items) => items,
            Err(status) => return self.failed(&terms, &status),
        };
        let reads = if dropped { self.random.below(count + 1) } else { u64::MAX };
        let slow = self.random.once_in(10);
        let mut next = 0;
        while next < reads {
            match items.recv().await {
                Ok(Some(item)) => {
                    let is = (u64::from(item.view().number()), item.view().body().len() as u64);
                    if is != (next, bytes) {
                        return Err(format!("item {next} of {bytes} bytes is {is:?}"));
                    }
                }
                Ok(None) if next == count => return self.answered(&terms),
                Ok(None) => return Err(format!("{next} of {count} items")),
                Err(status) => return self.failed(&terms, &status),
            }
            next += 1;
            if slow {
                pause(self.random.magnitude(5000));
            }
        }
        Ok(())
    }

    async fn client_stream(&mut self, dropped: bool) -> Verdict {
        let terms = self.terms();
        let (count, bytes) = self.stream();
        let mut call = terms.of_stream(self.shared.client.sum());
        let sends = if dropped { self.random.below(count + 1) } else { count };
        for number in 0..sends {
            let item = Item { number: number as u32, body: vec![number as u8; bytes as usize] };
            if let Err(status) = call.send(item).await {
                return self.failed(&terms, &status);
            }
        }
        if dropped {
            return Ok(());
        }
        let wanted =
            Total { items: count, numbers: count * count.saturating_sub(1) / 2, bytes: count * bytes };
        match call.finish().await {
            Ok(total) if total.view().items() == wanted.items && total.view().bytes() == wanted.bytes => {
                self.answered(&terms)
            }
            Ok(total) => Err(format!("{:?} where {wanted:?} was sent", total.into_inner())),
            Err(status) => self.failed(&terms, &status),
        }
    }

    /// The server answers after some of the items; the others are for nobody, and do no harm.
    async fn ended_by_server(&mut self) -> Verdict {
        let terms = self.terms();
        let (count, bytes) = self.stream();
        let (count, reads) = (count.max(1), 1 + self.random.below(count.max(1)));
        let mut call = terms.of_stream(self.shared.client.take());
        for _ in 0..count {
            let item = Item { number: reads as u32, body: vec![1; bytes as usize] };
            if call.send(item).await.is_err() {
                // It has ended; how is said at the end.
                break;
            }
        }
        match call.finish().await {
            Ok(item) => {
                let is = (u64::from(item.view().number()), item.view().body().len() as u64);
                if is == (reads, bytes) {
                    self.answered(&terms)
                } else {
                    Err(format!("{is:?} of {reads} {bytes}"))
                }
            }
            Err(status) => self.failed(&terms, &status),
        }
    }

    async fn ping_pong(&mut self) -> Verdict {
        let terms = self.terms();
        let rounds = self.random.magnitude(30);
        let (mut tx, mut rx) = terms.of_both(self.shared.client.chat()).split();
        for _ in 0..rounds {
            let sent = self.text(100_000);
            if let Err(status) = tx.send(Text { text: sent.clone() }).await {
                return self.failed(&terms, &status);
            }
            match rx.recv().await {
                Ok(Some(heard)) if heard.view().text() == sent => {}
                Ok(heard) => return Err(format!("{} for {} bytes", heard.is_some(), sent.len())),
                Err(status) => return self.failed(&terms, &status),
            }
        }
        tx.close();
        self.until_end(&terms, &mut rx, 0).await
    }

    async fn both_at_once(&mut self) -> Verdict {
        let terms = self.terms();
        let (count, bytes) = self.stream();
        let (mut tx, mut rx) = terms.of_both(self.shared.client.chat()).split();
        let sending = async move {
            for _ in 0..count {
                tx.send(Text { text: "y".repeat(bytes as usize) }).await?;
            }
            Ok::<(), Status>(())
        };
        // What ends the call ends the receiver, too, and that is where it is judged.
        let (_, verdict) = join(sending, self.until_end(&terms, &mut rx, count)).await;
        verdict
    }

    /// Halves are dropped in any order, before and after the first message.
    async fn halves_dropped(&mut self) -> Verdict {
        let terms = self.terms();
        let mut call = terms.of_both(self.shared.client.chat());
        if self.random.once_in(2)
            && let Err(status) = call.start().await
        {
            return self.failed(&terms, &status);
        }
        let (mut tx, mut rx) = call.split();
        let sends = self.random.below(4);
        for _ in 0..sends {
            let text = self.text(UNREAD_BYTES_MAX / 4);
            if let Err(status) = tx.send(Text { text }).await {
                return self.failed(&terms, &status);
            }
        }
        match self.random.below(4) {
            0 => drop(rx),
            1 => {
                drop(rx);
                // Whatever it says, it says something.
                let _ = tx.send(Text { text: "nobody listens".into() }).await;
            }
            2 => {
                drop(tx);
                return self.until_end(&terms, &mut rx, sends).await;
            }
            _ => drop(tx),
        }
        Ok(())
    }

    /// Reads to the end: so many messages are to come.
    async fn until_end(&mut self, terms: &Terms, rx: &mut Receiver<Text>, count: u64) -> Verdict {
        let mut heard = 0;
        loop {
            match rx.recv().await {
                Ok(Some(_)) => heard += 1,
                Ok(None) if heard == count => return self.answered(terms),
                Ok(None) => return Err(format!("{heard} of {count} messages")),
                Err(status) => return self.failed(terms, &status),
            }
        }
    }

    /// One call in four is in a hurry.
    fn terms(&mut self) -> Terms {
        let number = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let hasty = self.random.once_in(4);
        let timeout =
            if hasty { Duration::from_millis(self.random.magnitude(HASTY_MS_MAX)) } else { PATIENT };
        Terms { number, timeout, hasty }
    }

    /// Count and size of a stream's messages.
    fn stream(&mut self) -> (u64, u64) {
        let count = self.random.magnitude(STREAM_COUNT_MAX);
        let most = (STREAM_BYTES_MAX / count.max(1)).min(self.shared.extent.bytes_max);
        (count, self.random.magnitude(most))
    }

    fn text(&mut self, bytes_max: u64) -> String {
        let bytes = self.random.magnitude(bytes_max) as usize;
        let from = self.random.below(26) as usize;
        (0..bytes).map(|at| char::from(b'a' + ((from + at) % 26) as u8)).collect()
    }

    fn answered(&self, terms: &Terms) -> Verdict {
        self.shared.ledger.answered(terms.number);
        Ok(())
    }

    /// A call may fail because it had too little time, and for nothing else.
    fn failed(&self, terms: &Terms, status: &Status) -> Verdict {
        self.shared.ledger.failed(terms.number, status);
        if terms.hasty && status.code() == Code::DeadlineExceeded {
            return Ok(());
        }
        Err(format!("call {}: {status}, {:?}", terms.number, status.execution()))
    }
}

impl Terms {
    fn of<M: Message>(&self, message: M) -> Request<M> {
        let request = Request::new(message).with_timeout(self.timeout);
        request.with_metadata("log", self.number.to_string()).expect("digits are legal")
    }

    fn of_stream<R: Message>(&self, call: ClientStreaming<Item, R>) -> ClientStreaming<Item, R> {
        call.with_timeout(self.timeout)
            .with_metadata("log", self.number.to_string())
            .expect("digits are legal")
    }

    fn of_both(&self, call: Bidirectional<Text, Text>) -> Bidirectional<Text, Text> {
        call.with_timeout(self.timeout)
            .with_metadata("log", self.number.to_string())
            .expect("digits are legal")
    }
}

/// Keeps the thread for some microseconds, as work would.
fn pause(us: u64) {
    std::thread::park_timeout(Duration::from_micros(us));
}
