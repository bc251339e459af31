//! A server of our own stubs, for tonic's clients, and a program of our own client, for tonic's servers.

use crate::ours::exam_client::ExamClient;
use crate::ours::exam_server::Exam;
use crate::ours::{Answer, Nothing, Question};
use std::time::Duration;
use trunkline::{Code, Incoming, Receiver, Request, Response, Sender, Status};

/// Answers as [`crate::handler::Handler`] does, as far as the patterns go.
pub struct Typed;

impl Exam for Typed {
    async fn ask(&self, request: Incoming<Question>) -> Result<Response<Answer>, Status> {
        let question = request.into_inner();
        match question.order.as_str() {
            "fail" => Err(Status::not_found("größer als 50%").with_details([0, 1, 254, 255])),
            _ => Ok(Response::new(echo(question))),
        }
    }

    async fn count(&self, request: Incoming<Question>, mut out: Sender<Answer>) -> Result<(), Status> {
        for number in 1..=request.view().number() {
            out.send(Answer { number, ..Answer::default() }).await?;
        }
        Ok(())
    }

    async fn sum(&self, mut input: Receiver<Question>) -> Result<Response<Answer>, Status> {
        let mut number = 0;
        while let Some(question) = input.recv().await? {
            number += question.view().number();
        }
        Ok(Response::new(Answer { number, ..Answer::default() }))
    }

    async fn chat(&self, mut input: Receiver<Question>, mut out: Sender<Answer>) -> Result<(), Status> {
        while let Some(question) = input.recv().await? {
            out.send(echo(question.into_inner())).await?;
        }
        Ok(())
    }

    async fn tick(&self, mut input: Receiver<Nothing>, mut out: Sender<Nothing>) -> Result<(), Status> {
        while let Some(nothing) = input.recv().await? {
            out.send(nothing.into_inner()).await?;
        }
        Ok(())
    }
}

fn echo(question: Question) -> Answer {
    Answer { text: question.order, number: question.number, blob: question.blob }
}

/// Our client against tonic's handlers.
pub async fn examine(channel: trunkline::Channel) {
    let client = ExamClient::new(channel);
    for bytes in [0, 10, 100_000] {
        let question = Question { order: "echo".into(), number: 7, blob: vec![3; bytes] };
        let answer = client.ask(question).await.unwrap().into_inner();
        assert_eq!((answer.text.as_str(), answer.number, answer.blob.len()), ("echo", 7, bytes));
    }
    let failed = client.ask(Question { order: "fail".into(), number: 5, ..Question::default() }).await;
    let status = failed.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "größer als 50%"));
    assert_eq!(status.details(), [0, 1, 254, 255]);

    let late = Request::new(Question { order: "hang".into(), ..Question::default() });
    let status = client.ask(late.with_timeout(Duration::from_millis(50))).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);

    for count in [0, 1, 40] {
        let order = Question { order: "count".into(), number: count, ..Question::default() };
        let mut answers = client.count(order).await.unwrap();
        let mut numbers = Vec::new();
        while let Some(answer) = answers.recv().await.unwrap() {
            numbers.push(answer.view().number());
        }
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
        assert_eq!(answers.metadata().text("begins"), Some("now"));
    }

    let mut sum = client.sum();
    for number in 1..=10 {
        sum.send(Question { number, ..Question::default() }).await.unwrap();
    }
    assert_eq!(sum.finish().await.unwrap().view().number(), 55);

    let (mut tx, mut rx) = client.chat().split();
    for number in 0..10 {
        tx.send(Question { number, ..Question::default() }).await.unwrap();
        assert_eq!(rx.recv().await.unwrap().unwrap().view().number(), number);
    }
    drop(tx);
    assert!(rx.recv().await.unwrap().is_none());
}
