//! Comments from the `.proto` file as doc comments, and attributes that go with them.
//!
//! A comment is text by somebody who did not think of rustdoc, so nothing in it may become a test, a link to a Rust
//! item, an HTML tag or a warning. Three things of markdown are kept: paragraphs with their lists and headings, code
//! between backticks on one line, and web addresses. What is fenced or indented is shown as it stands, in a fence of
//! our own that says `text`.

use super::writer::{Writer, line};
use crate::model::Notes;

/// Columns of indentation that make markdown take text for code.
const CODE_COLUMNS: usize = 4;
/// Backticks or tildes that open a fence.
const FENCE_MARKS: usize = 3;

/// The doc comment, or `otherwise` if the declaration has none, and `#[deprecated]`.
pub(super) fn notes(w: &mut Writer, notes: &Notes, otherwise: &str) {
    let docs = text(&notes.docs);
    if docs.is_empty() && !otherwise.is_empty() {
        line!(w, "/// {otherwise}");
    }
    for line in docs {
        if line.is_empty() { line!(w, "///") } else { line!(w, "/// {line}") }
    }
    if notes.deprecated {
        line!(w, "#[deprecated]");
    }
}

/// Lines of a comment as those of a doc comment that rustdoc takes for prose; none if nothing is left to be read.
fn text(lines: &[String]) -> Vec<String> {
    let out = &mut Vec::new();
    let mut state = State::Prose;
    let mut verbatim: Vec<String> = Vec::new();
    // Where the text of the list item that is being written begins; 0 outside of one.
    let mut item = 0;
    for line in lines {
        let line = cleaned(line);
        let next = state.after(&line);
        match (state, next) {
            // The comment's own fences, which ours replace.
            (State::Fenced(..), State::Prose) => fence(out, &mut verbatim),
            (State::Fenced(..), _) => verbatim.push(line),
            (_, State::Fenced(..)) => fence(out, &mut verbatim),
            (_, State::Indented) => verbatim.push(line),
            (_, State::Prose) => {
                fence(out, &mut verbatim);
                let text = prose(&line);
                match item_columns(&text) {
                    // What goes on stands below its beginning.
                    0 if item > 0 && !text.is_empty() => {
                        out.push(format!("{}{}", " ".repeat(item), text.trim_start()));
                    }
                    columns => {
                        item = columns;
                        out.push(text);
                    }
                }
            }
        }
        item = if next == State::Prose { item } else { 0 };
        state = next;
    }
    fence(out, &mut verbatim);
    let end = out.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    out.truncate(end);
    let blank = out.iter().take_while(|line| line.is_empty()).count();
    out.split_off(blank)
}

/// Where in a comment a line stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Prose,
    Indented,
    /// Within a fence of so many of this mark.
    Fenced(char, usize),
}

impl State {
    /// The state of `line`, or after it if it is a fence.
    fn after(self, line: &str) -> Self {
        let text = line.trim_start_matches(' ');
        let mark = text.chars().next().unwrap_or_default();
        let marks = text.chars().take_while(|&c| c == mark).count();
        let rest = text.get(marks..).unwrap_or_default();
        match self {
            Self::Fenced(open, count) if mark == open && marks >= count && rest.is_empty() => Self::Prose,
            Self::Fenced(..) => self,
            _ if mark == '~' && marks >= FENCE_MARKS => Self::Fenced(mark, marks),
            _ if mark == '`' && marks >= FENCE_MARKS && !rest.contains('`') => Self::Fenced(mark, marks),
            Self::Indented if text.is_empty() => Self::Indented,
            _ if !text.is_empty() && line.len() - text.len() >= CODE_COLUMNS => Self::Indented,
            _ => Self::Prose,
        }
    }
}

/// The line without what the compiler or the writer takes for more than text: control characters and marks that change
/// the direction of text. A tab is blanks up to the next stop.
fn cleaned(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut columns = 0;
    for c in line.chars() {
        match c {
            '\t' => {
                let blanks = CODE_COLUMNS - columns % CODE_COLUMNS;
                out.extend(std::iter::repeat_n(' ', blanks));
                columns += blanks;
            }
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            _ if c.is_control() => {}
            _ => {
                out.push(c);
                columns += 1;
            }
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Columns in front of the text of a list item, its marks included; 0 if the line begins none.
fn item_columns(line: &str) -> usize {
    let is_rule = |mark: char| line.matches(mark).count() >= 3 && line.chars().all(|c| c == mark || c == ' ');
    if ['-', '*', '_'].into_iter().any(is_rule) {
        return 0;
    }
    let mut rest = line.trim_start_matches(' ');
    let mut marked = false;
    loop {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let marks: &[char] = if digits > 0 { &['.', ')'] } else { &['-', '*', '+'] };
        let Some(text) = rest.get(digits..).and_then(|rest| rest.strip_prefix(marks)) else { break };
        match text.strip_prefix(' ') {
            Some(text) => rest = text,
            None if text.is_empty() => rest = text,
            None => break,
        }
        marked = true;
    }
    // An item without text begins behind one blank.
    let empty = usize::from(rest.is_empty());
    if marked { line.len() - rest.len() + empty } else { 0 }
}

/// Writes the lines between fences longer than any within, and forgets them.
fn fence(out: &mut Vec<String>, lines: &mut Vec<String>) {
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    if lines.is_empty() {
        return;
    }
    let longest = lines.iter().flat_map(|line| line.split(|c| c != '`')).map(str::len).max().unwrap_or(0);
    let marks = "`".repeat(FENCE_MARKS.max(longest + 1));
    out.push(format!("{marks}text"));
    out.append(lines);
    out.push(marks);
}

/// A line of a paragraph with everything escaped that could be more than text.
fn prose(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    // One blank between words: more of them after the mark of a list would be indentation of its text.
    let text = words.join(" ");
    let mut out = " ".repeat(indent.min(CODE_COLUMNS - 1));
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '`' => backticks(rest, &mut out),
            '\\' => backslash(rest, &mut out),
            'h' | '<' => address(rest, &mut out),
            '~' if rest.starts_with("~~") => repeated(rest, '~', &mut out),
            _ => 0,
        };
        if taken == 0 {
            if matches!(c, '[' | ']' | '<' | '>' | '|') {
                out.push('\\');
            }
            out.push(c);
        }
        rest = &rest[if taken == 0 { c.len_utf8() } else { taken }..];
    }
    out
}

/// Code up to the same number of backticks on the same line; escaped backticks if there is no such end.
fn backticks(text: &str, out: &mut String) -> usize {
    let marks = text.len() - text.trim_start_matches('`').len();
    let (mark, rest) = text.split_at(marks);
    let mut ends = rest.match_indices(mark).map(|(at, _)| at);
    let end = ends.find(|&at| !rest[..at].ends_with('`') && !rest[at + marks..].starts_with('`'));
    match end.filter(|&end| marks < FENCE_MARKS && !rest[..end].ends_with('\\')) {
        Some(end) => {
            out.push_str(&text[..marks + end + marks]);
            marks + end + marks
        }
        None => repeated(text, '`', out),
    }
}

/// All of a run of `mark`, each escaped.
fn repeated(text: &str, mark: char, out: &mut String) -> usize {
    let run = text.chars().take_while(|&c| c == mark).count();
    out.extend(std::iter::repeat_n(['\\', mark], run).flatten());
    run
}

/// A mark that the comment itself has escaped, or a backslash that escapes nothing, whatever comes to stand behind it.
fn backslash(text: &str, out: &mut String) -> usize {
    match text.chars().nth(1).filter(char::is_ascii_punctuation) {
        Some(mark) => {
            out.extend(['\\', mark]);
            2
        }
        None => repeated(&text[..1], '\\', out),
    }
}

/// A web address, between angle brackets so that rustdoc takes it for one. Nothing if there is none.
fn address(text: &str, out: &mut String) -> usize {
    let bracket = usize::from(text.starts_with('<'));
    let text = &text[bracket..];
    let Some(scheme) = ["https://", "http://"].into_iter().find(|scheme| text.starts_with(scheme)) else {
        return 0;
    };
    let is_end = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '`' | '\\' | '"' | '|');
    let whole = text.split(is_end).next().unwrap_or_default();
    let closed = bracket == 1 && text[whole.len()..].starts_with('>');
    let url = if closed { whole } else { whole.trim_end_matches(is_sentence_mark) };
    if url.len() <= scheme.len() || (bracket == 1 && !closed) {
        return 0;
    }
    out.extend(["<", url, ">"]);
    url.len() + 2 * bracket
}

/// What follows an address in a sentence more often than it ends one.
fn is_sentence_mark(c: char) -> bool {
    matches!(c, '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '*' | '_' | ')' | ']' | '}')
}

#[cfg(test)]
mod tests {
    //! Shows that no comment becomes an example, a link or an HTML tag: what rustdoc's own parser of markdown finds.
    use super::*;
    use proptest::prelude::*;
    use pulldown_cmark::{CodeBlockKind, Event, LinkType, Options, Parser, Tag};

    fn render(comment: &str) -> String {
        let mut w = Writer::default();
        let docs = comment.lines().map(str::to_owned).collect();
        notes(&mut w, &Notes { docs, deprecated: false }, "");
        w.finish()
    }

    #[test]
    fn indented_text_is_fenced() {
        assert_eq!(render("a\n    b\n\nc"), "/// a\n/// ```text\n///     b\n/// ```\n/// c\n");
        assert_eq!(render("    b"), "/// ```text\n///     b\n/// ```\n");
        assert_eq!(render(" \tb"), render("    b"));
    }

    #[test]
    fn fences_say_text_and_are_closed() {
        let fenced = "/// ```text\n/// x [y]\n/// ```\n";
        for marks in ["```", "```rust", "~~~", "  ~~~~ compile_fail", "      ```json"] {
            let close = marks.trim_matches(|c: char| c.is_alphabetic() || c == ' ' || c == '_');
            assert_eq!(render(&format!("{marks}\nx [y]\n{close}\nz")), format!("{fenced}/// z\n"), "{marks}");
            assert_eq!(render(&format!("{marks}\nx [y]")), fenced, "{marks}");
        }
        assert_eq!(
            render("````rust\n```\nx\n```\n````"),
            "/// ````text\n/// ```\n/// x\n/// ```\n/// ````\n"
        );
    }

    #[test]
    fn brackets_are_no_links_except_in_code() {
        assert_eq!(render("see [x] and `[y]` of <T>"), "/// see \\[x\\] and `[y]` of \\<T\\>\n");
        assert_eq!(render("an `open [x]"), "/// an \\`open \\[x\\]\n");
        assert_eq!(render("escaped \\[x\\]"), "/// escaped \\[x\\]\n");
        assert_eq!(render("-     let x = 1;"), "/// - let x = 1;\n");
    }

    #[test]
    fn a_comment_of_nothing_is_none() {
        for nothing in ["\u{c}", "```", "~~~\n~~~\n\n~~~", "\r"] {
            assert_eq!(render(nothing), "", "{nothing:?}");
        }
    }

    #[test]
    fn items_of_lists_keep_their_lines() {
        assert_eq!(render("- a\nb\n   c\n\nd"), "/// - a\n///   b\n///   c\n///\n/// d\n");
        assert_eq!(render("10. a\nb\n  - c\nd"), "/// 10. a\n///     b\n///   - c\n///     d\n");
        assert_eq!(render("- - -\na\n1.5\nb"), "/// - - -\n/// a\n/// 1.5\n/// b\n");
    }

    #[test]
    fn addresses_are_links() {
        assert_eq!(render("See https://a.bc/d_e(f)."), "/// See <https://a.bc/d_e(f>).\n");
        assert_eq!(render("See <http://a.bc/d>."), "/// See <http://a.bc/d>.\n");
        assert_eq!(render("[a](https://a.bc)"), "/// \\[a\\](<https://a.bc>)\n");
        assert_eq!(render("http:// is none"), "/// http:// is none\n");
    }

    #[test]
    fn marks_of_the_writer_are_no_line_feeds() {
        let long = "x".repeat(120);
        assert_eq!(render(&format!("{long}\u{c}fn f() {{}}\u{b}.g")), format!("/// {long}fn f() {{}}.g\n"));
    }

    /// What rustdoc makes of the source text: without the indentation that all lines share.
    fn doc(source: &str) -> String {
        let lines = || source.lines().map(|line| line.trim_start_matches("///"));
        let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
        let shared = lines().filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
        lines().map(|line| format!("{}\n", line.get(shared..).unwrap_or_default())).collect()
    }

    /// Whether rustdoc would see nothing but text. The options are those it parses doc comments with.
    fn is_harmless(markdown: &str) -> Result<(), String> {
        let options = Options::ENABLE_TABLES
            | Options::ENABLE_FOOTNOTES
            | Options::ENABLE_STRIKETHROUGH
            | Options::ENABLE_TASKLISTS
            | Options::ENABLE_SMART_PUNCTUATION;
        let mut broken = None;
        let mut verbatim = 0;
        let parser = Parser::new_with_broken_link_callback(
            markdown,
            options,
            Some(|link: pulldown_cmark::BrokenLink<'_>| {
                broken = Some(link.reference.to_string());
                None
            }),
        );
        for event in parser {
            let wrong = match &event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => &**language != "text",
                Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => true,
                Event::Start(Tag::Link { link_type, .. }) => *link_type != LinkType::Autolink,
                Event::Start(Tag::Image { .. } | Tag::HtmlBlock | Tag::FootnoteDefinition(_)) => true,
                Event::Html(_) | Event::InlineHtml(_) | Event::FootnoteReference(_) => true,
                Event::Text(text) => verbatim == 0 && text.contains("http://a.bc"),
                _ => false,
            };
            match &event {
                Event::Start(Tag::CodeBlock(_) | Tag::Link { .. }) => verbatim += 1,
                Event::End(pulldown_cmark::TagEnd::CodeBlock | pulldown_cmark::TagEnd::Link) => verbatim -= 1,
                _ => {}
            }
            if wrong {
                return Err(format!("{event:?}"));
            }
        }
        broken.map_or(Ok(()), |link| Err(format!("link to {link}")))
    }

    /// Pieces that mean something in markdown, in any order.
    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "```",
            "````",
            "`",
            "``",
            "~~~",
            "~~",
            "~",
            "rust",
            "text",
            "\n",
            "\n\n",
            "\n",
            " ",
            "  ",
            "    ",
            "\t",
            "-",
            "*",
            "+",
            "1.",
            "10)",
            ">",
            "#",
            "=",
            "---",
            "===",
            "|",
            "|-|",
            ":-:",
            "[x]",
            "[^x]",
            "[x]: y",
            "[",
            "]",
            "(y)",
            "!",
            "<b>",
            "<",
            ">",
            "</b>",
            "<!--",
            "-->",
            "\\",
            "\\[",
            "\\`",
            "&lt;",
            "http://a.bc",
            "<http://a.bc>",
            "<T>",
            "word",
            "let x = 1;",
            "é",
            "\u{c}",
            "\u{b}",
            "\r",
            "\u{202e}",
            "_",
            "**",
            "$",
        ]);
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn no_comment_is_more_than_text(comment in pieces()) {
            let source = render(&comment);
            prop_assert!(source.lines().all(|line| line.starts_with("///")), "{source}");
            prop_assert_eq!(is_harmless(&doc(&source)), Ok(()), "{}", source);
        }
    }

    #[test]
    fn the_check_finds_what_it_looks_for() {
        for wrong in ["```\nx\n```", "    x", "[x]", "[x](y)", "<b>", "<!-- x", "http://a.bc", "![x](y)"] {
            assert!(is_harmless(wrong).is_err(), "{wrong}");
        }
    }
}
