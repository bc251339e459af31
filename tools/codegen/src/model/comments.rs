//! Comments by path, from a file's source positions.

use std::collections::HashMap;

use prost_types::SourceCodeInfo;

/// The comments of one file, by the path of the declaration they stand at (descriptor.proto, `SourceCodeInfo`).
#[derive(Default)]
pub(super) struct Comments {
    by_path: HashMap<Vec<i32>, Vec<String>>,
}

impl Comments {
    /// Collects leading and trailing comments. Detached ones belong to no declaration and are left out.
    pub(super) fn of(info: Option<&SourceCodeInfo>) -> Self {
        let mut by_path = HashMap::new();
        for location in info.iter().flat_map(|info| &info.location) {
            let mut lines = lines(location.leading_comments());
            let trailing = self::lines(location.trailing_comments());
            if !lines.is_empty() && !trailing.is_empty() {
                lines.push(String::new());
            }
            lines.extend(trailing);
            if !lines.is_empty() {
                by_path.insert(location.path.clone(), lines);
            }
        }
        Self { by_path }
    }

    /// The comment of the declaration at `path`, line by line.
    pub(super) fn at(&self, path: &[i32]) -> Vec<String> {
        self.by_path.get(path).cloned().unwrap_or_default()
    }
}

/// Splits a comment into lines, without the blank that follows a comment mark and without empty lines at the ends.
fn lines(comment: &str) -> Vec<String> {
    let mut lines: Vec<String> =
        comment.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    let blank = lines.iter().take_while(|line| line.is_empty()).count();
    lines.drain(..blank);
    lines
}

#[cfg(test)]
mod tests {
    //! Shows what of a comment is kept.
    use super::*;

    #[test]
    fn marks_and_blank_edges_go_inner_indentation_stays() {
        assert_eq!(lines(" One.\n\n   two\n\n"), ["One.", "", "  two"]);
        assert_eq!(lines("\n\n"), Vec::<String>::new());
    }
}
