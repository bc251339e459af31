//! What was said in every call of a history, and by whom: each call has a number in its metadata, so that its server's
//! side is known for what it is, whatever is between. It holds ends to what was said.

use std::collections::BTreeMap;
use trunkline_call::{Code, Execution};

/// The metadata in which a call has its number.
pub const NUMBER_KEY: &str = "number";

/// All calls of a history.
#[derive(Default)]
pub struct Ledger {
    pub calls: BTreeMap<u64, Record>,
    /// Connections cut, and processes that died.
    pub losses: usize,
    /// Applications that died, or do not serve any more.
    pub deaths: usize,
    /// Limits are small, or policies bound calls.
    pub is_bounded: bool,
    /// Policies refuse calls.
    pub refuses: bool,
    /// Calls may have several attempts.
    pub repeats: bool,
    /// Calls may be copied.
    pub copies: bool,
}

/// One call.
#[derive(Debug, Default)]
pub struct Record {
    pub path: String,
    /// By its place in a service: 0 one message each way, 1 a stream of requests, 2 of answers, 3 both.
    pub method: usize,
    pub sent: Vec<Vec<u8>>,
    /// All of the request was said.
    pub is_asked: bool,
    pub got: Vec<Vec<u8>>,
    pub ended: Option<(Code, Execution)>,
    pub is_cancelled: bool,
    /// Its maker died, or the call that it was made for may have ended before it.
    pub is_orphan: bool,
    pub has_deadline: bool,
    pub is_malformed: bool,
    /// A peer ended its stream in its midst.
    pub is_broken: bool,
    /// Goes over R2P2, which carries one message each way.
    pub is_single: bool,
    pub served: Vec<Served>,
}

/// What a handler knows of a call.
#[derive(Debug, Default)]
pub struct Served {
    pub got: Vec<Vec<u8>>,
    /// All of the request is there.
    pub is_asked: bool,
    pub sent: Vec<Vec<u8>>,
    pub ended: Option<Code>,
    pub is_cancelled: bool,
}

impl Ledger {
    pub fn begin(&mut self, record: Record) -> u64 {
        let number = self.calls.len() as u64 + 1;
        self.calls.insert(number, record);
        number
    }

    pub fn call(&mut self, number: u64) -> &mut Record {
        self.calls.get_mut(&number).expect("calls have the numbers they were given")
    }

    /// A handler sees a call: its place among those that do.
    pub fn deliver(&mut self, number: u64, path: &str) -> usize {
        let (repeats, copies) = (self.repeats, self.copies);
        let record = self.call(number);
        assert_eq!(record.path, path, "call {number}");
        record.served.push(Served::default());
        assert!(record.served.len() == 1 || repeats || copies, "call {number} is executed twice: {record:?}");
        assert!(
            record.served.len() <= 3 || copies,
            "call {number} has more attempts than it may: {record:?}"
        );
        record.served.len() - 1
    }

    /// A handler got a message.
    pub fn take_request(&mut self, number: u64, place: usize, data: Vec<u8>) {
        let record = self.call(number);
        let served = &mut record.served[place];
        served.got.push(data);
        assert!(!served.is_asked, "call {number}: a message behind the last");
        let sent = record.sent.get(served.got.len() - 1);
        assert!(sent == served.got.last(), "call {number}: request {} is another", served.got.len());
    }

    /// A handler was told that there is no more.
    pub fn take_request_end(&mut self, number: u64, place: usize) {
        let record = self.call(number);
        let served = &mut record.served[place];
        assert!(!std::mem::replace(&mut served.is_asked, true), "call {number} is complete once");
        assert!(record.is_asked, "call {number}: nobody has said so");
        assert_eq!(served.got.len(), record.sent.len(), "call {number}: requests were lost");
    }

    /// A caller got a message.
    pub fn take_answer(&mut self, number: u64, data: Vec<u8>) {
        let record = self.call(number);
        assert!(record.ended.is_none(), "call {number}: an answer behind its end");
        record.got.push(data);
        let (count, got) = (record.got.len(), record.got.last());
        let is_of = |served: &Served| served.sent.get(count - 1) == got;
        assert!(record.served.iter().any(is_of), "call {number}: answer {count} is another");
    }

    /// A caller was told how its call ended.
    pub fn end(&mut self, number: u64, code: Code, execution: Execution, why: &str) {
        let (unavailable, copies) = (self.losses > 0, self.copies);
        let (is_gone, is_bounded, refuses) = (self.deaths > 0, self.is_bounded, self.refuses);
        let record = self.call(number);
        assert!(record.ended.is_none(), "call {number} ended twice: {record:?}");
        record.ended = Some((code, execution));
        let is_said =
            |served: &Served| served.ended == Some(code) && (code != Code::Ok || served.sent == record.got);
        if execution == Execution::NotExecuted && !copies {
            assert!(record.served.is_empty(), "call {number} was executed: {:?}", record.short());
        }
        if record.served.iter().any(is_said) {
            return;
        }
        let is_uncounted = |messages: usize, of: [usize; 2]| messages != 1 && of.contains(&record.method);
        let miscounts = is_uncounted(record.sent.len(), [0, 2])
            || record.served.iter().any(|served| is_uncounted(served.sent.len(), [0, 1]));
        let may = match code {
            Code::Ok => false,
            Code::Cancelled => record.is_cancelled || record.is_orphan,
            Code::DeadlineExceeded => record.has_deadline || record.is_orphan,
            Code::Unavailable => unavailable,
            Code::ResourceExhausted => is_bounded,
            Code::InvalidArgument => record.is_malformed,
            Code::Unimplemented => miscounts || is_gone || record.is_single,
            // A handler gave none, or too many for R2P2.
            Code::Internal => miscounts || record.is_single,
            Code::PermissionDenied => refuses,
            _ => false,
        };
        let may = may || code != Code::Ok && record.is_broken;
        assert!(may, "call {number} ended with {code:?} ({why}): {}", record.short());
    }

    /// At the end of a history: every call has ended, but those nobody waits for.
    pub fn is_complete(&self) {
        for (number, record) in &self.calls {
            let ended = record.ended.is_some() || record.is_cancelled || record.is_orphan;
            assert!(ended, "call {number} has not ended: {:?}", record.short());
        }
    }
}

impl Record {
    /// Itself, with messages as what their first byte and length are.
    pub fn short(&self) -> String {
        let short = |all: &[Vec<u8>]| -> Vec<(Option<u8>, usize)> {
            all.iter().map(|data| (data.first().copied(), data.len())).collect()
        };
        let served: Vec<_> = self
            .served
            .iter()
            .map(|one| (short(&one.got), one.is_asked, short(&one.sent), one.ended, one.is_cancelled))
            .collect();
        let request = format!("{} sent {:?} asked {}", self.path, short(&self.sent), self.is_asked);
        let answer =
            format!("got {:?} ended {:?} cancelled {}", short(&self.got), self.ended, self.is_cancelled);
        let reasons = (self.is_orphan, self.has_deadline, self.is_malformed, self.is_broken, self.is_single);
        format!(
            "{request} {answer} (orphan, deadline, malformed, broken, single) {reasons:?} served {served:?}"
        )
    }
}

/// The bytes of a message: those of no other of its length that are near.
pub fn message(number: u64, answers: bool, index: usize, bytes: usize) -> Vec<u8> {
    vec![(number as u8).wrapping_mul(31).wrapping_add(index as u8 * 2 + u8::from(answers)); bytes]
}
