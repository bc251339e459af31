//! Every rule over the whole tree.

use super::{
    documents, essay, glossary, layers, messages, ordering, pages, purity, size, structure, unsafe_code,
    wording, words,
};
use crate::packages::Package;
use crate::ratchet::Measure;
use crate::{Finding, Tree, life};

/// All findings, by place.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let packages = Package::all(tree);
    let mut findings = Vec::new();
    findings.extend(layers::check(tree, &packages));
    findings.extend(unsafe_code::check(tree, &packages));
    findings.extend(ordering::check(tree));
    findings.extend(purity::check(tree, &packages));
    findings.extend(essay::check(tree, &packages));
    findings.extend(measures(tree, &packages).iter().flat_map(|measure| measure.check(tree)));
    findings.extend(wording::check(tree));
    findings.extend(documents::check(tree, &packages));
    findings.extend(glossary::check(tree));
    findings.extend(messages::check(tree));
    findings.extend(pages::check(tree));
    findings.extend(life::check(tree));
    findings.sort();
    findings
}

/// What is counted, and listed in the ratchet where there is too much of it.
pub fn measures(tree: &Tree, packages: &[Package<'_>]) -> Vec<Measure> {
    let found = size::measures(tree).into_iter().chain(structure::measures(tree, packages));
    found.chain([words::measure(tree, packages)]).collect()
}
