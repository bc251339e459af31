//! What came back to calls that were sent again, beside what came when they were made.

use crate::say;
use std::collections::BTreeMap;
use std::time::Duration;
use trunkline::{Code, Status};
use trunkline_insight::words::time;
use trunkline_message::{Redaction, first_difference};
use trunkline_schema::{Method, Schema};
use trunkline_telemetry::{CallSample, Histogram};

/// Kinds of differences that are told one by one; the rest is counted together.
const TOLD_MAX: usize = 100;

/// What came back to a call.
#[derive(Clone, Debug)]
pub struct ReplayAnswer {
    /// How it ended.
    pub status: Status,
    /// The response, as protobuf.
    pub response: Option<Vec<u8>>,
    /// From when it was due to its end.
    pub took: Duration,
}

/// How an answer compares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerComparison {
    /// Status and payload are equal.
    Equal,
    /// The status is: there is no payload to compare.
    EqualStatus,
    /// It ended otherwise: then, and now.
    Status(u16, u16),
    /// The first field that differs.
    Payload(String),
}

/// Of one method.
#[derive(Clone, Debug, Default)]
struct Tally {
    /// Times in nanoseconds: as many calls as one likes take no more memory.
    took: Histogram,
    then: Histogram,
    failed: u64,
    compared: BTreeMap<AnswerComparison, u64>,
    more: u64,
}

/// All answers.
#[derive(Clone, Debug, Default)]
pub struct ReplayAnswers {
    methods: BTreeMap<String, Tally>,
    /// Calls that failed, and not as when they were kept, and the first of their statuses.
    worse: Option<(u64, Status)>,
}

/// Compares an answer with the one in the sample, but for fields that were emptied in that and those that `ignored`
/// names.
pub fn compare(
    sample: &CallSample,
    schema: Option<&Schema>,
    ignored: &[String],
    answer: &ReplayAnswer,
) -> AnswerComparison {
    if sample.code != answer.status.code() {
        return AnswerComparison::Status(sample.code.number(), answer.status.code().number());
    }
    let (Some(then), Some(now)) = (&sample.response, &answer.response) else {
        return AnswerComparison::EqualStatus;
    };
    let typed = schema.and_then(|schema| Some((schema, schema.method_at(&sample.path)?)));
    let types = typed.map(|(schema, Method { output, .. })| (schema, *output));
    let ignored = Redaction::new(sample.redacted.iter().chain(ignored).cloned());
    match first_difference(types, &ignored, then, now) {
        Ok(None) => AnswerComparison::Equal,
        Ok(Some(field)) => AnswerComparison::Payload(field),
        Err(fault) => AnswerComparison::Payload(format!("({fault})")),
    }
}

impl ReplayAnswers {
    /// Adds one, compared if it was.
    pub fn add(&mut self, sample: &CallSample, answer: &ReplayAnswer, compared: Option<AnswerComparison>) {
        let tally = self.methods.entry(sample.path.clone()).or_default();
        tally.took.record(answer.took.as_nanos().try_into().unwrap_or(u64::MAX));
        tally.then.record(sample.duration_ns);
        tally.failed += u64::from(!answer.status.is_ok());
        if !answer.status.is_ok() && answer.status.code() != sample.code {
            self.worse.get_or_insert_with(|| (0, answer.status.clone())).0 += 1;
        }
        let Some(compared) = compared else { return };
        if tally.compared.len() < TOLD_MAX || tally.compared.contains_key(&compared) {
            *tally.compared.entry(compared).or_default() += 1;
        } else {
            tally.more += 1;
        }
    }

    /// Calls that failed, and not as when they were kept, with the status of the first of them, if there are any.
    pub fn worse(&self) -> Option<(u64, &Status)> {
        self.worse.as_ref().map(|(count, first)| (*count, first))
    }

    /// ReplayAnswers in all, and those that differ.
    pub fn count(&self) -> (u64, u64) {
        let all = self.methods.values().map(|tally| tally.took.count()).sum();
        (all, self.methods.values().map(Tally::differ).sum())
    }

    /// ReplayAnswers that were found equal, and those of which the status alone could be compared.
    pub fn equal(&self) -> (u64, u64) {
        let of = |what: AnswerComparison| {
            self.methods.values().filter_map(|tally| tally.compared.get(&what)).sum::<u64>()
        };
        (of(AnswerComparison::Equal), of(AnswerComparison::EqualStatus))
    }

    /// A line for each method, and one for each difference.
    pub fn text(&self) -> String {
        let head = ["method", "calls", "failed", "p50", "p95", "max", "p50 then", "p95 then"];
        let rows: Vec<Vec<String>> = self.methods.iter().map(|(path, tally)| tally.row(path)).collect();
        let mut text = say::table(&head, &rows);
        for (path, tally) in &self.methods {
            for (what, count) in tally.compared.iter().filter(|(what, _)| what.differs()) {
                let path = path.trim_start_matches('/');
                text += &format!("{path}: {count} × {what}\n");
            }
            if tally.more > 0 {
                text += &format!("{}: {} × other differences\n", path.trim_start_matches('/'), tally.more);
            }
        }
        text
    }
}

impl Tally {
    fn differ(&self) -> u64 {
        let told = self.compared.iter().filter(|(what, _)| what.differs()).map(|(_, count)| count);
        told.sum::<u64>() + self.more
    }

    fn row(&self, path: &str) -> Vec<String> {
        let shown = |times: &Histogram, share: f64| time(times.quantile(share) as f64 / 1e9);
        vec![
            path.trim_start_matches('/').to_owned(),
            self.took.count().to_string(),
            self.failed.to_string(),
            shown(&self.took, 0.5),
            shown(&self.took, 0.95),
            shown(&self.took, 1.0),
            shown(&self.then, 0.5),
            shown(&self.then, 0.95),
        ]
    }
}

impl AnswerComparison {
    fn differs(&self) -> bool {
        matches!(self, Self::Status(..) | Self::Payload(_))
    }
}

impl std::fmt::Display for AnswerComparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Equal => f.write_str("equal"),
            Self::EqualStatus => f.write_str("equal status"),
            Self::Status(then, now) => {
                write!(
                    f,
                    "status differs: {} then, {} now",
                    Code::from_number(*then),
                    Code::from_number(*now)
                )
            }
            Self::Payload(field) => write!(f, "payload differs, first in {field}"),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows what is equal, what differs, and how it is told.
    use super::*;

    fn sample(code: Code, response: Option<&[u8]>, redacted: &[&str]) -> CallSample {
        CallSample {
            host: String::new(),
            path: "/t.S/Get".into(),
            served: false,
            began_unix_ms: 0,
            duration_ns: 2_000_000,
            timeout_ns: 0,
            code,
            schema: 1,
            redacted: redacted.iter().map(|name| (*name).to_owned()).collect(),
            emptied: false,
            request: Vec::new(),
            response: response.map(<[u8]>::to_vec),
        }
    }

    fn schema() -> Schema {
        let text = r#"syntax = "proto3"; package t;
            message A { string name = 1; string secret = 2; } service S { rpc Get(A) returns (A); }"#;
        let set = trunkline_schema::compile_proto_source("t.proto", text).unwrap();
        Schema::from_descriptor_set(&set).unwrap()
    }

    #[test]
    fn answers_are_compared_and_told() {
        let schema = schema();
        let answer = |code, response: Option<&[u8]>| ReplayAnswer {
            status: Status::new(code, "as it is now"),
            response: response.map(<[u8]>::to_vec),
            took: Duration::from_millis(3),
        };
        let (ok, name_a, name_b): (_, &[u8], &[u8]) = (Code::Ok, &[0x0a, 1, b'a'], &[0x0a, 1, b'b']);
        let with_secret: &[u8] = &[0x0a, 1, b'a', 0x12, 1, b's'];
        let emptied: &[u8] = &[0x0a, 1, b'a', 0x12, 0];
        let payload = |field: &str| AnswerComparison::Payload(field.to_owned());
        let mut answers = ReplayAnswers::default();
        for (sample, answer, expected) in [
            (sample(ok, Some(name_a), &[]), answer(ok, Some(name_a)), AnswerComparison::Equal),
            (sample(ok, Some(name_a), &[]), answer(ok, Some(name_b)), payload("name")),
            (sample(ok, Some(name_a), &[]), answer(ok, Some(with_secret)), payload("secret")),
            (sample(ok, Some(emptied), &["secret"]), answer(ok, Some(with_secret)), AnswerComparison::Equal),
            (sample(ok, None, &[]), answer(ok, Some(name_a)), AnswerComparison::EqualStatus),
            (sample(ok, Some(name_a), &[]), answer(Code::NotFound, None), AnswerComparison::Status(0, 5)),
        ] {
            let compared = compare(&sample, Some(&schema), &[], &answer);
            assert_eq!(compared, expected);
            answers.add(&sample, &answer, Some(compared));
        }
        let untyped = compare(&sample(ok, Some(name_a), &[]), None, &[], &answer(ok, Some(name_b)));
        let ignored = compare(
            &sample(ok, Some(name_a), &[]),
            Some(&schema),
            &["name".into()],
            &answer(ok, Some(name_b)),
        );
        assert_eq!(ignored, AnswerComparison::Equal);
        assert_eq!(untyped, payload("field 1"));
        assert_eq!((answers.count(), answers.equal()), ((6, 3), (2, 1)));
        let (count, first) = answers.worse().unwrap();
        assert_eq!((count, first.message()), (1, "as it is now"));
        let text = answers.text();
        for line in [
            "t.S/Get: 1 × status differs: OK then, NOT_FOUND now",
            "t.S/Get: 1 × payload differs, first in name",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let mut alike = ReplayAnswers::default();
        alike.add(&sample(Code::NotFound, None, &[]), &answer(Code::NotFound, None), None);
        assert_eq!(alike.worse(), None, "it failed when it was kept");
        let row = text.lines().nth(1).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>()[..3], ["t.S/Get", "6", "1"], "{text}");
    }
}
