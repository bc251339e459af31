//! How long real queries take: every heading and every first sentence of this repository's documents, asked of an index
//! of the repository, each as often as it takes to see its own time without the machine's. Prints 1,000 quantiles in
//! nanoseconds, for `tools/bench/src/search_times.txt`.
//!
//! `cargo run --release -p trunkline-example-search --example query_times FOLDER`

use std::path::PathBuf;
use std::time::Instant;
use trunkline_example_search::{Collection, Found, Query, folder};

/// Looks at one query; the fastest counts.
const LOOKS: usize = 5;
/// Words of a query.
const WORDS_MAX: usize = 4;
/// Hits shown, with their snippets.
const HITS: usize = 10;
const QUANTILES: usize = 1000;

fn main() -> std::io::Result<()> {
    let root = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    let files = folder::text_files(&root)?;
    let documents: Vec<_> = files.iter().filter_map(|file| folder::read(&root, file)).collect();
    let queries: Vec<Query> = documents.iter().flat_map(|document| queries_of(&document.text)).collect();
    let collection = Collection::default();
    collection.add(documents);
    let index = collection.index();
    let mut times: Vec<u64> = queries
        .iter()
        .map(|query| {
            let look = || {
                let began = Instant::now();
                let found = Found::search(index.clone(), query.clone());
                std::hint::black_box(found.hits(0, HITS).count());
                began.elapsed().as_nanos() as u64
            };
            (0..LOOKS).map(|_| look()).min().unwrap_or(0)
        })
        .collect();
    times.sort_unstable();
    for quantile in 0..QUANTILES {
        println!("{}", times[(2 * quantile + 1) * times.len() / (2 * QUANTILES)]);
    }
    Ok(())
}

/// The headings and first sentences of a document, cut to the length of what people type.
fn queries_of(text: &str) -> Vec<Query> {
    let said = text.lines().filter_map(|line| line.strip_prefix("//! ").or_else(|| line.strip_prefix('#')));
    let cut = said.map(|line| {
        let words = line.split(|letter: char| !letter.is_alphanumeric()).filter(|word| word.len() > 2);
        words.take(WORDS_MAX).collect::<Vec<_>>().join(" ")
    });
    cut.filter_map(|words| Query::parse(&words).ok()).collect()
}
