//! The handlers, as a user of tonic writes them.

use crate::stubs::exam_server::Exam;
use crate::stubs::{Answer, Nothing, Question};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Barrier;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status, Streaming};

/// How many calls `meet` waits for, until all of them are there.
pub const CROWD: u32 = 1000;

/// Does what questions say.
#[derive(Clone, Debug)]
pub struct Handler {
    /// Handlers that hang, chats, sums, and watched answers.
    at_work: Arc<AtomicU32>,
    /// Sums of streams that came to their end.
    sums: Arc<AtomicU32>,
    meeting: Arc<Barrier>,
}

impl Default for Handler {
    fn default() -> Self {
        Self {
            at_work: Arc::default(),
            sums: Arc::default(),
            meeting: Arc::new(Barrier::new(CROWD as usize)),
        }
    }
}

/// Counts itself as long as it is there.
struct Presence(Arc<AtomicU32>);

impl Presence {
    fn of(counter: &Arc<AtomicU32>) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(counter))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What the server's interceptor leaves behind for handlers.
#[derive(Clone, Debug)]
pub struct Guarded;

/// The server's interceptor: turns away who says so, marks all others.
///
/// # Errors
/// PERMISSION_DENIED for a forged token.
pub fn guard(mut request: Request<()>) -> Result<Request<()>, Status> {
    if request.metadata().get("token").is_some_and(|token| token == "forged") {
        return Err(Status::permission_denied("the token is forged"));
    }
    request.extensions_mut().insert(Guarded);
    Ok(request)
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Exam for Handler {
    async fn ask(&self, request: Request<Question>) -> Result<Response<Answer>, Status> {
        let metadata = request.metadata().clone();
        let is_guarded = request.extensions().get::<Guarded>().is_some();
        let question = request.into_inner();
        match question.order.as_str() {
            "echo" => Ok(Response::new(echo(question))),
            "metadata" => {
                let mut response = Response::new(Answer { number: is_guarded.into(), ..Answer::default() });
                for key in ["plain", "twice"] {
                    for value in metadata.get_all(key) {
                        response.metadata_mut().append(key, value.clone());
                    }
                }
                for value in metadata.get_all_bin("some-bin") {
                    response.metadata_mut().append_bin("some-bin", value.clone());
                }
                Ok(response)
            }
            "time left" => {
                let said = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok());
                Ok(Response::new(Answer { text: said.unwrap_or_default().to_owned(), ..Answer::default() }))
            }
            "fail" => Err(failure(question.number)),
            "hang" => {
                let _presence = Presence::of(&self.at_work);
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Err(Status::internal("an hour has passed"))
            }
            "linger" => {
                let _presence = Presence::of(&self.at_work);
                tokio::time::sleep(Duration::from_millis(500)).await;
                Ok(Response::new(echo(question)))
            }
            "meet" => {
                self.meeting.wait().await;
                Ok(Response::new(echo(question)))
            }
            "at work" => {
                let number = self.at_work.load(Ordering::SeqCst);
                Ok(Response::new(Answer { number, ..Answer::default() }))
            }
            "sums" => {
                let number = self.sums.load(Ordering::SeqCst);
                Ok(Response::new(Answer { number, ..Answer::default() }))
            }
            "panic" => panic!("as the question wishes"),
            order => Err(Status::invalid_argument(format!("what is {order:?}?"))),
        }
    }

    type CountStream = Answers<Answer>;

    async fn count(&self, request: Request<Question>) -> Result<Response<Answers<Answer>>, Status> {
        let question = request.into_inner();
        let order = question.order.clone();
        let presence = (order == "count, watched").then(|| Presence::of(&self.at_work));
        let numbers = (1..=question.number).map(move |number| {
            let _alive = &presence;
            Ok(Answer { number, blob: question.blob.clone(), ..Answer::default() })
        });
        let last = (order == "count, then fail").then(|| Err(failure(9)));
        let answers = tokio_stream::iter(numbers.chain(last));
        let answers: Answers<Answer> = match order.as_str() {
            "count, then hang" => Box::pin(answers.chain(tokio_stream::pending())),
            _ => Box::pin(answers),
        };
        let mut response = Response::new(answers);
        response.metadata_mut().insert("begins", MetadataValue::from_static("now"));
        Ok(response)
    }

    async fn sum(&self, request: Request<Streaming<Question>>) -> Result<Response<Answer>, Status> {
        let _presence = Presence::of(&self.at_work);
        let mut input = request.into_inner();
        let (mut number, mut bytes) = (0u32, 0usize);
        while let Some(question) = input.message().await? {
            if question.order == "enough" {
                return Err(Status::out_of_range("that will do"));
            }
            number += question.number;
            bytes += question.blob.len();
        }
        self.sums.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(Answer { number, text: bytes.to_string(), ..Answer::default() }))
    }

    type ChatStream = Answers<Answer>;

    async fn chat(&self, request: Request<Streaming<Question>>) -> Result<Response<Answers<Answer>>, Status> {
        let mut input = request.into_inner();
        let (tx, rx) = tokio::sync::mpsc::channel(4);
        let presence = Presence::of(&self.at_work);
        tokio::spawn(async move {
            let _presence = presence;
            while let Some(question) = input.next().await {
                let answer = match question {
                    Ok(question) if question.order == "fail" => Err(failure(question.number)),
                    Ok(question) => Ok(echo(question)),
                    Err(status) => Err(status),
                };
                if tx.send(answer).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(rx))))
    }

    type TickStream = Answers<Nothing>;

    async fn tick(&self, request: Request<Streaming<Nothing>>) -> Result<Response<Answers<Nothing>>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}

fn echo(question: Question) -> Answer {
    Answer { text: question.order, number: question.number, blob: question.blob }
}

/// A status with everything a status can have.
pub fn failure(code: u32) -> Status {
    let code = Code::from(code as i32);
    let mut status = Status::with_details(code, "größer als 50%", vec![0u8, 1, 254, 255].into());
    status.metadata_mut().insert("tenant", MetadataValue::from_static("blue"));
    status.metadata_mut().insert_bin("cause-bin", MetadataValue::from_bytes(&[7, 0, 7]));
    status
}
