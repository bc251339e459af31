//! What was found, and how it is shown.

use crate::table::count;
use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Good,
    /// Works, and would work better otherwise; or is worth knowing.
    Advice,
    /// Does not work, or will not for long.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about: socket, environment, rights, limits, kernel, certificates, configuration, clock.
    pub area: &'static str,
    /// How bad it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do; empty if it is good.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Finding {
    /// As it should be.
    pub fn good(area: &'static str, found: impl Into<String>) -> Self {
        Self { area, state: State::Good, found: found.into(), remedy: String::new() }
    }

    /// Worth knowing.
    pub fn advice(area: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { area, state: State::Advice, found: found.into(), remedy: remedy.into() }
    }

    /// Does not work.
    pub fn problem(area: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { area, state: State::Problem, found: found.into(), remedy: remedy.into() }
    }
}

/// All findings, a line or two each, and their sum.
pub fn render(findings: &[Finding]) -> String {
    let mut out = String::new();
    for Finding { area, state, found, remedy } in findings {
        let state = match state {
            State::Good => "ok",
            State::Advice => "advice",
            State::Problem => "PROBLEM",
        };
        out.push_str(&format!("{state:<8} {area:<14} {found}\n"));
        if !remedy.is_empty() {
            out.push_str(&format!("{:<23} -> {remedy}\n", ""));
        }
    }
    let number = |wanted| findings.iter().filter(|finding| finding.state == wanted).count() as u64;
    let advice = match number(State::Advice) {
        0 => String::new(),
        1 => ", 1 piece of advice".to_owned(),
        more => format!(", {more} pieces of advice"),
    };
    out.push_str(&match number(State::Problem) {
        0 => format!("no problem{advice}\n"),
        problems => format!("{}{advice}\n", count(problems, "problem")),
    });
    out
}

/// Whether something does not work.
pub fn has_problem(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.state == State::Problem)
}

#[cfg(test)]
mod tests {
    //! Shows what is printed.
    use super::*;

    #[test]
    fn findings_are_lines_with_a_sum() {
        let findings = [
            Finding::good("clock", "reads tsc"),
            Finding::advice("limits", "1024 descriptors", "raise them"),
            Finding::problem("socket", "nobody listens", "start the daemon"),
        ];
        assert_eq!(
            render(&findings),
            "ok       clock          reads tsc\n\
             advice   limits         1024 descriptors\n                        -> raise them\n\
             PROBLEM  socket         nobody listens\n                        -> start the daemon\n\
             1 problem, 1 piece of advice\n"
        );
        assert!(has_problem(&findings) && !has_problem(&findings[..2]));
        assert!(render(&findings[..1]).ends_with("\nno problem\n"));
    }
}
