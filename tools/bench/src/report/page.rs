//! The report as one page that needs nothing else: marks, plots, tables.

use super::marks::Mark;
use super::plots::{escape, plots};
use super::sheet::Sheet;
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto}\
 table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}\
 .yes{color:#176b2c}.no{color:#a01515;font-weight:600}svg{display:block;margin:.5rem 0 1.5rem}\
 svg text{font:12px system-ui,sans-serif;fill:#222}footer{color:#666;font-size:13px}";

/// The page; `about` are the lines that are said of the run, below everything.
pub fn page(of_run: &[Mark], sheets: &[Sheet], about: &[String]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Trunkline measured</title>\
         <style>{STYLE}</style><h1>Trunkline measured</h1>{}",
        marks(of_run)
    );
    for sheet in sheets {
        page += &format!("<h2>{}</h2>{}", escape(&sheet.title), plots(sheet));
        let table = sheet.markdown();
        let table = table.split_once("\n\n").map_or("", |(_, table)| table);
        page += &format!("<details><summary>figures</summary><pre>{}</pre></details>", escape(table));
    }
    let about: String = about.iter().map(|line| format!("<p>{}</p>", escape(line))).collect();
    page + &format!("<footer>{about}</footer></html>\n")
}

fn marks(marks: &[Mark]) -> String {
    let mut table = "<table><tr><th>target<th>what<th>wanted<th>median (least–most)<th></tr>".to_owned();
    for mark in marks {
        let Mark { target, what, wanted, measured, reached } = mark;
        let class = reached.map_or("", |reached| if reached { "yes" } else { "no" });
        // Writing to a string does not fail.
        let _ = write!(
            table,
            "<tr><td>{target}<td>{}<td>{wanted}<td>{measured}<td class={class}>{}</tr>",
            escape(what),
            mark.verdict()
        );
    }
    table + "</table>"
}
