//! Every rule over the whole tree.

use super::{documents, essay, layers, messages, ordering, pages, purity, size, unsafe_code, wording};
use crate::packages::Package;
use crate::{Finding, Tree};

/// All findings, by place.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let packages = Package::all(tree);
    let mut findings = Vec::new();
    findings.extend(layers::check(tree, &packages));
    findings.extend(unsafe_code::check(tree, &packages));
    findings.extend(ordering::check(tree));
    findings.extend(purity::check(tree, &packages));
    findings.extend(essay::check(tree, &packages));
    findings.extend(size::check(tree));
    findings.extend(wording::check(tree));
    findings.extend(documents::check(tree, &packages));
    findings.extend(messages::check(tree));
    findings.extend(pages::check(tree));
    findings.sort();
    findings
}
