//! What clients were told about their calls: held against what servers did, it shows every false status.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use trunkline::{Execution, Status};

/// A file with a line for each call of which something certain was said.
#[derive(Debug)]
pub struct Ledger {
    /// The error of a line that could not be written is kept for the end.
    out: Mutex<(BufWriter<File>, io::Result<()>)>,
}

const EXECUTED: &str = "executed";
const NOT_EXECUTED: &str = "not-executed";

impl Ledger {
    /// An empty ledger.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { out: Mutex::new((BufWriter::new(File::create(path)?), Ok(()))) })
    }

    /// A call was answered.
    pub fn answered(&self, number: u64) {
        self.write(number, EXECUTED);
    }

    /// A call ended with this status.
    pub fn failed(&self, number: u64, status: &Status) {
        match status.execution() {
            Execution::Executed => self.write(number, EXECUTED),
            Execution::NotExecuted => self.write(number, NOT_EXECUTED),
            Execution::Unknown => {}
        }
    }

    /// Everything is in the file.
    ///
    /// # Errors
    /// If a line could not be written.
    pub fn finish(&self) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let written = std::mem::replace(&mut out.1, Ok(()));
        written.and(out.0.flush())
    }

    fn write(&self, number: u64, word: &str) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = writeln!(out.0, "{number} {word}") {
            out.1 = Err(error);
        }
    }
}

/// Holds what clients were told (`ledger`) against the numbers of the calls that servers executed (`log`). How many
/// statements were compared.
///
/// # Errors
/// The first statement that is not true, or a line that is none.
pub fn compare(ledger: &str, log: &str) -> Result<usize, String> {
    let mut executed = HashSet::new();
    for line in log.lines() {
        let number: u64 = line.parse().map_err(|_| format!("not a number in the log: {line:?}"))?;
        if !executed.insert(number) {
            return Err(format!("call {number} was executed twice"));
        }
    }
    let mut statements = 0;
    for line in ledger.lines() {
        let (number, word) = line.split_once(' ').ok_or(format!("not a line of a ledger: {line:?}"))?;
        let number: u64 = number.parse().map_err(|_| format!("not a number: {line:?}"))?;
        match (word, executed.contains(&number)) {
            (EXECUTED, false) => {
                return Err(format!("call {number} is said to have been executed, and was not"));
            }
            (NOT_EXECUTED, true) => {
                return Err(format!("call {number} is said not to have been executed, and was"));
            }
            _ => statements += 1,
        }
    }
    Ok(statements)
}

#[cfg(test)]
mod tests {
    //! Shows that every kind of false statement is found.
    use super::*;

    #[test]
    fn false_statements_are_found() {
        assert_eq!(compare("1 executed\n2 not-executed\n", "3\n1\n"), Ok(2));
        assert!(compare("1 executed\n", "2\n").is_err());
        assert!(compare("1 not-executed\n", "1\n").is_err());
        assert!(compare("", "1\n1\n").is_err(), "twice");
    }
}
