//! Breaks comment lines that are too long, so that nobody has to by hand.

use crate::rules::wording::LINE_CHARS_MAX;
use std::collections::VecDeque;

/// The text with every too long comment line broken at a space, its overflow carried into the lines below. Tables, code
/// in comments and comments behind code are left alone.
pub fn rewrap(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut fenced = false;
    let mut lines: VecDeque<String> = text.lines().map(str::to_owned).collect();
    while let Some(line) = lines.pop_front() {
        let Some(comment) = Comment::of(&line) else {
            out.push_str(&line);
            out.push('\n');
            continue;
        };
        fenced ^= comment.words.starts_with("```");
        match comment.split().filter(|_| !fenced) {
            Some((kept, overflow)) => {
                out.push_str(&kept);
                carry(&comment, &overflow, &mut lines);
            }
            None => out.push_str(&line),
        }
        out.push('\n');
    }
    out
}

/// Puts words in front of the next line's if that goes on with the same paragraph, else on a line of their own.
fn carry(from: &Comment, overflow: &str, lines: &mut VecDeque<String>) {
    let lead = format!("{}{}", from.mark, " ".repeat(from.hanging()));
    let goes_on = lines.front().and_then(|next| Comment::of(next)).is_some_and(|next| {
        let same = next.mark == from.mark && next.indent == from.hanging();
        same && !next.words.is_empty() && next.bullet() == 0 && !next.is_verbatim()
    });
    let next = if goes_on { lines.pop_front() } else { None };
    let rest = next.as_deref().and_then(Comment::of).map_or(String::new(), |next| format!(" {}", next.words));
    lines.push_front(format!("{lead}{overflow}{rest}"));
}

/// A line that is a comment and nothing else.
struct Comment<'a> {
    /// Up to and with the slashes and one space.
    mark: String,
    /// Spaces between the mark and the words.
    indent: usize,
    words: &'a str,
}

impl<'a> Comment<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let text = line.trim_start();
        let slashes = ["//!", "///", "//"].into_iter().find(|mark| text.starts_with(mark))?;
        let body = &text[slashes.len()..];
        let words = body.trim_start();
        let indent = (body.len() - words.len()).saturating_sub(1);
        let mark = format!("{}{slashes} ", &line[..line.len() - text.len()]);
        Some(Self { mark, indent, words })
    }

    /// What fits and what does not, if it is too long and may be broken.
    fn split(&self) -> Option<(String, String)> {
        let line = format!("{}{}{}", self.mark, " ".repeat(self.indent), self.words);
        if line.chars().count() <= LINE_CHARS_MAX || self.is_verbatim() {
            return None;
        }
        let start = line.len() - self.words.len();
        let end = line.char_indices().nth(LINE_CHARS_MAX)?.0;
        let space = line[start..=end].rfind(' ').filter(|at| *at > 0)? + start;
        Some((line[..space].to_owned(), line[space + 1..].to_owned()))
    }

    /// Width of a list mark.
    fn bullet(&self) -> usize {
        let digits = self.words.len() - self.words.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match &self.words[digits..] {
            rest if digits == 0 && (rest.starts_with("* ") || rest.starts_with("- ")) => 2,
            rest if digits > 0 && rest.starts_with(". ") => digits + 2,
            _ => 0,
        }
    }

    /// Spaces in front of the words of a line that goes on with this one's paragraph.
    fn hanging(&self) -> usize {
        self.indent + self.bullet()
    }

    fn is_verbatim(&self) -> bool {
        self.words.starts_with(['|', '#']) || self.words.starts_with("```")
    }
}

#[cfg(test)]
mod tests {
    //! Shows that words move on within their paragraph, and that nothing else moves.
    use super::*;

    fn words(n: usize) -> String {
        "word ".repeat(n).trim_end().to_owned()
    }

    #[test]
    fn overflow_joins_the_paragraph() {
        let text = format!("    /// {} end.\n    /// Next line.\n    fn f() {{}}\n", words(23));
        let expected = format!("    /// {}\n    /// word end. Next line.\n    fn f() {{}}\n", words(22));
        assert_eq!(rewrap(&text), expected);
        assert_eq!(rewrap(&expected), expected);
    }

    #[test]
    fn list_items_hang() {
        let text = format!("//! * {} end.\n//! * Other.\n", words(23));
        assert_eq!(rewrap(&text), format!("//! * {}\n//!   end.\n//! * Other.\n", words(23)));
    }

    #[test]
    fn tables_code_and_fences_stay() {
        let long = words(40);
        for text in [
            format!("//! | {long} |\n"),
            format!("// ```\n// {long}\n// ```\n"),
            format!("let a = 1; // {long}\n"),
        ] {
            assert_eq!(rewrap(&text), text);
        }
    }
}
