//! Comments.

use crate::model::Notes;
use std::fmt::Write;

pub(super) fn comment(notes: &Notes, indent: &str) -> String {
    let mut out = String::new();
    for text in &notes.docs {
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        let _ = writeln!(out, "{}", format!("{indent}# {text}").trim_end());
    }
    if notes.deprecated {
        let _ = writeln!(out, "{indent}# Deprecated.");
    }
    out
}
