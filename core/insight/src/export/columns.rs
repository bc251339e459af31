//! The columns that a call has as CSV and as Parquet.

use super::times::ended_us;
use crate::fleet::{Fleet, FleetCall};
use trunkline_call::Instant;
use trunkline_telemetry::{Component, Coverage, RecordedTrace};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Text,
    Whole,
    Real,
    Flag,
    /// Microseconds since 1970.
    Time,
}

/// What a call has in a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// Nobody told.
    Nothing,
    Text(String),
    Whole(u64),
    Real(f64),
    Flag(bool),
}

/// Says what a call has.
type CellOf = Box<dyn Fn(&Fleet, &FleetCall) -> Cell>;

/// A column.
pub(crate) struct Column {
    pub name: String,
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "CSV has no types"))]
    pub kind: ColumnKind,
    value: CellOf,
}

/// The stamps of a call, in the order it passes them.
const STAMPS: [&str; 17] = [
    "a0", "a1", "d2", "d3", "d4", "k6", "k7", "d8", "d9", "a10", "a11", "d12", "k14", "k15", "d16", "d17",
    "a18",
];

impl Column {
    /// All columns, in their order.
    pub fn all() -> Vec<Self> {
        use ColumnKind::{Flag, Real, Text, Time, Whole};
        let mut all = vec![
            Self::new("host", Text, |fleet, call| text(&head(fleet, call).host)),
            Self::new("cluster", Text, |fleet, call| text(&head(fleet, call).cluster)),
            Self::new("generated", Flag, |fleet, call| Cell::Flag(head(fleet, call).generated)),
            Self::new("ended_unix_us", Time, |fleet, call| Cell::Whole(ended_us(fleet, call))),
            Self::new("side", Text, |_, call| text(call.row.side.name())),
            Self::new("method", Text, |fleet, call| text(fleet.name(call.method))),
            Self::new("peer", Text, |fleet, call| text(fleet.peer(call))),
            Self::new("code", Text, |_, call| text(call.row.code.name())),
            Self::new("weight", Real, |_, call| Cell::Real(call.weight)),
            Self::new("coverage", Text, |_, call| text(coverage(call.row.components.coverage))),
            Self::new("clipped", Flag, |_, call| Cell::Flag(call.row.components.clipped)),
            Self::new("slow", Flag, |_, call| Cell::Flag(call.row.slow)),
            Self::new("stream", Flag, |_, call| Cell::Flag(call.row.is_stream)),
            Self::new("request_bytes", Whole, |_, call| Cell::Whole(call.row.request_bytes.into())),
            Self::new("response_bytes", Whole, |_, call| Cell::Whole(call.row.response_bytes.into())),
            Self::new("cpu_ns", Whole, |_, call| told(call.row.cpu_ns.into())),
            Self::new("subtree", Whole, |_, call| told(call.row.subtree.into())),
            Self::new("ancestors", Whole, |_, call| whole(call.ancestors.map(u64::from))),
            Self::new("half_width_ns", Whole, |_, call| {
                whole(Some(call.row.half_width_ns).filter(|ns| *ns != u32::MAX).map(u64::from))
            }),
            Self::new("total_ns", Whole, |_, call| Cell::Whole(call.row.components.total_ns())),
        ];
        all.extend(Component::ALL.map(|component| {
            let name = format!("{}_ns", component.label());
            Self::new(&name, Whole, move |_, call| Cell::Whole(call.row.components[component]))
        }));
        all.push(Self::of_trace("trace", Text, |trace| Cell::Text(format!("{:032x}", trace.ids.trace))));
        all.push(Self::of_trace("span", Text, |trace| id(trace.ids.span)));
        all.push(Self::of_trace("parent", Text, |trace| id(trace.ids.parent)));
        all.push(Self::of_trace("attempt", Text, |trace| id(trace.ids.attempt)));
        all.push(Self::of_trace("above", Text, |trace| id(trace.ids.above)));
        all.push(Self::of_trace("tree_weight", Real, |trace| Cell::Real(trace.weight.into())));
        all.extend(STAMPS.map(|name| {
            Self::of_trace(&format!("{name}_ns"), Whole, move |trace| {
                whole(trace.stamps().find(|(known, _)| *known == name).map(|(_, Instant(ns))| ns))
            })
        }));
        all
    }

    /// What a call has in it.
    pub fn cell(&self, fleet: &Fleet, call: &FleetCall) -> Cell {
        (self.value)(fleet, call)
    }

    fn new(name: &str, kind: ColumnKind, value: impl Fn(&Fleet, &FleetCall) -> Cell + 'static) -> Self {
        Self { name: name.to_owned(), kind, value: Box::new(value) }
    }

    /// Of calls that belong to a trace.
    fn of_trace(name: &str, kind: ColumnKind, value: impl Fn(&RecordedTrace) -> Cell + 'static) -> Self {
        Self::new(name, kind, move |fleet, call| {
            let traced = call.trace.and_then(|number| fleet.traces.get(number as usize));
            traced.map_or(Cell::Nothing, |traced| value(&traced.trace))
        })
    }
}

fn head<'a>(fleet: &'a Fleet, call: &FleetCall) -> &'a crate::block::BlockHead {
    &fleet.heads[call.block as usize]
}

fn text(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

fn whole(number: Option<u64>) -> Cell {
    number.map_or(Cell::Nothing, Cell::Whole)
}

/// Zero says that nobody told.
fn told(number: u64) -> Cell {
    whole((number != 0).then_some(number))
}

fn id(id: u64) -> Cell {
    if id == 0 { Cell::Nothing } else { Cell::Text(format!("{id:016x}")) }
}

/// The name of a coverage.
pub(super) fn coverage(coverage: Coverage) -> &'static str {
    match coverage {
        Coverage::Whole => "whole",
        Coverage::ClientOnly => "client_only",
        Coverage::ServerOnly => "server_only",
        Coverage::OneHost => "one_host",
        Coverage::Stayed => "stayed",
    }
}
