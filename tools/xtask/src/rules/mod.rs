//! The rules, one file each, from the structure of the workspace down to the words on the page.

pub mod documents;
pub mod essay;
pub mod glossary;
pub mod layers;
pub mod messages;
pub mod ordering;
pub mod pages;
pub mod purity;
pub mod size;
pub mod structure;
pub mod unsafe_code;
pub mod wording;
pub mod words;

mod all;

pub use all::{check, measures};
