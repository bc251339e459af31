//! The probe's server side: does what it is ordered.

use crate::journal::Journal;
use crate::proto::probe::order::Task;
use crate::proto::probe::probe_client::ProbeClient;
use crate::proto::probe::probe_server::Probe;
use crate::proto::probe::{Failure, Happened, Item, Label, Order, Outcome, Text, Total, Wanted};
use trunkline::{
    Channel, Code, Deadline, Incoming, Metadata, MetadataError, Receiver, Response, Sender, Status,
};

/// Serves the probe. Orders to relay go out through a channel of its own: it is client and server at once.
#[derive(Clone, Debug)]
pub struct Handler {
    journal: Journal,
    onward: ProbeClient,
    echoes: Echoes,
}

/// What becomes of a text that is to be said back, once it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echoes {
    /// It is.
    Answers,
    /// The call ends with UNAVAILABLE.
    Fails,
    /// The call never ends. `Watch` counts it under [`HANGING`].
    Hangs,
}

/// The label of echoes that hang.
pub const HANGING: &str = "hanging echoes";

impl Handler {
    /// A handler that remembers in `journal` and relays through `onward`.
    pub fn new(journal: Journal, onward: Channel, echoes: Echoes) -> Self {
        Self { journal, onward: ProbeClient::new(onward), echoes }
    }

    /// Writes the call into the log if its metadata has a number for it.
    fn executed(&self, metadata: &Metadata) {
        let number = metadata.text("log").and_then(|number| number.parse().ok());
        number.into_iter().for_each(|number| self.journal.executed(number));
    }

    async fn obey(&self, label: &str, task: Option<Task>) -> Result<Outcome, Status> {
        match task {
            Some(Task::Fail(failure)) => return Err(failed(failure)),
            Some(Task::Panic(_)) => panic!("ordered to"),
            Some(Task::Hang(_)) => std::future::pending().await,
            Some(Task::Relay(order)) => return Ok(self.relay(*order).await),
            Some(Task::Chain(0)) => std::future::pending().await,
            Some(Task::Chain(left)) => {
                let order = Order { label: label.to_owned(), task: Some(Task::Chain(left - 1)) };
                return self.onward.r#do(order).await.map(Response::into_inner);
            }
            Some(Task::Gate(gate)) => self.journal.pass(&gate).await,
            Some(Task::Open(gate)) => self.journal.open(&gate),
            Some(Task::Log(number)) => self.journal.executed(number),
            Some(Task::WorkUntil(gate)) => self.journal.block_at(&gate),
            Some(Task::BlockMs(ms)) => std::thread::sleep(std::time::Duration::from_millis(ms.into())),
            None => {}
        }
        Ok(Outcome::default())
    }

    async fn relay(&self, order: Order) -> Outcome {
        match self.onward.r#do(order).await {
            Ok(outcome) => Outcome { relayed: Some(Box::new(outcome.into_inner())), ..Outcome::default() },
            Err(status) => Outcome { relayed_code: status.code().number().into(), ..Outcome::default() },
        }
    }
}

fn failed(failure: Failure) -> Status {
    let code = Code::from_number(u16::try_from(failure.code).unwrap_or(u16::MAX));
    Status::new(code, failure.message).with_details(failure.details)
}

fn refused(error: MetadataError) -> Status {
    Status::invalid_argument(error.to_string())
}

impl Probe for Handler {
    async fn echo(&self, request: Incoming<Text>) -> Result<Response<Text>, Status> {
        self.executed(request.metadata());
        match self.echoes {
            Echoes::Answers => {}
            Echoes::Fails => return Err(Status::unavailable("ordered to fail")),
            Echoes::Hangs => {
                // Dropped with the call: then it is counted as such.
                let _entry = self.journal.enter(HANGING);
                std::future::pending::<()>().await;
            }
        }
        let ask = request.metadata().first("ask").map(<[u8]>::to_vec);
        let response = Response::new(request.into_inner());
        match ask {
            None => Ok(response),
            Some(ask) => response
                .with_header("answer", &ask)
                .and_then(|response| response.with_trailer("answer-bin", &ask))
                .map_err(refused),
        }
    }

    async fn r#do(&self, request: Incoming<Order>) -> Result<Response<Outcome>, Status> {
        let deadline_known = request.deadline() != Deadline::NONE;
        let order = request.into_inner();
        let entry = self.journal.enter(&order.label);
        let outcome = self.obey(&order.label, order.task).await;
        entry.returned();
        outcome.map(|outcome| Response::new(Outcome { deadline_known, ..outcome }))
    }

    async fn count(&self, request: Incoming<Wanted>, mut out: Sender<Item>) -> Result<(), Status> {
        self.executed(request.metadata());
        let Wanted { count, bytes, label } = request.into_inner();
        let entry = self.journal.enter(&label);
        for number in 0..count {
            let body = vec![number as u8; bytes as usize];
            out.send(Item { number, body }).await?;
        }
        entry.returned();
        Ok(())
    }

    async fn sum(&self, mut input: Receiver<Item>) -> Result<Response<Total>, Status> {
        self.executed(input.metadata());
        let mut total = Total::default();
        while let Some(item) = input.recv().await? {
            total.items += 1;
            total.numbers += u64::from(item.view().number());
            total.bytes += item.view().body().len() as u64;
        }
        Ok(Response::new(total))
    }

    async fn take(&self, mut input: Receiver<Item>) -> Result<Response<Item>, Status> {
        self.executed(input.metadata());
        let (mut read, mut wanted, mut bytes) = (0, 1, 0);
        while read < wanted
            && let Some(item) = input.recv().await?
        {
            wanted = if read == 0 { item.view().number() } else { wanted };
            (read, bytes) = (read + 1, item.view().body().len());
        }
        Ok(Response::new(Item { number: read, body: vec![read as u8; bytes] }))
    }

    async fn chat(&self, mut input: Receiver<Text>, mut out: Sender<Text>) -> Result<(), Status> {
        self.executed(input.metadata());
        while let Some(text) = input.recv().await? {
            out.send(text).await?;
        }
        Ok(())
    }

    async fn watch(&self, request: Incoming<Label>) -> Result<Response<Happened>, Status> {
        let counts = self.journal.counts(request.view().label());
        let (entered, returned, dropped) = (counts.entered, counts.returned, counts.dropped);
        Ok(Response::new(Happened { entered, returned, dropped }))
    }
}
