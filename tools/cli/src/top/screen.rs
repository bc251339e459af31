//! What fills the screen, and what keys do to it. It has no terminal: pictures and keys come in, lines go out.

use super::key::Keystroke;
use super::picture::Picture;
use std::cmp::Ordering;
use trunkline_telemetry::{Side, TopRow, render};

/// What the person wants that is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    /// The page of a method.
    Page(String),
    Leave,
}

/// Lines around the methods: who it is, an empty one, headings, an empty one, and the keys.
const LINES_AROUND: usize = 5;
/// Longest filter.
const FILTER_CHARS_MAX: usize = 120;
const KEYS: &str = "↑↓ select  Enter its page  / filter  s sort by  r reverse  p pause  q leave";
const KEYS_OF_FILTER: &str = "type a part of a name  Enter keep it  Esc drop it";
const KEYS_OF_PAGE: &str = "↑↓ scroll  Esc back to the methods  q leave";

/// The state of the screen.
#[derive(Debug, Default)]
pub struct Screen {
    picture: Picture,
    sort: Sort,
    is_reversed: bool,
    filter: String,
    /// What is typed goes into the filter.
    is_typing: bool,
    is_paused: bool,
    /// The method that is marked; the first if it is not there.
    marked: Option<(Side, String)>,
    /// The one that was marked when there was one: while no call ends, its page can be opened all the same.
    last: Option<String>,
    page: Option<Page>,
}

/// What methods are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Rate,
    Errors,
    Median,
    Tail,
    Method,
}

/// The page of a method.
#[derive(Debug)]
struct Page {
    method: String,
    lines: Vec<String>,
    /// Lines scrolled past.
    above: usize,
}

impl Screen {
    /// Another picture is there. While a page is open, it is asked for again.
    pub fn take(&mut self, picture: Picture) -> Wish {
        if self.is_paused {
            return Wish::Nothing;
        }
        self.picture = picture;
        let rows = self.rows();
        if let Some(at) = self.place(&rows) {
            self.last = Some(rows[at].method.clone());
        }
        self.page.as_ref().map_or(Wish::Nothing, |page| Wish::Page(page.method.clone()))
    }

    /// Shows the page of a method.
    pub fn show_page(&mut self, method: &str, text: &str) {
        let above = self.page.as_ref().filter(|page| page.method == method).map_or(0, |page| page.above);
        let lines = text.lines().map(str::to_owned).collect();
        self.page = Some(Page { method: method.to_owned(), lines, above });
    }

    /// A key is pressed.
    pub fn press(&mut self, key: Keystroke) -> Wish {
        match key {
            Keystroke::Leave => return Wish::Leave,
            _ if self.is_typing => self.type_in(key),
            Keystroke::Char('q' | 'Q') => return Wish::Leave,
            Keystroke::Char('p') => self.is_paused = !self.is_paused,
            key if self.page.is_some() => self.turn_page(key),
            Keystroke::Enter => {
                let rows = self.rows();
                let marked = self.place(&rows).map(|at| rows[at].method.clone());
                return marked.or_else(|| self.last.clone()).map_or(Wish::Nothing, Wish::Page);
            }
            Keystroke::Char('/') => self.is_typing = true,
            Keystroke::Char('s') => (self.sort, self.is_reversed) = (self.sort.next(), false),
            Keystroke::Char('r') => self.is_reversed = !self.is_reversed,
            Keystroke::Escape => self.filter.clear(),
            Keystroke::Up | Keystroke::Char('k') => self.mark(|at, _| at.saturating_sub(1)),
            Keystroke::Down | Keystroke::Char('j') => self.mark(|at, _| at + 1),
            Keystroke::PageUp => self.mark(|at, _| at.saturating_sub(10)),
            Keystroke::PageDown => self.mark(|at, _| at + 10),
            Keystroke::Home => self.mark(|_, _| 0),
            Keystroke::End => self.mark(|_, last| last),
            Keystroke::Char(_) | Keystroke::Backspace => {}
        }
        Wish::Nothing
    }

    /// As many lines as there are on the terminal, or fewer, none longer than it is wide; marked ones with `true`.
    pub fn draw(&self, lines: usize, columns: usize) -> Vec<(String, bool)> {
        let mut all = match &self.page {
            Some(page) => draw_page(page, lines),
            None => self.draw_methods(lines, columns),
        };
        for (line, _) in &mut all {
            if line.chars().count() > columns {
                *line = line.chars().take(columns.saturating_sub(1)).chain(['…']).collect();
            }
        }
        all.truncate(lines.max(1));
        all
    }

    fn draw_methods(&self, lines: usize, columns: usize) -> Vec<(String, bool)> {
        let room = lines.saturating_sub(LINES_AROUND).max(1);
        let rows = self.rows();
        let at = self.place(&rows).unwrap_or(0);
        // The marked one is in sight.
        let first = at.saturating_sub(room - 1);
        let shown: Vec<TopRow> = rows.iter().skip(first).take(room).map(|row| (*row).clone()).collect();
        let mut all = vec![(self.picture.head(), false), (self.state(), false)];
        if shown.is_empty() {
            all.push((self.nothing(), false));
        } else {
            let table = render::top(&shown, columns);
            let marked = at - first;
            all.extend(table.lines().enumerate().map(|(n, line)| (line.to_owned(), n == marked + 1)));
        }
        all.resize(lines.saturating_sub(1).max(all.len()), (String::new(), false));
        all.truncate(lines.saturating_sub(1));
        all.push((if self.is_typing { KEYS_OF_FILTER } else { KEYS }.to_owned(), false));
        all
    }

    fn state(&self) -> String {
        let order = if self.is_reversed { ", reversed" } else { "" };
        let mut state = format!("by {}{order}", self.sort.name());
        if self.is_typing || !self.filter.is_empty() {
            let cursor = if self.is_typing { "_" } else { "" };
            state.push_str(&format!("; with {:?}{cursor}", self.filter));
        }
        state.push_str(if self.is_paused { "; paused" } else { "" });
        state
    }

    fn nothing(&self) -> String {
        if self.picture.rows.is_empty() {
            format!("no call ended in the last {}", render::duration(self.picture.elapsed_ns))
        } else {
            "no method has this in its name".to_owned()
        }
    }

    /// The methods wanted, in their order.
    fn rows(&self) -> Vec<&TopRow> {
        let wanted = self.filter.to_lowercase();
        let has = |row: &&TopRow| row.method.to_lowercase().contains(&wanted);
        let mut rows: Vec<&TopRow> = self.picture.rows.iter().filter(has).collect();
        rows.sort_by(|a, b| {
            let order = self.sort.compare(a, b);
            let order = if self.is_reversed { order.reverse() } else { order };
            order.then_with(|| (&a.method, a.side).cmp(&(&b.method, b.side)))
        });
        rows
    }

    /// Where the marked method stands.
    fn place(&self, rows: &[&TopRow]) -> Option<usize> {
        let marked = self.marked.as_ref();
        let is_marked =
            |row: &&TopRow| marked.is_some_and(|(side, name)| row.side == *side && row.method == *name);
        rows.iter().position(is_marked).or((!rows.is_empty()).then_some(0))
    }

    fn mark(&mut self, to: impl Fn(usize, usize) -> usize) {
        let rows = self.rows();
        let Some(at) = self.place(&rows) else { return };
        let last = rows.len() - 1;
        let row = rows[to(at, last).min(last)];
        self.marked = Some((row.side, row.method.clone()));
    }

    fn type_in(&mut self, key: Keystroke) {
        match key {
            Keystroke::Enter => self.is_typing = false,
            Keystroke::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            Keystroke::Backspace => drop(self.filter.pop()),
            Keystroke::Char(c) if self.filter.chars().count() < FILTER_CHARS_MAX => self.filter.push(c),
            _ => {}
        }
    }

    fn turn_page(&mut self, key: Keystroke) {
        let Some(page) = &mut self.page else { return };
        let last = page.lines.len().saturating_sub(1);
        match key {
            Keystroke::Escape | Keystroke::Backspace => self.page = None,
            Keystroke::Up | Keystroke::Char('k') => page.above = page.above.saturating_sub(1),
            Keystroke::Down | Keystroke::Char('j') => page.above = (page.above + 1).min(last),
            Keystroke::PageUp => page.above = page.above.saturating_sub(10),
            Keystroke::PageDown => page.above = (page.above + 10).min(last),
            Keystroke::Home => page.above = 0,
            _ => {}
        }
    }
}

fn draw_page(page: &Page, lines: usize) -> Vec<(String, bool)> {
    let room = lines.saturating_sub(1);
    let shown = page.lines.iter().skip(page.above).take(room);
    let mut all: Vec<(String, bool)> = shown.map(|line| (line.clone(), false)).collect();
    all.resize(room, (String::new(), false));
    all.push((KEYS_OF_PAGE.to_owned(), false));
    all
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Rate => Self::Errors,
            Self::Errors => Self::Median,
            Self::Median => Self::Tail,
            Self::Tail => Self::Method,
            Self::Method => Self::Rate,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rate => "calls/s",
            Self::Errors => "errors",
            Self::Median => "p50",
            Self::Tail => "p99",
            Self::Method => "method",
        }
    }

    /// Largest first; names in their order.
    fn compare(self, a: &TopRow, b: &TopRow) -> Ordering {
        match self {
            Self::Rate => b.rate.total_cmp(&a.rate),
            Self::Errors => b.errors.cmp(&a.errors),
            Self::Median => b.p50_ns.cmp(&a.p50_ns),
            Self::Tail => b.p99_ns.cmp(&a.p99_ns),
            Self::Method => a.method.cmp(&b.method),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows what keys do: sort, filter, mark, open a page and leave it; and that it fits every terminal.
    use super::*;
    use proptest::prelude::*;

    fn row(n: u64) -> TopRow {
        TopRow {
            side: Side::Made,
            method: format!("/a.B/C{n}"),
            calls: n,
            rate: n as f64,
            errors: 20 - n,
            p50_ns: n % 7,
            p99_ns: n,
            biggest: None,
            biggest_percent: 0.0,
        }
    }

    fn screen() -> Screen {
        let mut screen = Screen::default();
        let rows = (0..20).map(row).collect();
        screen.take(Picture { node: "alpha".into(), elapsed_ns: 1_000_000_000, rows, ..Picture::default() });
        screen
    }

    fn press(screen: &mut Screen, text: &str) {
        text.chars().for_each(|c| drop(screen.press(Keystroke::Char(c))));
    }

    /// Methods shown, by their last word; and the marked one.
    fn methods(screen: &Screen) -> (Vec<String>, String) {
        let word = |line: &str| line.split_whitespace().next().unwrap_or_default().replace("/a.B/", "");
        let drawn = screen.draw(24, 100);
        let is_method = |line: &&(String, bool)| line.0.starts_with("/a.B/");
        let shown = drawn.iter().filter(is_method).map(|(line, _)| word(line)).collect();
        (shown, drawn.iter().find(|(_, marked)| *marked).map(|(line, _)| word(line)).unwrap_or_default())
    }

    #[test]
    fn keys_sort_and_filter() {
        let mut screen = screen();
        assert_eq!(methods(&screen).0[..2], ["C19", "C18"], "most calls first");
        press(&mut screen, "s");
        assert_eq!(methods(&screen).0[0], "C0", "most errors first");
        press(&mut screen, "r");
        assert_eq!(methods(&screen).0[0], "C19");
        press(&mut screen, "ssss/c1");
        assert!(screen.draw(24, 100)[1].0.contains("with \"c1\"_"), "{:?}", screen.draw(24, 100)[1]);
        assert_eq!(methods(&screen).0.len(), 11, "C1 and C10 to C19; `q` and `s` are letters here");
        press(&mut screen, "q");
        assert_eq!(methods(&screen).0.len(), 0);
        screen.press(Keystroke::Backspace);
        screen.press(Keystroke::Enter);
        assert_eq!((methods(&screen).0.len(), screen.press(Keystroke::Escape)), (11, Wish::Nothing));
        assert_eq!(methods(&screen).0.len(), 19, "what fits");
    }

    #[test]
    fn a_mark_stays_with_its_method() {
        let mut screen = screen();
        screen.press(Keystroke::Down);
        assert_eq!(methods(&screen).1, "C18");
        press(&mut screen, "s");
        assert_eq!(methods(&screen).1, "C18", "in another order, too");
        screen.press(Keystroke::Home);
        assert_eq!(methods(&screen).1, "C0");
        screen.press(Keystroke::End);
        assert_eq!(methods(&screen).1, "C19", "it is scrolled to");
        assert_eq!(screen.press(Keystroke::Enter), Wish::Page("/a.B/C19".into()));
    }

    #[test]
    fn a_page_is_shown_and_left() {
        let mut screen = screen();
        let text: String = (0..40).map(|n| format!("line {n}\n")).collect();
        screen.show_page("/a.B/C1", &text);
        assert_eq!(screen.draw(10, 80)[0].0, "line 0");
        screen.press(Keystroke::Down);
        assert_eq!(screen.draw(10, 80)[0].0, "line 1");
        assert_eq!(screen.take(Picture::default()), Wish::Page("/a.B/C1".into()), "it is kept fresh");
        screen.show_page("/a.B/C1", &text);
        assert_eq!(screen.draw(10, 80)[0].0, "line 1", "where it was");
        press(&mut screen, "p");
        assert_eq!(screen.take(Picture::default()), Wish::Nothing, "unless it is paused");
        screen.press(Keystroke::Escape);
        assert!(screen.page.is_none());
        assert_eq!(screen.press(Keystroke::Char('q')), Wish::Leave);
    }

    #[test]
    fn an_idle_daemon_says_so() {
        let mut screen = Screen::default();
        screen.take(Picture { elapsed_ns: 1_000_000_000, ..Picture::default() });
        assert_eq!(screen.draw(24, 80)[2].0, "no call ended in the last 1.00 s");
        assert_eq!(screen.press(Keystroke::Enter), Wish::Nothing);
        screen.take(Picture { rows: vec![row(3)], ..Picture::default() });
        screen.take(Picture::default());
        assert_eq!(screen.press(Keystroke::Enter), Wish::Page("/a.B/C3".into()), "the last that was there");
    }

    proptest! {
        #[test]
        fn it_fits(lines in 0..60_usize, columns in 0..200_usize, page in any::<bool>(), down in 0..30) {
            let mut screen = screen();
            (0..down).for_each(|_| drop(screen.press(Keystroke::Down)));
            if page {
                screen.show_page("/a.B/C1", &"long ".repeat(100));
            }
            let drawn = screen.draw(lines, columns);
            prop_assert!(drawn.len() <= lines.max(1));
            prop_assert!(drawn.iter().all(|(line, _)| line.chars().count() <= columns.max(1)));
            let marks = drawn.iter().filter(|(_, marked)| *marked).count();
            prop_assert!(marks == usize::from(!page && lines > 4), "{marks} of {lines}");
        }
    }
}
