//! Comments from the `.proto` file as doc comments, and attributes that go with them.

use super::writer::{Writer, line};
use crate::model::Notes;

/// The doc comment, or `otherwise` if the declaration has none, and `#[deprecated]`.
pub(super) fn notes(w: &mut Writer, notes: &Notes, otherwise: &str) {
    if notes.docs.is_empty() && !otherwise.is_empty() {
        line!(w, "/// {otherwise}");
    }
    text(w, &notes.docs);
    if notes.deprecated {
        line!(w, "#[deprecated]");
    }
}

/// Lines of a comment as a doc comment that rustdoc takes for prose: what is indented is shown as it stands and not
/// compiled as an example, fences without a language are plain text, and brackets are no links.
pub(super) fn text(w: &mut Writer, lines: &[String]) {
    let mut state = State::Prose;
    for line in lines {
        let next = state.after(line);
        if state == State::Prose && next == State::Indented {
            line!(w, "/// ```text");
        }
        if state == State::Indented && next != State::Indented {
            line!(w, "/// ```");
        }
        match (state, next) {
            (State::Prose, State::Fenced) if line.trim() == "```" => line!(w, "/// ```text"),
            (_, State::Prose) if state != State::Fenced => prose(w, &escaped(line)),
            _ => prose(w, line),
        }
        state = next;
    }
    if state != State::Prose {
        line!(w, "/// ```");
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Prose,
    Indented,
    Fenced,
}

impl State {
    fn after(self, line: &str) -> Self {
        let fence = line.trim_start().starts_with("```");
        match self {
            Self::Fenced if fence => Self::Prose,
            Self::Fenced => Self::Fenced,
            _ if fence => Self::Fenced,
            Self::Indented if line.is_empty() => Self::Indented,
            _ if line.starts_with("    ") || line.starts_with('\t') => Self::Indented,
            _ => Self::Prose,
        }
    }
}

fn prose(w: &mut Writer, line: &str) {
    let line = line.replace(is_refused, "");
    if line.is_empty() { line!(w, "///") } else { line!(w, "/// {line}") }
}

/// What the compiler takes for an error in a comment: a carriage return, and marks that change the direction of text.
fn is_refused(c: char) -> bool {
    matches!(c, '\r' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut code = false;
    for c in line.chars() {
        code ^= c == '`';
        if !code && matches!(c, '[' | ']' | '<' | '>') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    //! Shows that no comment becomes an example, a link or an HTML tag.
    use super::*;

    fn render(comment: &str) -> String {
        let mut w = Writer::default();
        text(&mut w, &comment.lines().map(str::to_owned).collect::<Vec<_>>());
        w.finish()
    }

    #[test]
    fn indented_text_is_fenced() {
        assert_eq!(render("a\n    b\n\nc"), "/// a\n/// ```text\n///     b\n///\n/// ```\n/// c\n");
        assert_eq!(render("    b"), "/// ```text\n///     b\n/// ```\n");
    }

    #[test]
    fn fences_get_a_language_and_are_closed() {
        assert_eq!(render("```\nx [y]\n```\nz"), "/// ```text\n/// x [y]\n/// ```\n/// z\n");
        assert_eq!(render("```json\n{}"), "/// ```json\n/// {}\n/// ```\n");
    }

    #[test]
    fn brackets_are_no_links_except_in_code() {
        assert_eq!(render("see [x] and `[y]` of <T>"), "/// see \\[x\\] and `[y]` of \\<T\\>\n");
    }
}
