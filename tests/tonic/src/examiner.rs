//! A client's program, as a user of tonic writes it: every assertion holds over any transport.

use crate::handler::CROWD;
use crate::stage::MESSAGE_BYTES_MAX;
use crate::stubs::exam_client::ExamClient;
use crate::stubs::{Answer, Nothing, Question};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codec::CompressionEncoding;
use tonic::codegen::{Body as HttpBody, Bytes, StdError};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

/// Longest part of an exam.
const STEP_PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for something another task does.
const PATIENCE: Duration = Duration::from_secs(120);

/// A transport whose calls can be made from tasks: every one there is.
pub trait Transport:
    GrpcService<
        Body,
        ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
        Future: Send,
        Error: Into<StdError>,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<T> Transport for T where
    T: GrpcService<
            Body,
            ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
            Future: Send,
            Error: Into<StdError>,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

/// Everything, against a server that has [`crate::handler::Handler`] behind it.
pub async fn examine(transport: impl Transport) {
    let client = || ExamClient::new(transport.clone());
    step("patterns", patterns(client())).await;
    step("talk before the first answer", talk_before_the_first_answer(client())).await;
    step("metadata", metadata(client())).await;
    step("errors", errors(client())).await;
    step("deadlines", deadlines(client())).await;
    step("cancellation", cancellation(client())).await;
    step("sizes", sizes(client())).await;
    step("large messages", large_messages(client())).await;
    step("empty messages", empty_messages(client())).await;
    step("many at once", many_at_once(client())).await;
    step("a crowd", a_crowd(client())).await;
    step("compression", compression(client())).await;
    step("the end", at_work("after all of it", client(), 0)).await;
}

/// What holds where the channel is the adapter's, whoever serves. tonic's own transport looks at deadlines until
/// headers come, goes on sending a request stream although nobody takes the answers, and makes INTERNAL of a request
/// that cannot be encoded.
pub async fn examine_moved(transport: impl Transport) {
    let client = || ExamClient::new(transport.clone());
    step("deadlines of whole calls", deadlines_of_whole_calls(client())).await;
    step("conversations", conversations_are_cancelled(client())).await;
    let asked = Question { blob: vec![1; 5000], ..question("echo", 1) };
    let status = client().max_encoding_message_size(1000).ask(asked).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
}

/// Part of an exam, which may not hang.
async fn step(name: &str, part: impl Future<Output = ()>) {
    let since = Instant::now();
    let ended = tokio::time::timeout(STEP_PATIENCE, part).await;
    assert!(ended.is_ok(), "{name}: hangs");
    println!("{name}: {:?}", since.elapsed());
}

/// The four patterns; also for servers that are not tonic's.
pub async fn patterns(mut client: ExamClient<impl Transport>) {
    let answer = client.ask(question("echo", 7)).await.unwrap().into_inner();
    assert_eq!((answer.text.as_str(), answer.number), ("echo", 7));

    let mut answers = client.count(question("count", 50)).await.unwrap().into_inner();
    let mut numbers = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        numbers.push(answer.number);
    }
    assert_eq!(numbers, (1..=50).collect::<Vec<_>>());
    let none = client.count(question("count", 0)).await.unwrap().into_inner();
    assert_eq!(none.collect::<Vec<_>>().await.len(), 0);

    let questions: Vec<_> = (1..=100).map(|number| question("add", number)).collect();
    let sum = client.sum(tokio_stream::iter(questions)).await.unwrap().into_inner();
    assert_eq!(sum.number, 5050);
    let nothing = client.sum(tokio_stream::iter(Vec::new())).await.unwrap().into_inner();
    assert_eq!(nothing.number, 0);

    let lines: Vec<_> = (0..20).map(|number| question("line", number)).collect();
    let answers = client.chat(tokio_stream::iter(lines)).await.unwrap().into_inner();
    let numbers: Vec<u32> = answers.map(|answer| answer.unwrap().number).collect().await;
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
}

/// Headers come before any message is sent, and each message is answered before the next.
async fn talk_before_the_first_answer(mut client: ExamClient<impl Transport>) {
    let (tx, rx) = tokio::sync::mpsc::channel(1);
    let mut answers = client.chat(ReceiverStream::new(rx)).await.unwrap().into_inner();
    for number in 0..30 {
        tx.send(question("line", number)).await.unwrap();
        assert_eq!(answers.message().await.unwrap().unwrap().number, number);
    }
    // Sending ahead without receiving: the transport takes the messages all the same.
    for number in 0..3 {
        tx.send(question("ahead", number)).await.unwrap();
    }
    drop(tx);
    let rest: Vec<u32> = answers.map(|answer| answer.unwrap().number).collect().await;
    assert_eq!(rest, [0, 1, 2]);
}

async fn metadata(mut client: ExamClient<impl Transport>) {
    let mut request = Request::new(question("metadata", 0));
    request.metadata_mut().insert("plain", MetadataValue::from_static("a value, with commas"));
    for value in ["one", "two"] {
        request.metadata_mut().append("twice", MetadataValue::from_static(value));
    }
    for value in [&[0u8, 255, 1][..], &[], &[9; 100]] {
        request.metadata_mut().append_bin("some-bin", MetadataValue::from_bytes(value));
    }
    let response = client.ask(request).await.unwrap();
    assert_eq!(response.get_ref().number, 1, "the server's interceptor has seen it");
    let said = response.metadata();
    assert_eq!(said.get("plain").unwrap(), "a value, with commas");
    assert_eq!(said.get_all("twice").iter().collect::<Vec<_>>(), ["one", "two"]);
    let binary = said.get_all_bin("some-bin");
    let binary: Vec<Vec<u8>> = binary.iter().map(|value| value.to_bytes().unwrap().to_vec()).collect();
    assert_eq!(binary, [vec![0, 255, 1], vec![], vec![9; 100]]);

    let response = client.count(question("count", 2)).await.unwrap();
    assert_eq!(response.metadata().get("begins").unwrap(), "now");

    let mut forged = Request::new(question("metadata", 0));
    forged.metadata_mut().insert("token", MetadataValue::from_static("forged"));
    let status = client.ask(forged).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "the token is forged"));
}

async fn errors(mut client: ExamClient<impl Transport>) {
    for code in 1..17 {
        let status = client.ask(question("fail", code)).await.unwrap_err();
        assert_failure(&status, code);
    }
    let mut answers = client.count(question("count, then fail", 3)).await.unwrap().into_inner();
    for number in 1..=3 {
        assert_eq!(answers.message().await.unwrap().unwrap().number, number);
    }
    assert_failure(&answers.message().await.unwrap_err(), 9);

    let mut answers = client.count(question("count, then fail", 0)).await.unwrap().into_inner();
    assert_failure(&answers.message().await.unwrap_err(), 9);

    let chat = vec![question("line", 1), question("fail", 5)];
    let mut answers = client.chat(tokio_stream::iter(chat)).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().number, 1);
    assert_failure(&answers.message().await.unwrap_err(), 5);

    let status = client.ask(question("nonsense", 0)).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "what is \"nonsense\"?"));
}

fn assert_failure(status: &Status, code: u32) {
    assert_eq!((status.code() as u32, status.message()), (code, "größer als 50%"));
    assert_eq!(status.details(), [0, 1, 254, 255]);
    assert_eq!(status.metadata().get("tenant").unwrap(), "blue");
    assert_eq!(status.metadata().get_bin("cause-bin").unwrap().to_bytes().unwrap(), &[7, 0, 7][..]);
}

/// What a call that is late ends with. tonic's own transport says CANCELLED where it gives up first, at either end.
const LATE: [Code; 2] = [Code::DeadlineExceeded, Code::Cancelled];

async fn deadlines(mut client: ExamClient<impl Transport>) {
    let mut request = Request::new(question("time left", 0));
    request.set_timeout(Duration::from_secs(50));
    let said = client.ask(request).await.unwrap().into_inner().text;
    assert!(!said.is_empty(), "the handler is told how long it has");

    let status = client.ask(soon("hang", 0)).await.unwrap_err();
    assert!(LATE.contains(&status.code()), "{status:?}");
    at_work("a handler that is late", client, 0).await;
}

async fn deadlines_of_whole_calls(mut client: ExamClient<impl Transport>) {
    // A host that is busy with something else may need longer than the first limits for two answers.
    let mut limit = SOON;
    loop {
        let mut request = Request::new(question("count, then hang", 2));
        request.set_timeout(limit);
        let mut heard = 0;
        let status = match client.count(request).await {
            Ok(answers) => {
                let mut answers = answers.into_inner();
                loop {
                    match answers.message().await {
                        Ok(answer) => {
                            heard += 1;
                            assert_eq!(answer.unwrap().number, heard);
                        }
                        Err(status) => break status,
                    }
                }
            }
            Err(status) => status,
        };
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        if heard == 2 {
            return;
        }
        assert!(limit < PATIENCE, "{heard} answers");
        limit *= 2;
    }
}

/// Little time.
const SOON: Duration = Duration::from_millis(500);

/// A question with little time.
pub fn soon(order: &str, number: u32) -> Request<Question> {
    let mut request = Request::new(question(order, number));
    request.set_timeout(SOON);
    request
}

async fn cancellation(mut client: ExamClient<impl Transport>) {
    // The caller of a handler at work is gone.
    let mut caller = client.clone();
    let call = tokio::spawn(async move { caller.ask(question("hang", 0)).await });
    at_work("a handler that hangs", client.clone(), 1).await;
    call.abort();
    at_work("a handler nobody waits for", client.clone(), 0).await;

    // A stream of answers is dropped in the middle.
    let mut answers = client.count(question("count, watched", u32::MAX)).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap();
    at_work("answers without end", client.clone(), 1).await;
    drop(answers);
    at_work("answers nobody takes", client.clone(), 0).await;

    // The other direction: the server has had enough while the client would go on for ever.
    let (gone, is_gone) = tokio::sync::oneshot::channel::<()>();
    let endless = tokio_stream::iter(0..).map(move |number| {
        let _alive = &gone;
        question(if number == 5 { "enough" } else { "add" }, number)
    });
    let status = client.sum(endless).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::OutOfRange, "that will do"));
    let told = tokio::time::timeout(PATIENCE, is_gone).await;
    told.expect("questions nobody reads are dropped").unwrap_err();
}

/// Both halves of a conversation, neither of which has ended.
async fn conversations_are_cancelled(mut client: ExamClient<impl Transport>) {
    let lines = tokio_stream::iter([question("line", 1)]).chain(tokio_stream::pending());
    let mut answers = client.chat(lines).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().number, 1);
    at_work("a chat", client.clone(), 1).await;
    drop(answers);
    at_work("a chat without a caller", client.clone(), 0).await;
}

/// Waits until somebody serves.
pub async fn answers(mut client: ExamClient<impl Transport>) {
    let since = Instant::now();
    while let Err(status) = client.ask(question("echo", 0)).await {
        assert!(since.elapsed() < PATIENCE, "nobody serves: {status:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until so many handlers are at work.
pub async fn at_work(what: &str, mut client: ExamClient<impl Transport>, wanted: u32) {
    let since = Instant::now();
    loop {
        let now = client.ask(question("at work", 0)).await.unwrap().into_inner().number;
        if now == wanted {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "{what}: {now} at work, not {wanted}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// tonic's own limits, on either side and in either direction.
async fn sizes(client: ExamClient<impl Transport>) {
    let asked = Question { blob: vec![1; 5000], ..question("echo", 1) };
    let mut small = client.clone().max_decoding_message_size(1000);
    let status = small.ask(asked.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    // tonic's own transport turns this one into a broken stream.
    client.clone().max_encoding_message_size(1000).ask(asked).await.unwrap_err();
    let mut large = client.clone().max_encoding_message_size(usize::MAX);
    let asked = Question { blob: vec![1; MESSAGE_BYTES_MAX + 1], ..question("echo", 1) };
    let status = large.ask(asked).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    // The call before has spoilt nothing.
    assert_eq!(large.ask(question("echo", 2)).await.unwrap().into_inner().number, 2);
}

async fn large_messages(client: ExamClient<impl Transport>) {
    let mut client =
        client.max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(MESSAGE_BYTES_MAX);
    for bytes in [5_000, 100_000, 3 << 20, 17 << 20] {
        let blob = vec![(bytes % 251) as u8; bytes];
        let asked = Question { blob: blob.clone(), ..question("echo", 1) };
        let answer = client.ask(asked.clone()).await.unwrap().into_inner();
        assert!(answer.blob == blob, "{bytes} bytes came back as {}", answer.blob.len());
        let mut answers = client.chat(tokio_stream::iter(vec![asked; 2])).await.unwrap().into_inner();
        while let Some(answer) = answers.message().await.unwrap() {
            assert!(answer.blob == blob);
        }
    }
    let asked = Question { blob: vec![1; 100_000], ..question("count", 100) };
    let answers = client.count(asked).await.unwrap().into_inner();
    let bytes: usize =
        answers.map(|answer| answer.unwrap().blob.len()).collect::<Vec<_>>().await.iter().sum();
    assert_eq!(bytes, 10_000_000);
    let pieces = vec![Question { blob: vec![1; 100_000], ..question("add", 1) }; 100];
    let sum = client.sum(tokio_stream::iter(pieces)).await.unwrap().into_inner();
    assert_eq!((sum.number, sum.text.as_str()), (100, "10000000"));
}

async fn empty_messages(mut client: ExamClient<impl Transport>) {
    let nothings = tokio_stream::iter(vec![Nothing {}; 20_000]);
    let ticks = client.tick(nothings).await.unwrap().into_inner();
    assert_eq!(ticks.map(Result::unwrap).collect::<Vec<_>>().await.len(), 20_000);
    let answer = client.ask(Question { order: "at work".into(), ..Question::default() }).await.unwrap();
    assert_eq!(answer.into_inner().text, "");
}

async fn many_at_once(client: ExamClient<impl Transport>) {
    let calls = (0..200u32).map(|number| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let (tx, rx) = tokio::sync::mpsc::channel(1);
            let mut answers = client.chat(ReceiverStream::new(rx)).await.unwrap().into_inner();
            for round in 0..5 {
                tx.send(question("line", number * 10 + round)).await.unwrap();
                let answer: Answer = answers.message().await.unwrap().unwrap();
                assert_eq!(answer.number, number * 10 + round);
                let asked = client.ask(question("echo", number)).await.unwrap();
                assert_eq!(asked.into_inner().number, number);
            }
            drop(tx);
            assert!(answers.message().await.unwrap().is_none());
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

/// Calls that are all under way at the same time: no handler answers before every one of them is there.
async fn a_crowd(client: ExamClient<impl Transport>) {
    let calls = (0..CROWD).map(|number| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let answer = client.ask(question("meet", number)).await.unwrap();
            assert_eq!(answer.into_inner().number, number);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

async fn compression(client: ExamClient<impl Transport>) {
    let mut client =
        client.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip);
    let asked = Question { blob: vec![42; 100_000], ..question("echo", 3) };
    let answer = client.ask(asked.clone()).await.unwrap().into_inner();
    assert_eq!((answer.number, answer.blob.len()), (3, 100_000));
    let answers = client.chat(tokio_stream::iter(vec![asked; 3])).await.unwrap().into_inner();
    assert_eq!(answers.map(Result::unwrap).collect::<Vec<_>>().await.len(), 3);
}

/// Generated clients take an interceptor only over transports of known types, so this is no generic function.
#[macro_export]
macro_rules! intercept {
    ($transport:expr) => {{
        let mark = |mut request: tonic::Request<()>| {
            let value = tonic::metadata::MetadataValue::from_static("intercepted");
            request.metadata_mut().insert("plain", value);
            Ok(request)
        };
        let mut client = $crate::stubs::exam_client::ExamClient::with_interceptor($transport, mark);
        let response = client.ask($crate::examiner::question("metadata", 0)).await.unwrap();
        assert_eq!(response.metadata().get("plain").unwrap(), "intercepted");
    }};
}

/// A question without a blob.
pub fn question(order: &str, number: u32) -> Question {
    Question { order: order.to_owned(), number, blob: Vec::new() }
}
