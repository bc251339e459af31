//! Telemetry to messages and back.

use super::proto;
use trunkline_telemetry::{
    CallsAnswer, Component, Explanation, Intervals, LateHandler, Row, Side, Spread, TaxTotals, TopRow, WhatIf,
};

/// An explanation as a message.
pub(super) fn explanation_message(explained: &Explanation) -> proto::Explanation {
    let errors = explained.errors.iter();
    let what_if = explained.what_if.iter();
    proto::Explanation {
        side: side_message(explained.side),
        methods: explained.methods.clone(),
        peers: explained.peers.clone(),
        calls: explained.calls,
        errors: errors.map(|(code, calls)| proto::ErrorCount { code: code.clone(), calls: *calls }).collect(),
        total: Some(spread_message(&explained.total)),
        components: explained.components.iter().map(share_message).collect(),
        remote: explained.remote.as_ref().map(spread_message),
        request_wakeup: Some(spread_message(&explained.wakeups[0])),
        response_wakeup: Some(spread_message(&explained.wakeups[1])),
        client_only: explained.client_only,
        clipped: explained.clipped,
        kernel_stamped: explained.kernel_stamped,
        half_width_ns: explained.half_width_ns,
        what_if: what_if.map(what_if_message).collect(),
        samples: explained.samples,
        one_host: explained.one_host,
        stayed: explained.stayed,
        cpu: Some(spread_message(&explained.cpu)),
        subtree_mean: explained.subtree_mean,
        samples_ns: explained.samples_ns,
        tail_calls: explained.tail_calls,
        streams: explained.streams.as_ref().map(spread_message),
    }
}

/// A message as an explanation; `None` if the daemon left out what every explanation has.
pub fn explanation(message: proto::Explanation) -> Option<Explanation> {
    let share = |share: proto::Share| {
        Some(Row { component: component(share.component)?, spread: spread(&share.spread?) })
    };
    let components: Vec<Row> = message.components.into_iter().filter_map(share).collect();
    let in_order = components.iter().map(|row| row.component).eq(Component::ALL);
    let what_if = message.what_if.into_iter();
    in_order.then_some(Explanation {
        side: side(message.side)?,
        methods: message.methods,
        peers: message.peers,
        calls: message.calls,
        errors: message.errors.into_iter().map(|error| (error.code, error.calls)).collect(),
        total: spread(&message.total?),
        components,
        remote: message.remote.as_ref().map(spread),
        streams: message.streams.as_ref().map(spread),
        wakeups: [spread(&message.request_wakeup?), spread(&message.response_wakeup?)],
        client_only: message.client_only,
        clipped: message.clipped,
        kernel_stamped: message.kernel_stamped,
        half_width_ns: message.half_width_ns,
        what_if: what_if
            .filter_map(|row| {
                Some(WhatIf {
                    component: component(row.component)?,
                    p95_reduction_percent: row.p95_reduction_percent,
                    tail_escape_percent: row.tail_escape_percent,
                    intervals: intervals(&row),
                })
            })
            .collect(),
        samples: message.samples,
        one_host: message.one_host,
        stayed: message.stayed,
        cpu: message.cpu.as_ref().map(spread).unwrap_or_default(),
        subtree_mean: message.subtree_mean,
        samples_ns: message.samples_ns,
        tail_calls: message.tail_calls,
    })
}

/// A row of `top` as a message.
pub(super) fn top_row_message(row: &TopRow) -> proto::TopRow {
    let unspecified = proto::Component::Unspecified;
    proto::TopRow {
        side: side_message(row.side),
        method: row.method.clone(),
        calls: row.calls,
        calls_per_second: row.rate,
        errors: row.errors,
        p50_ns: row.p50_ns,
        p99_ns: row.p99_ns,
        biggest: row.biggest.map_or(unspecified, component_message),
        biggest_percent: row.biggest_percent,
    }
}

/// A message as a row of `top`; `None` for a side this version does not know.
pub fn top_row(message: proto::TopRow) -> Option<TopRow> {
    Some(TopRow {
        side: side(message.side)?,
        method: message.method,
        calls: message.calls,
        rate: message.calls_per_second,
        errors: message.errors,
        p50_ns: message.p50_ns,
        p99_ns: message.p99_ns,
        biggest: component(message.biggest),
        biggest_percent: message.biggest_percent,
    })
}

/// Processor time by stage as a message.
pub(super) fn stages_message(tax: &TaxTotals) -> Vec<proto::StageTime> {
    let stages = tax.by_label().into_iter();
    stages.map(|(stage, cpu_ns)| proto::StageTime { stage: stage.to_owned(), cpu_ns }).collect()
}

/// Calls of a shard as a message.
pub(super) fn calls_message(answer: &CallsAnswer) -> proto::ShardCalls {
    let named = |names: &[(u32, String)]| {
        names
            .iter()
            .map(|(number, name)| proto::NumberedName { number: *number, name: name.clone() })
            .collect()
    };
    let mut rows = Vec::new();
    answer.rows.iter().for_each(|row| row.encode(&mut rows));
    let mut traces = Vec::new();
    for (place, trace) in &answer.traces {
        traces.extend(place.to_le_bytes());
        trace.encode(&mut traces);
    }
    proto::ShardCalls {
        next: answer.next,
        seen: answer.seen,
        lost: answer.lost,
        more: answer.more,
        rows,
        methods: named(&answer.methods),
        peers: named(&answer.peers),
        traced: answer.traced,
        traces,
        late: answer.late.iter().map(late_message).collect(),
    }
}

fn late_message(late: &LateHandler) -> proto::LateHandler {
    let (method, code) = (late.method.0, late.code.number().into());
    proto::LateHandler { method, code, cpu_ns: late.cpu_ns }
}

fn share_message(row: &Row) -> proto::Share {
    proto::Share { component: component_message(row.component), spread: Some(spread_message(&row.spread)) }
}

fn what_if_message(row: &WhatIf) -> proto::WhatIf {
    proto::WhatIf {
        component: component_message(row.component),
        p95_reduction_percent: row.p95_reduction_percent,
        tail_escape_percent: row.tail_escape_percent,
        p95_reduction_interval: row.intervals.map(|ends| interval_message(ends.p95_reduction_percent)),
        tail_escape_interval: row.intervals.map(|ends| interval_message(ends.tail_escape_percent)),
    }
}

fn interval_message([low, high]: [f64; 2]) -> proto::Interval {
    proto::Interval { low, high }
}

fn intervals(row: &proto::WhatIf) -> Option<Intervals> {
    let ends = |interval: &Option<proto::Interval>| interval.as_ref().map(|ends| [ends.low, ends.high]);
    Some(Intervals {
        p95_reduction_percent: ends(&row.p95_reduction_interval)?,
        tail_escape_percent: ends(&row.tail_escape_interval)?,
    })
}

fn spread_message(spread: &Spread) -> proto::Spread {
    proto::Spread {
        share_percent: spread.share_percent,
        calls: spread.calls,
        mean_ns: spread.mean_ns,
        p50_ns: spread.p50_ns,
        p90_ns: spread.p90_ns,
        p99_ns: spread.p99_ns,
        p999_ns: spread.p999_ns,
        max_ns: spread.max_ns,
    }
}

fn spread(message: &proto::Spread) -> Spread {
    Spread {
        share_percent: message.share_percent,
        calls: message.calls,
        mean_ns: message.mean_ns,
        p50_ns: message.p50_ns,
        p90_ns: message.p90_ns,
        p99_ns: message.p99_ns,
        p999_ns: message.p999_ns,
        max_ns: message.max_ns,
    }
}

/// The nine in the order of [`Component::ALL`].
const COMPONENTS: [proto::Component; Component::COUNT] = [
    proto::Component::ClientSendQueue,
    proto::Component::RequestStack,
    proto::Component::RequestWire,
    proto::Component::ServerReceiveQueue,
    proto::Component::ServerApplication,
    proto::Component::ServerSendQueue,
    proto::Component::ResponseWire,
    proto::Component::ResponseStack,
    proto::Component::ClientReceiveQueue,
];

fn component_message(component: Component) -> proto::Component {
    COMPONENTS[component as usize]
}

fn component(message: proto::Component) -> Option<Component> {
    let at = COMPONENTS.iter().position(|known| *known == message)?;
    Some(Component::ALL[at])
}

pub(super) fn side_message(side: Side) -> proto::Side {
    match side {
        Side::Made => proto::Side::Made,
        Side::Served => proto::Side::Served,
        Side::Attempt => proto::Side::Attempt,
    }
}

fn side(message: proto::Side) -> Option<Side> {
    match message {
        proto::Side::Made => Some(Side::Made),
        proto::Side::Served => Some(Side::Served),
        proto::Side::Attempt => Some(Side::Attempt),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Shows that nothing is lost on the way, and that half an explanation is none.
    use super::*;

    fn some_spread(seed: u64) -> Spread {
        Spread {
            share_percent: seed as f64 / 2.0,
            calls: seed,
            mean_ns: seed + 1,
            p50_ns: seed + 2,
            p90_ns: seed + 3,
            p99_ns: seed + 4,
            p999_ns: seed + 5,
            max_ns: seed + 6,
        }
    }

    fn some_explanation() -> Explanation {
        let row = |component| Row { component, spread: some_spread(component as u64 * 10) };
        Explanation {
            side: Side::Served,
            methods: vec!["/a.B/C".into()],
            peers: vec!["p".into(), "q".into()],
            calls: 7,
            errors: vec![("NOT_FOUND".into(), 3)],
            total: some_spread(100),
            components: Component::ALL.into_iter().map(row).collect(),
            remote: Some(some_spread(200)),
            wakeups: [some_spread(300), some_spread(400)],
            client_only: 1,
            clipped: 2,
            kernel_stamped: 3,
            half_width_ns: 4,
            what_if: vec![WhatIf {
                component: Component::RequestWire,
                p95_reduction_percent: 1.5,
                tail_escape_percent: 2.5,
                intervals: Some(Intervals {
                    p95_reduction_percent: [0.5, 3.5],
                    tail_escape_percent: [2.0, 4.5],
                }),
            }],
            samples: 5,
            one_host: 6,
            stayed: 8,
            cpu: some_spread(500),
            subtree_mean: 1.25,
            samples_ns: 10,
            tail_calls: 9,
            streams: Some(some_spread(900)),
        }
    }

    #[test]
    fn explanations_survive() {
        let whole = some_explanation();
        assert_eq!(explanation(explanation_message(&whole)), Some(whole));
    }

    #[test]
    fn half_an_explanation_is_none() {
        let message = explanation_message(&some_explanation());
        let mut short = message.clone();
        short.components.pop();
        assert_eq!(explanation(short), None);
        assert_eq!(explanation(proto::Explanation { total: None, ..message }), None);
    }

    #[test]
    fn rows_survive() {
        let row = |biggest| TopRow {
            side: Side::Made,
            method: "/a.B/C".into(),
            calls: 1,
            rate: 2.5,
            errors: 3,
            p50_ns: 4,
            p99_ns: 5,
            biggest,
            biggest_percent: 6.5,
        };
        for biggest in Component::ALL.into_iter().map(Some).chain([None]) {
            assert_eq!(top_row(top_row_message(&row(biggest))), Some(row(biggest)));
        }
    }
}
