//! The report as one page that needs nothing else: marks, plots, tables.

use super::marks::Mark;
use super::plots::plots;
use super::sheet::Sheet;
use std::fmt::Write;
use trunkline_plot::{ChartPage, escape};

/// The page; `about` are the lines that are said of the run, below everything.
pub fn page(of_run: &[Mark], sheets: &[Sheet], about: &[String]) -> String {
    let mut page = ChartPage::new("Trunkline measured");
    page.raw(&marks(of_run));
    for sheet in sheets {
        page.heading(2, &sheet.title);
        for (title, plot) in plots(sheet) {
            if !title.is_empty() {
                page.heading(3, &title);
            }
            page.charts(&[plot]);
        }
        let table = sheet.markdown();
        page.details("figures", table.split_once("\n\n").map_or("", |(_, table)| table));
    }
    about.iter().for_each(|line| page.note(line));
    page.finish()
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
    table + "</table>\n"
}
