//! Ring entries on their way to another host: the bytes that must be there before them, and times on another clock.

use crate::entry::{Call, Completion, Finish, Payload, Span, Submission};
use crate::{Deadline, Instant};

/// What is to be added to times of one host's clock to have those of another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockShift(pub i64);

impl ClockShift {
    /// The way back.
    pub fn reversed(self) -> Self {
        Self(self.0.saturating_neg())
    }

    /// A time; zero says that there is none.
    fn instant(self, at: Instant) -> Instant {
        if at.0 == 0 { at } else { Instant(at.0.saturating_add_signed(self.0).max(1)) }
    }

    fn deadline(self, deadline: Deadline) -> Deadline {
        deadline.instant().map_or(deadline, |at| Deadline::at(self.instant(at)))
    }
}

impl Submission {
    /// Where the bytes lie that it names in the application's heap; those without length are not there.
    pub fn carries(&self) -> [Span; 2] {
        match self {
            Self::Call(call) => call.carries(),
            Self::Message { payload, .. } => [payload.span, Span::default()],
            Self::Headers { metadata, .. } => [*metadata, Span::default()],
            Self::Finish(finish) => finish.carries(),
            Self::HalfClose { .. } | Self::Cancel { .. } | Self::Release { .. } | Self::Drain { .. } => {
                [Span::default(); 2]
            }
        }
    }

    /// The same with its times on another clock.
    #[must_use]
    pub fn shifted(self, by: ClockShift) -> Self {
        match self {
            Self::Call(call) => Self::Call(call.shifted(by)),
            Self::Message { call, payload, end, a1 } => {
                Self::Message { call, payload, end, a1: by.instant(a1) }
            }
            Self::Finish(finish) => Self::Finish(finish.shifted(by)),
            Self::Release { call, block, metadata, a18 } => {
                Self::Release { call, block, metadata, a18: by.instant(a18) }
            }
            other => other,
        }
    }
}

impl Completion {
    /// Where the bytes lie that it names in the daemon's heap; those without length are not there.
    pub fn carries(&self) -> [Span; 2] {
        match self {
            Self::Call(call) => call.carries(),
            Self::Message { payload, .. } => [payload.span, Span::default()],
            Self::Headers { metadata, .. } => [*metadata, Span::default()],
            Self::Finish(finish) => finish.carries(),
            _ => [Span::default(); 2],
        }
    }

    /// The blocks it lends: what it carries, and the block an empty protobuf message has.
    pub fn lends(&self) -> [Span; 2] {
        let payload = match self {
            Self::Call(call) => call.payload,
            Self::Message { payload, .. } => Some(*payload),
            Self::Finish(finish) => finish.payload,
            _ => None,
        };
        let [first, second] = self.carries();
        [payload.map_or(first, |payload| payload.block()), second]
    }

    /// The same with its times on another clock.
    #[must_use]
    pub fn shifted(self, by: ClockShift) -> Self {
        match self {
            Self::Call(call) => Self::Call(call.shifted(by)),
            Self::Finish(finish) => Self::Finish(finish.shifted(by)),
            other => other,
        }
    }
}

impl Call {
    fn carries(&self) -> [Span; 2] {
        [span_of(self.payload), self.metadata]
    }

    fn shifted(self, by: ClockShift) -> Self {
        Self {
            deadline: by.deadline(self.deadline),
            entered: by.instant(self.entered),
            published: by.instant(self.published),
            ..self
        }
    }
}

impl Finish {
    fn carries(&self) -> [Span; 2] {
        [span_of(self.payload), self.metadata]
    }

    fn shifted(self, by: ClockShift) -> Self {
        Self { taken: by.instant(self.taken), published: by.instant(self.published), ..self }
    }
}

fn span_of(payload: Option<Payload>) -> Span {
    payload.map_or(Span::default(), |payload| payload.span)
}

#[cfg(test)]
mod tests {
    //! Shows which bytes go before an entry, and that times come back from another clock as they were.
    use super::*;
    use crate::{CallId, Code, Encoding, Execution, RouteIndex};

    fn span(offset: u32) -> Span {
        Span { offset, len: 5 }
    }

    fn call(len: u32) -> Call {
        Call {
            route: RouteIndex(1),
            call: CallId(2),
            payload: Some(Payload::new(Span { offset: 64, len }, Encoding::Protobuf)),
            metadata: span(128),
            end: true,
            wait_for_ready: false,
            deadline: Deadline::at(Instant(1_000)),
            entered: Instant(700),
            published: Instant(0),
            parent: CallId(0),
        }
    }

    #[test]
    fn bytes_of_an_entry() {
        assert_eq!(Submission::Call(call(5)).carries(), [span(64), span(128)]);
        let release =
            Submission::Release { call: CallId(1), block: span(64), metadata: span(128), a18: Instant(3) };
        assert_eq!(release.carries(), [Span::default(); 2], "blocks that go back are the other side's");
        let empty = Completion::Call(call(0));
        assert_eq!(empty.carries(), [Span { offset: 64, len: 0 }, span(128)]);
        assert_eq!(empty.lends(), [Span { offset: 64, len: 1 }, span(128)]);
    }

    #[test]
    fn times_come_back_as_they_were() {
        let finish = Finish {
            call: CallId(4),
            code: Code::Ok,
            execution: Execution::Executed,
            payload: None,
            metadata: Span::default(),
            taken: Instant(10_000),
            published: Instant(11_000),
            cpu_ns: 12,
            subtree: 13,
        };
        let all = [
            Submission::Call(call(5)),
            Submission::Finish(finish),
            Submission::Cancel { call: CallId(1) },
            Submission::Drain { answer: true },
        ];
        for shift in [ClockShift(-300), ClockShift(i64::from(u32::MAX))] {
            for submission in all {
                assert_eq!(submission.shifted(shift).shifted(shift.reversed()), submission);
            }
        }
        let Submission::Call(shifted) = Submission::Call(call(5)).shifted(ClockShift(-300)) else {
            unreachable!()
        };
        assert_eq!(shifted.deadline.instant(), Some(Instant(700)));
        assert_eq!((shifted.entered, shifted.published), (Instant(400), Instant(0)), "zero stays zero");
    }
}
