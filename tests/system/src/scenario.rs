//! One program, run in every topology: each scenario calls the probe and says what it saw, in words that do not depend
//! on where the calls went.

use crate::proto::probe::order::Task;
use crate::proto::probe::probe_client::ProbeClient;
use crate::proto::probe::{Failure, Happened, Item, Label, Order, Text, Total, Wanted};
use futures_util::future::join_all;
use std::fmt::Write;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use trunkline::{Channel, Code, Request, Status, Wait};

/// No condition is waited for longer.
pub const WATCHDOG: Duration = Duration::from_secs(120);

/// What a scenario says, or the status nobody expected.
pub type Said = Result<String, Status>;

/// A named part of the program.
pub type Scenario = (&'static str, fn(&Stage) -> Said);

/// Every scenario.
#[rustfmt::skip]
pub const ALL: &[Scenario] = &[
    ("unary, small", unary_small),
    ("unary, every size", unary_sizes),
    ("a message larger than any heap", too_large),
    ("thousands of messages from a server", server_stream),
    ("a reader slower than the server", slow_reader),
    ("thousands of messages from a client", client_stream),
    ("ping-pong", ping_pong),
    ("both directions at once", both_at_once),
    ("metadata both ways", metadata),
    ("every status, with details", statuses),
    ("a handler that panics", panicking),
    ("a handler slower than the deadline", deadline),
    ("a deadline handed down", deadline_handed_down),
    ("a call given up", given_up),
    ("a call given up, and those made for it", given_up_with_children),
    ("a stream given up", stream_given_up),
    ("calls within calls", nested),
    ("many calls in flight", many_in_flight),
    ("many threads", many_threads),
];

/// What scenarios need.
#[derive(Clone, Debug)]
pub struct Stage {
    client: ProbeClient,
    /// Keeps labels of one run apart from those of another.
    run: String,
}

impl Stage {
    /// Scenarios through `channel`; `run` is unique among those that use one server.
    pub fn new(channel: Channel, run: &str) -> Self {
        Self { client: ProbeClient::new(channel), run: run.to_owned() }
    }

    /// The stub.
    pub fn client(&self) -> &ProbeClient {
        &self.client
    }

    /// An order under a label of this run.
    pub fn order(&self, label: &str, task: Task) -> Order {
        Order { label: self.label(label), task: Some(task) }
    }

    /// Waits until the handlers under a label have come to this.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED with what they came to when the watchdog barks; the status of a failed `Watch`.
    pub fn until(&self, label: &str, condition: impl Fn(&Happened) -> bool) -> Result<Happened, Status> {
        let began = Instant::now();
        loop {
            let happened = self.client.watch(Label { label: self.label(label) }).wait()?.into_inner();
            if condition(&happened) {
                return Ok(happened);
            }
            if began.elapsed() > WATCHDOG {
                return Err(Status::deadline_exceeded(format!("{label}: {happened:?}")));
            }
        }
    }

    /// Sets a call going that is to be looked at later.
    ///
    /// # Errors
    /// INTERNAL if it is over already, with what it came to; the status of the echo that goes before it.
    pub fn begin<F: Future<Output: std::fmt::Debug> + Unpin>(&self, call: &mut F) -> Result<(), Status> {
        // A call polled once is on its way only if the session it takes is there.
        self.client.echo(text("is it there?")).wait()?;
        poll_once(call).wait()
    }

    fn label(&self, label: &str) -> String {
        format!("{}/{label}", self.run)
    }
}

/// Polls a call once.
async fn poll_once<F: Future<Output: std::fmt::Debug> + Unpin>(call: &mut F) -> Result<(), Status> {
    let mut call = pin!(call);
    poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Pending => Poll::Ready(Ok(())),
        Poll::Ready(out) => Poll::Ready(Err(Status::internal(format!("ready at once: {out:?}")))),
    })
    .await
}

fn text(text: impl Into<String>) -> Text {
    Text { text: text.into() }
}

fn unary_small(stage: &Stage) -> Said {
    for round in 0..200 {
        let sent = format!("hello {round}");
        let reply = stage.client.echo(text(sent.as_str())).wait()?;
        assert_eq!(reply.view().text(), sent);
    }
    Ok("200 echoes".into())
}

fn unary_sizes(stage: &Stage) -> Said {
    let sizes = [0, 1, 63, 64, 65, 4095, 4096, 4097, 32_767, 65_535, 65_536, 65_537, 1 << 20, (8 << 20) - 64];
    for size in sizes {
        let sent: String = (0..size).map(|at: usize| char::from(b'a' + (at % 23) as u8)).collect();
        let reply = stage.client.echo(text(sent.as_str())).wait()?;
        assert!(reply.view().text() == sent, "{size} bytes came back different");
    }
    Ok(format!("{} sizes", sizes.len()))
}

fn too_large(stage: &Stage) -> Said {
    let status = stage.client.echo(text("x".repeat(513 << 20))).wait().expect_err("no heap holds 513 MiB");
    let after = stage.client.echo(text("after")).wait()?.into_inner();
    Ok(format!("{} {:?}, {}", status.code(), status.execution(), after.text))
}

fn server_stream(stage: &Stage) -> Said {
    let wanted = Wanted { count: 5000, bytes: 100, label: stage.label("server stream") };
    let mut items = stage.client.count(wanted).wait()?;
    let mut next = 0;
    while let Some(item) = items.recv().wait()? {
        assert_eq!((item.view().number(), item.view().body().len()), (next, 100));
        next += 1;
    }
    Ok(format!("{next} in order"))
}

/// Makes a call of its own between any two messages, while the server would send 24 MiB as fast as it can.
fn slow_reader(stage: &Stage) -> Said {
    let wanted = Wanted { count: 400, bytes: 60_000, label: stage.label("slow reader") };
    let mut items = stage.client.count(wanted).wait()?;
    let mut next = 0;
    while let Some(item) = items.recv().wait()? {
        assert_eq!(item.view().number(), next);
        assert_eq!(stage.client.echo(text("meanwhile")).wait()?.view().text(), "meanwhile");
        next += 1;
    }
    Ok(format!("{next} in order"))
}

fn client_stream(stage: &Stage) -> Said {
    let mut call = stage.client.sum();
    for number in 0..5000 {
        call.send(Item { number, body: vec![7; 100] }).wait()?;
    }
    let Total { items, numbers, bytes } = call.finish().wait()?.into_inner();
    Ok(format!("{items} items, {numbers}, {bytes} bytes"))
}

fn ping_pong(stage: &Stage) -> Said {
    let (mut tx, mut rx) = stage.client.chat().split();
    for round in 0..300 {
        let sent = format!("ping {round}");
        tx.send(text(sent.as_str())).wait()?;
        let heard = rx.recv().wait()?.expect("the stream goes on");
        assert_eq!(heard.view().text(), sent);
    }
    tx.close();
    let end = rx.recv().wait()?.map(|text| text.into_inner());
    Ok(format!("300 rounds, then {end:?}"))
}

fn both_at_once(stage: &Stage) -> Said {
    let (mut tx, mut rx) = stage.client.chat().split();
    let sender = std::thread::spawn(move || {
        (0..2000).try_for_each(|round| tx.send(text(format!("{round:01000}"))).wait())
    });
    let mut next = 0;
    while let Some(heard) = rx.recv().wait()? {
        assert_eq!(heard.view().text(), format!("{next:01000}"));
        next += 1;
    }
    sender.join().expect("the sender does not panic")?;
    Ok(format!("{next} in order"))
}

fn metadata(stage: &Stage) -> Said {
    let refused = |error: trunkline::MetadataError| Status::invalid_argument(error.to_string());
    let request = Request::new(text("x")).with_metadata("ask", "what?").map_err(refused)?;
    let reply = stage.client.echo(request).wait()?;
    let (header, trailer) = (reply.headers().text("answer"), reply.trailers().first("answer-bin"));
    Ok(format!("{header:?} {:?}", trailer.map(String::from_utf8_lossy)))
}

fn statuses(stage: &Stage) -> Said {
    let mut said = String::new();
    for code in Code::ALL.into_iter().filter(|code| *code != Code::Ok) {
        let failure = Failure {
            code: code.number().into(),
            message: format!("{code}: 100 % größer\n"),
            details: vec![0, 255, code.number() as u8],
        };
        let order = stage.order("fail", Task::Fail(failure));
        let status = stage.client.r#do(order).wait().expect_err("it was told to fail");
        let _ = write!(said, "{} {:?} {:?}; ", status.code(), status.message(), status.details());
        let _ = write!(said, "{:?} ", status.execution());
    }
    Ok(said)
}

fn panicking(stage: &Stage) -> Said {
    let order = || stage.order("panic", Task::Panic(true));
    let mut said = String::new();
    for _ in 0..3 {
        let status = stage.client.r#do(order()).wait().expect_err("it was told to panic");
        let _ = write!(said, "{} {:?} ", status.code(), status.execution());
    }
    Ok(said + &stage.client.echo(text("still here")).wait()?.into_inner().text)
}

fn deadline(stage: &Stage) -> Said {
    let order = stage.order("deadline", Task::Hang(true));
    let request = Request::new(order).with_timeout(Duration::from_millis(40));
    let status = stage.client.r#do(request).wait().expect_err("it hangs");
    // The call may have been late before its handler was entered; then there is nobody to drop.
    let happened = stage.until("deadline", |seen| seen.entered == seen.dropped)?;
    Ok(format!("{}, {} returned", status.code(), happened.returned))
}

fn deadline_handed_down(stage: &Stage) -> Said {
    let known = |order: Order| stage.client.r#do(Request::new(order).with_timeout(WATCHDOG)).wait();
    let inner = stage.order("known", Task::Open("nothing".into()));
    let outcome = known(stage.order("outer", Task::Relay(Box::new(inner))))?.into_inner();
    let inner_knows = outcome.relayed.is_some_and(|inner| inner.deadline_known);

    // The inner call hangs, and both are late at once: whichever is told first, the outer one ends with that.
    let order = stage.order("late", Task::Chain(1));
    let status = stage.client.r#do(Request::new(order).with_timeout(Duration::from_millis(200))).wait();
    let status = status.expect_err("the inner call hangs");
    stage.until("late", |seen| seen.entered == seen.dropped + seen.returned)?;
    Ok(format!("known {}, inner knows {inner_knows}, {}", outcome.deadline_known, status.code()))
}

fn given_up(stage: &Stage) -> Said {
    let mut call = stage.client.r#do(stage.order("given up", Task::Hang(true)));
    stage.begin(&mut call)?;
    stage.until("given up", |seen| seen.entered == 1)?;
    drop(call);
    let happened = stage.until("given up", |seen| seen.dropped == 1)?;
    Ok(format!("{happened:?}"))
}

fn given_up_with_children(stage: &Stage) -> Said {
    let hang = stage.order("child", Task::Hang(true));
    let mut call = stage.client.r#do(stage.order("parent", Task::Relay(Box::new(hang))));
    stage.begin(&mut call)?;
    stage.until("child", |seen| seen.entered == 1)?;
    drop(call);
    let parent = stage.until("parent", |seen| seen.dropped == 1)?;
    let child = stage.until("child", |seen| seen.dropped == 1)?;
    Ok(format!("{parent:?} {child:?}"))
}

fn stream_given_up(stage: &Stage) -> Said {
    let wanted = Wanted { count: u32::MAX, bytes: 1000, label: stage.label("stream given up") };
    let mut items = stage.client.count(wanted).wait()?;
    for number in 0..10 {
        assert_eq!(items.recv().wait()?.map(|item| item.view().number()), Some(number));
    }
    drop(items);
    let happened = stage.until("stream given up", |seen| seen.dropped + seen.returned == 1)?;
    Ok(format!("{happened:?}"))
}

fn nested(stage: &Stage) -> Said {
    let mut order = stage.order("innermost", Task::Fail(Failure { code: 9, ..Failure::default() }));
    for depth in 0..6 {
        order = stage.order(&format!("depth {depth}"), Task::Relay(Box::new(order)));
    }
    let outcome = stage.client.r#do(order).wait()?.into_inner();
    Ok(format!("{outcome:?}"))
}

/// 64 calls wait at a gate, and one more opens it.
fn many_in_flight(stage: &Stage) -> Said {
    let gate = stage.label("gate");
    let mut calls: Vec<_> =
        (0..64).map(|_| stage.client.r#do(stage.order("at the gate", Task::Gate(gate.clone())))).collect();
    for call in &mut calls {
        stage.begin(call)?;
    }
    stage.until("at the gate", |seen| seen.entered == 64)?;
    stage.client.r#do(stage.order("opens", Task::Open(gate))).wait()?;
    let ok = join_all(calls).wait().into_iter().filter(Result::is_ok).count();
    Ok(format!("{ok} through"))
}

fn many_threads(stage: &Stage) -> Said {
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let client = stage.client.clone();
            std::thread::spawn(move || {
                (0..150).try_for_each(|round| {
                    let sent = format!("{thread}/{round}");
                    let reply = client.echo(text(sent.as_str())).wait()?;
                    assert_eq!(reply.view().text(), sent);
                    Ok::<(), Status>(())
                })
            })
        })
        .collect();
    threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))?;
    Ok("8 threads".into())
}
