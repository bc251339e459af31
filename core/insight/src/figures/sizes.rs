//! Figures 6 and 7: sizes of messages.

use super::{Drawing, over_methods, too_few};
use crate::fleet::Fleet;
use crate::words::{bytes, short};

pub(super) fn by_method(fleet: &Fleet) -> Drawing {
    let requests = fleet.by_method(fleet.good(), |call| Some(call.row.request_bytes.into()));
    let responses = fleet.by_method(fleet.good(), |call| Some(call.row.response_bytes.into()));
    if requests.is_empty() {
        return too_few(fleet);
    }
    let said = format!("{} methods; bytes of messages as applications gave them.", requests.len());
    let mut charts = over_methods(requests, "request", bytes);
    charts.extend(over_methods(responses, "response", bytes));
    Drawing::Charts(charts, vec![said])
}

pub(super) fn ratio(fleet: &Fleet) -> Drawing {
    let ratio = |request: u32, response: u32| (request > 0).then(|| f64::from(response) / f64::from(request));
    let methods =
        fleet.by_method(fleet.good(), |call| ratio(call.row.request_bytes, call.row.response_bytes));
    if methods.is_empty() {
        return too_few(fleet);
    }
    let below = methods.iter().filter(|one| one.values.quantile(0.5) < 1.0).count();
    let said = format!("The median is below 1 for {below} of {} methods.", methods.len());
    Drawing::Charts(over_methods(methods, "response ÷ request", short), vec![said])
}
