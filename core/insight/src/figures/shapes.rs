//! Figures 4 and 5: calls below a call and above it.

use super::{Drawing, over_methods, too_few};
use crate::fleet::Fleet;
use crate::words::short;

pub(super) fn descendants(fleet: &Fleet) -> Drawing {
    if fleet.each_once().all(|call| call.row.subtree == 0) {
        return Drawing::Missing(
            "not measured here, because no server said how many calls there were below its own".into(),
        );
    }
    // The server counts its own call.
    let below = |subtree: u32| (subtree > 0).then(|| f64::from(subtree - 1));
    let methods = fleet.by_method(fleet.good(), |call| below(call.row.subtree));
    if methods.is_empty() {
        return too_few(fleet);
    }
    let said = format!("{} methods; zero has no place on the axis.", methods.len());
    Drawing::Charts(over_methods(methods, "calls below", short), vec![said])
}

pub(super) fn ancestors(fleet: &Fleet) -> Drawing {
    if fleet.each_once().all(|call| call.ancestors.is_none()) {
        let why = "not measured here, because no tree of calls was recorded from its first call on: it takes the key \
                   recorder.traces on every host, and a recording of each";
        return Drawing::Missing(why.into());
    }
    let methods = fleet.above_by_method();
    if methods.is_empty() {
        return too_few(fleet);
    }
    let said = format!("{} methods; zero has no place on the axis.", methods.len());
    Drawing::Charts(over_methods(methods, "calls above", short), vec![said])
}
