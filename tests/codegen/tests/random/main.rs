//! Shows that code generated for random schemas compiles without a warning, whatever things are called and whatever
//! comments say, and that no comment becomes a test.
//!
//! `TRUNKLINE_SCHEMAS=5000 cargo test -p trunkline-codegen-tests --test random` tries more of them, and
//! `TRUNKLINE_SCHEMAS_FROM=1000` others: a schema is its number, everywhere.

mod compile;
mod dice;
mod names;
mod schema;

use compile::Crate;
use trunkline_codegen::{CodegenError, GeneratedFile, Options, generate, module_tree};

/// Schemas of one run, unless the environment says otherwise: seconds.
const SCHEMAS: u64 = 12;
/// rustdoc takes longer than the compiler, and of what comments can do there is a test of its own beside the code that
/// writes them: one schema in so many is documented.
const SCHEMAS_PER_DOCUMENTED: usize = 6;
/// The compiler's time grows with a crate, and nobody reads more of its complaints.
const SCHEMAS_PER_CRATE: usize = 50;

#[test]
fn whatever_things_are_called_the_code_compiles_without_a_warning() {
    each_crate(1, |generated| generated.check());
}

#[test]
fn whatever_comments_say_they_are_no_tests_and_no_warnings() {
    each_crate(SCHEMAS_PER_DOCUMENTED, |generated| {
        generated.document()?;
        let examples = generated.examples()?;
        if examples.is_empty() { Ok(()) } else { Err(examples.join("\n")) }
    });
}

/// Makes crates of every so-manyth schema of this run. A crate with a complaint is kept for whoever is to find out why.
fn each_crate(step: usize, opinion: impl Fn(&Crate) -> Result<(), String>) {
    let first = number("TRUNKLINE_SCHEMAS_FROM", 0);
    let end = first + number("TRUNKLINE_SCHEMAS", SCHEMAS);
    let schemas: Vec<u64> = (first..end).step_by(step).collect();
    for schemas in schemas.chunks(SCHEMAS_PER_CRATE) {
        let folder = tempfile::tempdir().unwrap();
        let mut generated = Crate::new(folder.path());
        schemas.iter().for_each(|&schema| add(&mut generated, schema));
        if let Err(complaint) = opinion(&generated) {
            let kept = folder.keep();
            let start: Vec<&str> = complaint.lines().take(120).collect();
            panic!("schemas {schemas:?}, kept in {}:\n{}", kept.display(), start.join("\n"));
        }
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

fn add(generated: &mut Crate, schema: u64) {
    let set = schema::descriptor_set(schema);
    let mut options = Options::default();
    options.btree_maps(schema % 2 == 1);
    match generate(&set, &[], &options) {
        Ok(files) => {
            let tree = module_tree(&files);
            let named = files.into_iter().map(|GeneratedFile { name, text, .. }| (name, text));
            generated.add(schema, &named.collect::<Vec<_>>(), &tree);
        }
        // One package is called as the file of another.
        Err(CodegenError::SameFile { .. }) => {}
        Err(error) => panic!("schema {schema}: {error}"),
    }
}
