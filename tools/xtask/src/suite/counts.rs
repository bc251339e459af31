//! What test programs say of themselves, line by line.

/// What test programs said of themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub programs: usize,
    pub passed: usize,
    pub failed: usize,
    /// Programs that began to run their tests.
    begun: usize,
    /// Tests that failed.
    names: Vec<String>,
}

impl Counts {
    /// Reads `test result: ok. 24 passed; 0 failed; …`, `running 24 tests` and `test NAME ... FAILED`; others count
    /// for nothing.
    pub fn add(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.names.push(name.trim_end_matches(" - should panic").to_owned());
        }
        self.begun +=
            usize::from(line.starts_with("running ") && line.trim_end_matches('s').ends_with(" test"));
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let number = |word: &str| {
            let part = result.split(['.', ';']).find(|part| part.trim_end().ends_with(word))?;
            part.split_whitespace().next()?.parse::<usize>().ok()
        };
        self.programs += 1;
        self.passed += number(" passed").unwrap_or(0);
        self.failed += number(" failed").unwrap_or(0);
    }

    /// Adds what other programs said.
    pub fn join(&mut self, other: &Self) {
        self.programs += other.programs;
        self.passed += other.passed;
        self.failed += other.failed;
        self.begun += other.begun;
        self.names.extend(other.names.iter().cloned());
    }

    /// The tests that failed, if they are all that went wrong and no more than `max`: a program that died names none.
    pub fn to_try_again(&self, max: usize) -> Option<Vec<String>> {
        let all_ended = self.begun == self.programs && self.failed == self.names.len();
        (all_ended && (1..=max).contains(&self.failed)).then(|| self.names.clone())
    }
}

#[cfg(test)]
mod tests {
    //! Shows how results are counted, and when it is known which tests are all that went wrong.
    use super::*;

    fn after(lines: &[&str]) -> Counts {
        let mut counts = Counts::default();
        lines.iter().for_each(|line| counts.add(line));
        counts
    }

    #[test]
    fn results_are_counted() {
        let counts = after(&[
            "running 24 tests",
            "test result: ok. 24 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.05s",
            "running 4 tests",
            "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
        ]);
        assert_eq!((counts.programs, counts.passed, counts.failed), (2, 27, 1));
        assert_eq!(counts.to_try_again(3), None, "it was not said which");
    }

    #[test]
    fn failed_tests_are_named() {
        let one = ["running 1 test", "test a::b ... FAILED", "test result: FAILED. 0 passed; 1 failed;"];
        assert_eq!(after(&one).to_try_again(1), Some(vec!["a::b".to_owned()]));
        let two: Vec<_> = one.into_iter().chain(one).collect();
        assert_eq!(after(&two).to_try_again(1), None, "more than one");
        assert_eq!(after(&one[..2]).to_try_again(1), None, "the program died");
        assert_eq!(after(&[]).to_try_again(1), None, "it was not built");
    }
}
