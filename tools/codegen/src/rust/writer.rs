//! Indented text.

use std::fmt;

/// Columns a line should not exceed; rustfmt's default.
pub(super) const WIDTH: usize = 100;
const INDENT: usize = 4;
/// Stands before a `.` where a chain of calls may be broken: at all marks or at none.
pub(super) const CHAIN: char = '\u{b}';
/// A line feed if the line is too long, else a blank; the blanks after it are indentation.
pub(super) const SOFT: char = '\u{c}';

/// Writes one formatted line.
macro_rules! line {
    ($writer:expr, $($arguments:tt)*) => { $writer.line(format_args!($($arguments)*)) };
}

/// Writes a braced block: `block!(w, |w| { .. }, "impl {name}")`.
macro_rules! block {
    ($writer:expr, $body:expr, $($head:tt)*) => { $writer.block(format_args!($($head)*), $body) };
}

pub(super) use {block, line};

/// Source text in the making. Formatting macros write whole lines: `line!(w, "let {x} = {y};")`.
#[derive(Default)]
pub(super) struct Writer {
    text: String,
    depth: usize,
}

impl Writer {
    /// A line at the present depth. An empty line gets no blanks; what follows a line feed is indented as well.
    ///
    /// A line that is too long is broken at its [`SOFT`] marks, or at its [`CHAIN`] marks.
    pub(super) fn line(&mut self, line: fmt::Arguments<'_>) {
        let line = line.to_string();
        let joined = joined(&line);
        if self.fits(joined.len()) && !joined.contains('\n') {
            return self.indented(self.depth, &joined);
        }
        let line = line.replace(SOFT, "\n");
        let (chain, last) = line.rsplit_once(CHAIN).unwrap_or(("", &line));
        let overflow = format!("{}{last}", chain.replace(CHAIN, ""));
        // A chain whose last link alone is long keeps its head: `a.b().map(|c| {`.
        let breaks = match overflow.split_once('\n') {
            Some((first, _)) => chain.contains('\n') || !self.fits(first.len()),
            None => true,
        };
        let links = if breaks { line.split(CHAIN).collect() } else { vec![overflow.as_str()] };
        for (index, link) in links.into_iter().enumerate() {
            let depth = self.depth + usize::from(index > 0);
            link.split('\n').for_each(|line| self.indented(depth, line));
        }
    }

    /// What `body` writes; if that uses `alias` other than in a comment, after a line that declares it.
    pub(super) fn with_alias(&mut self, alias: &str, path: &str, body: impl FnOnce(&mut Self)) {
        let start = self.text.len();
        body(self);
        let path_start = format!("{alias}::");
        let uses = |line: &str| !line.trim_start().starts_with("//") && line.contains(&path_start);
        if self.text.get(start..).is_some_and(|body| body.lines().any(uses)) {
            let blanks = " ".repeat(self.depth * INDENT);
            let gap =
                if self.text.get(start..).is_some_and(|body| body.starts_with('\n')) { "" } else { "\n" };
            self.text.insert_str(start, &format!("{blanks}use {path} as {alias};\n{gap}"));
        }
    }

    /// A line without indentation: within a literal, where blanks count.
    pub(super) fn raw_line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// What comes next need not be used: a program may have only the client, or no need of the descriptors.
    pub(super) fn may_be_unused(&mut self) {
        line!(self, "#[allow(dead_code)]");
    }

    /// An empty line, unless one is there already or a block has just been opened.
    pub(super) fn gap(&mut self) {
        let opened = self.text.ends_with("{\n") || self.text.ends_with("(\n");
        if !self.text.is_empty() && !self.text.ends_with("\n\n") && !opened {
            self.text.push('\n');
        }
    }

    /// `head {`, what `body` writes one level deeper, `}`. An empty body stays on the line: `head {}`.
    pub(super) fn block(&mut self, head: fmt::Arguments<'_>, body: impl FnOnce(&mut Self)) {
        self.bracket(format_args!("{head} {{"), "}", body);
    }

    /// `open`, what `body` writes one level deeper, `close`; on one line if that is nothing.
    pub(super) fn bracket(&mut self, open: fmt::Arguments<'_>, close: &str, body: impl FnOnce(&mut Self)) {
        self.line(open);
        let inside = self.text.len();
        self.depth += 1;
        body(self);
        self.depth -= 1;
        if self.text.len() == inside {
            self.text.truncate(inside - 1);
            self.text.push_str(close);
            self.text.push('\n');
        } else {
            self.line(format_args!("{close}"));
        }
    }

    /// As [`Writer::bracket`], on one line if that is long enough for everything.
    pub(super) fn compact(&mut self, open: &str, close: &str, body: impl FnOnce(&mut Self)) {
        let start = self.text.len();
        self.bracket(format_args!("{open}"), close, body);
        let lines: Vec<&str> = self.text.get(start..).unwrap_or_default().lines().map(str::trim).collect();
        let [_, items @ .., _] = lines.as_slice() else { return };
        let pad = if open.ends_with('{') { " " } else { "" };
        let one_line = format!("{open}{pad}{}{pad}{close}", items.join(" ").trim_end_matches(','));
        if self.fits(one_line.len())
            && items.iter().all(|item| item.ends_with(',') && !item.starts_with(['.', '}']))
        {
            self.text.truncate(start);
            self.indented(self.depth, &one_line);
        }
    }

    /// `head(arguments) tail {` with the arguments on lines of their own if one line is too narrow, then the body.
    pub(super) fn function(
        &mut self,
        head: &str,
        arguments: &[String],
        tail: &str,
        body: impl FnOnce(&mut Self),
    ) {
        self.bracket_after_signature(head, arguments, &format!("{tail} {{"), body);
    }

    /// The same without a body; `tail` ends with a semicolon.
    pub(super) fn signature(&mut self, head: &str, arguments: &[String], tail: &str) {
        let last = self.wrapped(head, arguments, tail);
        line!(self, "{last}");
    }

    fn bracket_after_signature(
        &mut self,
        head: &str,
        arguments: &[String],
        tail: &str,
        body: impl FnOnce(&mut Self),
    ) {
        let last = self.wrapped(head, arguments, tail);
        match last.strip_suffix(" {") {
            // A result that fills its line leaves the brace the next one.
            Some(result) if !self.fits(last.rsplit('\n').next().map_or(0, str::len)) => {
                line!(self, "{result}");
                self.bracket(format_args!("{{"), "}", body);
            }
            _ => self.bracket(format_args!("{last}"), "}", body),
        }
    }

    /// Writes all lines of a signature but the last, which comes back.
    fn wrapped(&mut self, head: &str, arguments: &[String], tail: &str) -> String {
        let one_line = format!("{head}({}){tail}", arguments.join(", "));
        if self.fits(one_line.len()) {
            return one_line;
        }
        line!(self, "{head}(");
        self.depth += 1;
        arguments.iter().for_each(|argument| line!(self, "{argument},"));
        self.depth -= 1;
        format!("){tail}")
    }

    /// Whether `columns` more fit on a line at the present depth.
    pub(super) fn fits(&self, columns: usize) -> bool {
        self.depth * INDENT + columns <= WIDTH
    }

    /// The text.
    pub(super) fn finish(self) -> String {
        self.text
    }

    fn indented(&mut self, depth: usize, line: &str) {
        if !line.is_empty() {
            self.text.extend(std::iter::repeat_n(' ', depth * INDENT));
            self.text.push_str(line);
        }
        self.text.push('\n');
    }
}

/// The line without marks, as if there were room.
fn joined(line: &str) -> String {
    let mut parts = line.split(SOFT);
    let mut joined = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        joined.push(' ');
        joined.push_str(part.trim_start_matches(' '));
    }
    joined.replace(CHAIN, "")
}

#[cfg(test)]
mod tests {
    //! Shows how text is laid out.
    use super::*;

    #[test]
    fn blocks_indent_and_empty_ones_close_at_once() {
        let mut w = Writer::default();
        block!(w, |w| block!(w, |_| {}, "b"), "a");
        assert_eq!(w.finish(), "a {\n    b {}\n}\n");
    }

    #[test]
    fn an_alias_is_declared_where_it_is_used() {
        let declared = |body: &str| {
            let mut w = Writer::default();
            w.with_alias("rt", "::runtime", |w| line!(w, "{body}"));
            w.finish().starts_with("use ::runtime as rt;\n")
        };
        assert!(declared("let a = rt::A;"));
        assert!(!declared("/// See rt::A.") && !declared("let a = 1;"));
    }

    #[test]
    fn gaps_do_not_pile_up() {
        let mut w = Writer::default();
        w.gap();
        line!(w, "a");
        w.gap();
        w.gap();
        block!(
            w,
            |w| {
                w.gap();
                line!(w, "c")
            },
            "b"
        );
        assert_eq!(w.finish(), "a\n\nb {\n    c\n}\n");
    }

    #[test]
    fn long_chains_break_at_every_mark() {
        let mut w = Writer::default();
        let long = "a".repeat(90);
        line!(w, "x{CHAIN}.y(){CHAIN}.z()");
        line!(w, "{long}{CHAIN}.{long}(){CHAIN}.z()");
        assert_eq!(w.finish(), format!("x.y().z()\n{long}\n    .{long}()\n    .z()\n"));
    }

    #[test]
    fn a_long_last_link_keeps_the_chain_together() {
        let mut w = Writer::default();
        line!(w, "x{CHAIN}.y(){CHAIN}.map(|z| {{\n    z\n}})");
        line!(w, "x{CHAIN}.map(|z| {{\n    z\n}}){CHAIN}.collect()");
        let broken = "x\n    .map(|z| {\n        z\n    })\n    .collect()\n";
        assert_eq!(w.finish(), format!("x.y().map(|z| {{\n    z\n}})\n{broken}"));
    }

    #[test]
    fn soft_breaks_are_blanks_where_there_is_room() {
        let mut w = Writer::default();
        let long = "a".repeat(95);
        line!(w, "if a {{{SOFT}    b{SOFT}}}");
        line!(w, "if {long} {{{SOFT}    b{SOFT}}}");
        assert_eq!(w.finish(), format!("if a {{ b }}\nif {long} {{\n    b\n}}\n"));
    }

    #[test]
    fn compact_brackets_fit_on_a_line_or_take_one_per_item() {
        let mut w = Writer::default();
        w.compact("A {", "}", |w| line!(w, "b: 1,"));
        w.compact("&[", "]", |w| ["b", "c"].iter().for_each(|item| line!(w, "{item},")));
        assert_eq!(w.finish(), "A { b: 1 }\n&[b, c]\n");
        let mut w = Writer::default();
        let long = "a".repeat(95);
        w.compact("A {", "}", |w| line!(w, "{long}: 1,"));
        assert_eq!(w.finish(), format!("A {{\n    {long}: 1,\n}}\n"));
    }

    #[test]
    fn arguments_wrap_when_a_line_is_too_narrow() {
        let mut w = Writer::default();
        let long = vec![format!("a: {}", "A".repeat(60)), format!("b: {}", "B".repeat(60))];
        w.function("fn f", &long, "", |_| {});
        assert_eq!(w.finish(), format!("fn f(\n    {},\n    {},\n) {{}}\n", long[0], long[1]));
    }
}
