//! Calls of one kind by many peers: latency, rate, goodput, gRPC's, mRPC's and HPRPC's figures. Which, with what
//! orders, by whom, is in `studies.toml`.

use super::data::CallsData;
use crate::harness::children::Failure;
use crate::harness::orders::Order;
use crate::harness::rounds::{Entrant, Measured, Plan, Turns};
use crate::harness::work::{Work, named};
use crate::peers::data::{PeerData, peer};
use crate::peers::foreign::Foreign;
use crate::peers::peer::{Peer, Sample};
use crate::report::sheet::{Plot, Results, Row, Sheet};
use trunkline_measure::{Spread, us};

/// What is known of a round.
const FIGURES: [&str; 8] = ["p50 µs", "p99 µs", CPU, CALLS_PER_SECOND, "Gbit/s", "calls", STOLEN, OTHERS];
const CPU: &str = "CPU µs per call, all processes";
const CALLS_PER_SECOND: &str = "calls/s";
/// Of the processors, during a round.
const STOLEN: &str = "given away by the host, %";
const OTHERS: &str = "taken by others, %";

impl CallsData {
    /// Measures it. A peer that fails is absent from then on, with its reason.
    pub fn measure(&self, plan: &Plan, foreign: &Foreign) -> Result<Results, Failure> {
        let mut turns = Turns::new(&self.name, plan);
        let outstanding = self.orders.first().map_or(1, |(_, outstanding)| *outstanding);
        let mut peers = turns.start(self.peers.iter().map(|name| (name, name)), |name| {
            let peer = peer(name)?;
            Peer::start(peer, self.work_of(peer)?, outstanding, self.clients.unwrap_or(1), foreign)
        });
        let mut sheet = self.sheet();
        for (place, (request_bytes, outstanding)) in self.orders.iter().copied().enumerate() {
            let order = Order { millis: plan.round_millis, request_bytes, outstanding };
            let can = |name: &str| self.size_max.get(name).is_none_or(|most| request_bytes <= *most);
            peers.retain(|peer| can(&peer.name));
            let rows = self.rounds(&mut turns, plan, order, &mut peers);
            self.keep(&mut sheet, rows, place);
        }
        sheet.rows.sort_by_key(|row| self.peers.iter().position(|name| *name == row.name));
        sheet.notes.extend(quiet(&sheet));
        Ok(Results { sheets: vec![sheet], absent: turns.absent })
    }

    /// What its peers call.
    fn work_of(&self, peer: &PeerData) -> Result<Work, Failure> {
        match self.work.as_deref().map_or(Ok(Work::Bytes), named)? {
            Work::Open if peer.refuses => Ok(Work::Guarded),
            work => Ok(work),
        }
    }

    fn rounds(
        &self,
        turns: &mut Turns<'_>,
        plan: &Plan,
        order: Order,
        peers: &mut Vec<Entrant<Peer>>,
    ) -> Vec<Measured> {
        let slices = plan.slices.max(1);
        let slice = Order { millis: (order.millis / slices as u64).max(1), ..order };
        let first = Order { millis: plan.warm_up_millis * self.warm_up_factor.unwrap_or(1), ..order };
        let warm_up = Order { millis: plan.warm_up_millis.min(slice.millis), ..order };
        // What comes of the first pass is not kept.
        turns.pass(peers, |peer| peer.round(first).and_then(|_| peer.round(order)));
        let turn = |peer: &mut Peer, _| peer.round(warm_up).and_then(|_| peer.round(slice));
        let columns = FIGURES.map(str::to_owned);
        turns.rounds(slices, &columns, peers, turn, |slices| joined(&slices, order.request_bytes))
    }

    /// Puts the rounds of one order where they belong.
    fn keep(&self, sheet: &mut Sheet, rows: Vec<Measured>, place: usize) {
        for (name, values) in rows {
            let row = sheet.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
                let what = self.figure.is_none().then(|| peer(&name).map(|peer| peer.what.clone()));
                let (what, values) = (what.and_then(Result::ok), vec![Vec::new(); sheet.columns.len()]);
                sheet.rows.push(Row { name, what: what.unwrap_or_default(), values });
                sheet.rows.len() - 1
            });
            for (figure, values) in FIGURES.iter().zip(values) {
                let column = self.column(figure, place);
                if let Some(at) = sheet.columns.iter().position(|name| *name == column) {
                    sheet.rows[row].values[at] = values;
                }
            }
        }
    }

    /// The column of a figure of an order.
    fn column(&self, figure: &str, place: usize) -> String {
        match &self.figure {
            None => figure.to_owned(),
            Some(shown) if shown == figure => self.size(place),
            Some(_) => format!("{figure}, {}", self.size(place)),
        }
    }

    /// Its sheet, empty.
    pub fn sheet(&self) -> Sheet {
        let figures: &[&str] = match (&self.figure, self.is_rate) {
            (Some(figure), _) => &[figure.as_str()],
            (None, true) => &[CALLS_PER_SECOND, CPU, "p50 µs", "p99 µs"],
            (None, false) => &["p50 µs", "p99 µs", CPU],
        };
        let columns = |figures: &[&str]| -> Vec<String> {
            let places = 0..if self.figure.is_some() { self.orders.len() } else { 1 };
            figures.iter().flat_map(|figure| places.clone().map(|place| self.column(figure, place))).collect()
        };
        let (mut all, shown) = (columns(figures), columns(figures).len());
        let others: Vec<&str> = FIGURES.into_iter().filter(|figure| !figures.contains(figure)).collect();
        all.extend(columns(&others));
        let bars = if self.is_rate { 2 } else { 3 };
        let plot = if self.figure.is_some() { Plot::OverColumns } else { Plot::Bars(bars) };
        let (key, title) = (self.name.clone(), self.title.clone());
        Sheet { key, title, head: "peer", columns: all, shown, plot, ..Sheet::default() }
    }

    /// The size of an order as its table names it.
    fn size(&self, place: usize) -> String {
        let (bytes, _) = self.orders[place];
        format!("{} {}", if self.unit == "KiB" { bytes >> 10 } else { bytes }, self.unit)
    }
}

/// How quiet the machine was: without it nobody knows what a round is worth.
fn quiet(sheet: &Sheet) -> Option<String> {
    let lost = |of: &str| {
        let columns = sheet.columns.iter().filter(|column| column.starts_with(of));
        Spread::of(columns.flat_map(|column| sheet.column(column)))
    };
    let (stolen, others) = (lost(STOLEN)?, lost(OTHERS)?);
    Some(format!(
        "Meanwhile the machine's host gave {stolen} % of the processors to others, and other processes took {others} %."
    ))
}

/// The figures of a round, from its slices. Quantiles are the medians of theirs.
fn joined(slices: &[Sample], request_bytes: usize) -> Vec<f64> {
    let sum = |of: fn(&Sample) -> u64| slices.iter().map(of).sum::<u64>() as f64;
    let median = |of: fn(&Sample) -> u64| {
        Spread::of(slices.iter().map(|slice| us(of(slice)))).map_or(0.0, |spread| spread.median)
    };
    let mean =
        |of: usize| slices.iter().map(|slice| slice.lost_percent[of]).sum::<f64>() / slices.len() as f64;
    // Counts stay far below the 2⁵³ a float holds.
    let (calls, elapsed_ns) = (sum(|slice| slice.answer.calls), sum(|slice| slice.answer.elapsed_ns));
    vec![
        median(|slice| slice.answer.p50_ns),
        median(|slice| slice.answer.p99_ns),
        sum(|slice| slice.cpu_ns) / 1e3 / calls,
        calls / elapsed_ns * 1e9,
        calls * request_bytes as f64 * 8.0 / elapsed_ns,
        calls,
        mean(0),
        mean(1),
    ]
}

#[cfg(test)]
mod tests {
    //! Every figure of every order has its column, and slices become rounds.
    use super::super::data::STUDIES;
    use super::*;
    use crate::harness::orders::Answer;

    #[test]
    fn figures_have_columns() {
        let of = |name: &str| STUDIES.calls.iter().find(|calls| calls.name == name).unwrap();
        let rate = of("rate").sheet();
        assert_eq!(rate.columns[..rate.shown], ["calls/s", CPU, "p50 µs", "p99 µs"]);
        assert_eq!(rate.columns.len(), FIGURES.len());
        let goodput = of("goodput");
        let mut sheet = goodput.sheet();
        assert_eq!((sheet.shown, sheet.columns.len()), (7, 7 * FIGURES.len()));
        let values = (1..=FIGURES.len()).map(|value| vec![value as f64]).collect();
        goodput.keep(&mut sheet, vec![("tcp".to_owned(), values)], 6);
        assert_eq!(sheet.values("8192 KiB", "tcp"), Some(&[5.0][..]));
        assert_eq!(sheet.values("p50 µs, 8192 KiB", "tcp"), Some(&[1.0][..]));
        assert_eq!(sheet.values("2 KiB", "tcp"), None);
    }

    #[test]
    fn slices_are_joined() {
        let slice = |calls, p50_ns| Sample {
            answer: Answer { calls, elapsed_ns: 1000, p50_ns, p99_ns: 9000 },
            cpu_ns: 6000,
            lost_percent: [0.0, calls as f64],
        };
        let round = joined(&[slice(1, 1000), slice(2, 3000)], 125);
        assert_eq!(round, [2.0, 9.0, 4.0, 1.5e6, 1.5, 3.0, 0.0, 1.5]);
    }
}
