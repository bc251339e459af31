//! The page with every figure.

use crate::figures::{Drawing, basis, figures};
use crate::fleet::Fleet;
use crate::published::{Checked, check_rows, summary};
use trunkline_plot::ChartPage;

/// One HTML page that needs nothing else: figures 1 to 23, or why they are not there; and what
/// was checked.
pub fn report(fleet: &Fleet, checked: &[Checked]) -> String {
    let mut page = ChartPage::new(title(fleet));
    let basis = basis(fleet);
    if fleet.is_generated() {
        page.text(
            "These records were generated from published distributions. Nobody made these calls and nothing here was \
             measured.",
        );
    }
    if let Some(driven) = fleet.driven() {
        page.text(&driven.words());
    }
    page.note(&basis);
    let hosts = fleet.hosts();
    page.note(&format!(
        "{} hosts, {} blocks, {} methods. Every estimate uses the calls' inclusion weights; calls of both ends count \
         once.",
        hosts.len(),
        fleet.heads.len(),
        fleet.methods.len()
    ));
    if !fleet.faults.is_empty() {
        page.note(&format!("Not used: {}.", fleet.faults));
    }
    for figure in figures(fleet) {
        page.heading(2, &format!("Figure {}: {}", figure.number, figure.title));
        match figure.drawing {
            Drawing::Missing(why) => page.missing(&why),
            Drawing::Charts(charts, said) => {
                match charts.iter().all(String::is_empty) {
                    true => page.missing("nothing is drawn here, because every value is zero"),
                    false => page.charts(&charts),
                }
                said.iter().for_each(|words| page.note(words));
                page.note(&basis);
            }
        }
    }
    if !checked.is_empty() {
        page.heading(2, "Targets");
        page.text(&summary(checked));
        page.table(&["figure", "target", "wanted", "got", "distance", ""], &check_rows(checked));
    }
    page.finish()
}

fn title(fleet: &Fleet) -> &'static str {
    match fleet.driven() {
        _ if fleet.is_generated() => "A generated fleet, characterized",
        Some(_) => "Calls made after the shape of others, characterized",
        None => "Calls, characterized",
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a page has all 23 figures, says what it could not read, and needs nothing else.
    use super::*;
    use crate::block::tests::block;

    #[test]
    fn all_figures_are_on_the_page() {
        let mut fleet = Fleet::default();
        fleet.read(&[block("a", 200).encode(), b"x".to_vec()].concat());
        let page = report(&fleet, &[]);
        for number in 1..=23 {
            assert!(page.contains(&format!("id=\"figure-{number}--")), "{number}");
        }
        assert!(
            page.contains("Not used: 1 bytes that belong to no block") && page.contains("n = 200 calls made")
        );
        assert!(
            page.contains("nothing is drawn here, because every value is zero"),
            "its calls took no time"
        );
        assert!(page.contains("not measured here, because") && !page.contains("generated"));
        assert!(!page.contains("<script") && !page.contains("https://"));
    }
}
