//! Every rule over the whole tree.

use super::{documents, essay, floors, messages, ordering, pages, purity, size, unsafe_code, wording};
use crate::rooms::Room;
use crate::{Finding, Tree};

/// All findings, by place.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let rooms = Room::all(tree);
    let mut findings = Vec::new();
    findings.extend(floors::check(tree, &rooms));
    findings.extend(unsafe_code::check(tree, &rooms));
    findings.extend(ordering::check(tree));
    findings.extend(purity::check(tree, &rooms));
    findings.extend(essay::check(tree, &rooms));
    findings.extend(size::check(tree));
    findings.extend(wording::check(tree));
    findings.extend(documents::check(tree, &rooms));
    findings.extend(messages::check(tree));
    findings.extend(pages::check(tree));
    findings.sort();
    findings
}
