//! As much of a Rust reader as the rules need.

/// A Rust file: its lines as written, its code alone, and which lines are tests.
#[derive(Debug)]
pub struct Source {
    /// As written.
    pub lines: Vec<String>,
    /// The same lines with comments and the insides of strings and characters blanked out.
    pub code: Vec<String>,
    /// Lines under `#[cfg(test)]`.
    pub is_test: Vec<bool>,
    /// Functions with a body, tests' too.
    pub functions: Vec<Function>,
    /// Names in `#[cfg(test)] mod name;`.
    pub test_modules: Vec<String>,
}

/// Where a function lies; lines count from 0, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line with `fn`.
    pub first: usize,
    /// The line with the closing brace.
    pub last: usize,
}

impl Source {
    /// Reads a file. Any text is read; what is not Rust gives nonsense, not a panic.
    pub fn of(text: String) -> Self {
        let code = code_only(&text);
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let starts = line_starts(&code);
        let functions = functions(&code, &starts);
        let mut is_test = vec![false; lines.len()];
        let mut test_modules = Vec::new();
        for (at, _) in code.match_indices("#[cfg(").filter(|(at, _)| is_test_only(&code[*at..])) {
            let end = item_end(&code, at);
            let (first, last) = (line_of(&starts, at), line_of(&starts, end));
            is_test.iter_mut().take(last + 1).skip(first).for_each(|line| *line = true);
            test_modules.extend(declared_module(&code[at..=end.min(code.len() - 1)]));
        }
        Self { code: code.lines().map(str::to_owned).collect(), lines, is_test, functions, test_modules }
    }

    /// Treats every line as a test's.
    pub(crate) fn all_test(&mut self) {
        self.is_test.fill(true);
    }

    /// Code lines that are not tests: (line from 0, code).
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .iter()
            .zip(&self.is_test)
            .enumerate()
            .filter(|(_, (_, test))| !**test)
            .map(|(at, (code, _))| (at, code.as_str()))
    }

    /// Whether the statement that holds `line` has a comment starting with `mark` on it or right above it. Attributes,
    /// the statement's earlier lines and the arms of its `match` may stand between.
    pub fn has_comment_above(&self, line: usize, mark: &str) -> bool {
        let says = |at: usize| {
            let text = self.lines.get(at).map_or("", |line| line.trim());
            text.split_once("//")
                .is_some_and(|(_, comment)| comment.trim_start_matches(['/', '!', ' ']).starts_with(mark))
        };
        if says(line) {
            return true;
        }
        for at in (0..line).rev() {
            let (text, code) = (self.lines[at].trim(), self.code.get(at).map_or("", |code| code.trim()));
            if text.is_empty() {
                return false;
            }
            if says(at) {
                return true;
            }
            let is_comment = code.is_empty();
            let opens_match = words(code, "match").next().is_some();
            let ends_statement = code.ends_with([';', '}']) || code.ends_with('{') && !opens_match;
            if !is_comment && ends_statement {
                return false;
            }
        }
        false
    }
}

/// Where `word` stands in `code` as a whole word.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text with comments and the insides of literals replaced by spaces; line breaks stay.
fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let blank = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if first == '"' {
            string(rest)
        } else if let Some(len) = raw_string(rest, out.chars().next_back()) {
            len
        } else if first == '\'' {
            character(rest)
        } else {
            0
        };
        let (eaten, after) = rest.split_at(blank.max(if blank == 0 { first.len_utf8() } else { 0 }));
        if blank == 0 {
            out.push_str(eaten);
        } else {
            out.extend(eaten.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = after;
    }
    out
}

/// Length of the block comment `text` starts with; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of the string `text` starts with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of the raw string `text` starts with, if it does. `before` is the character in front of it.
fn raw_string(text: &str, before: Option<char>) -> Option<usize> {
    if before.is_some_and(|c| is_word(c) && c != 'b' && c != 'c') {
        return None;
    }
    let hashes = text.strip_prefix('r')?;
    let count = hashes.len() - hashes.trim_start_matches('#').len();
    let body = hashes[count..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(count));
    let len = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(text.len() - body.len() + len)
}

/// Length of the character `text` starts with; 0 if it is a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, c))) => {
            text[at + c.len_utf8()..].find('\'').map_or(0, |end| at + c.len_utf8() + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

fn functions(code: &str, starts: &[usize]) -> Vec<Function> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let name: String = code[at + 2..].trim_start().chars().take_while(|c| is_word(*c)).collect();
        let end = item_end(code, at);
        if !name.is_empty() && code[..=end.min(code.len() - 1)].ends_with('}') {
            found.push(Function { name, first: line_of(starts, at), last: line_of(starts, end) });
        }
    }
    found
}

/// Where the item that starts at `at` ends: its closing brace, or its semicolon if it has no body.
fn item_end(code: &str, at: usize) -> usize {
    let (mut round, mut curly) = (0_i32, 0_i32);
    for (offset, c) in code[at..].char_indices() {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            '{' if round == 0 => curly += 1,
            '}' if round == 0 => {
                curly -= 1;
                if curly <= 0 {
                    return at + offset;
                }
            }
            ';' if round == 0 && curly == 0 => return at + offset,
            _ => {}
        }
    }
    code.len().saturating_sub(1)
}

fn is_test_only(attribute: &str) -> bool {
    ["#[cfg(test)]", "#[cfg(all(test,"].iter().any(|start| attribute.starts_with(start))
}

/// The name in `#[cfg(test)] mod name;`.
fn declared_module(item: &str) -> Option<String> {
    let declaration = item.strip_suffix(';')?;
    let name = declaration.split_whitespace().next_back()?;
    words(declaration, "mod").next()?;
    Some(name.to_owned())
}

fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

fn line_of(starts: &[usize], at: usize) -> usize {
    starts.partition_point(|start| *start <= at) - 1
}

#[cfg(test)]
mod tests {
    //! Shows what counts as code, where functions end, and which lines are tests.
    use super::*;

    fn source(text: &str) -> Source {
        Source::of(text.to_owned())
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        let text = concat!(
            "let a = \"fn x() {\"; // unsafe {\n",
            "/* dbg! /* nested */ } */ let b = '{';\n",
            "let c = r#\"\"unsafe\"\"#;\n",
            "fn f<'a>(x: &'a str) -> char { '\\'' }",
        );
        let source = source(text);
        let code: Vec<String> = source.code.iter().take(3).map(|line| line.replace(' ', "")).collect();
        assert_eq!(code, ["leta=;", "letb=;", "letc=;"]);
        assert_eq!(source.code[0].find(';'), source.lines[0].find(';'), "columns stay");
        assert_eq!(source.functions, [Function { name: "f".into(), first: 3, last: 3 }]);
    }

    #[test]
    fn functions_end_at_their_brace() {
        let text = concat!(
            "trait T {\n    fn bodiless(&self) -> [u8; { 3 }];\n",
            "    fn with(&self) {\n        if true {\n        }\n    }\n}\n",
        );
        let names: Vec<_> = source(text).functions.into_iter().map(|f| (f.name, f.first, f.last)).collect();
        assert_eq!(names, [("with".into(), 2, 5)]);
    }

    #[test]
    fn test_modules_are_marked_inline_and_elsewhere() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n#[cfg(test)]\nmod apart;\nfn c() {}\n";
        let source = source(text);
        assert_eq!(source.is_test, [false, true, true, true, true, true, true, false]);
        assert_eq!(source.test_modules, ["apart"]);
    }

    #[test]
    fn a_comment_counts_for_the_statement_below_it() {
        let text = concat!(
            "// SAFETY: x\nlet a =\n    unsafe { f() };\nlet b = unsafe { f() };\n\n",
            "// SAFETY: y\n#[inline]\nunsafe impl S for T {}\n",
        );
        let source = source(text);
        let safe = |line| source.has_comment_above(line, "SAFETY:");
        assert_eq!((safe(2), safe(3), safe(7)), (true, false, true));
    }

    #[test]
    fn any_text_is_read() {
        for text in ["", "\"", "'", "/*", "fn", "fn f(", "#[cfg(test)]", "r#\"", "}}}", "fn é() {", "'\\"] {
            let _ = source(text);
        }
    }
}
