//! A page, its style, and what every chart has in common.

use std::fmt::Write;

/// Colours that lines and parts have, by place: light, dark.
const PALETTE: [(&str, &str); COLOURS] = [
    ("#1764ab", "#6cb2f0"),
    ("#c2571a", "#f0a060"),
    ("#2a8a46", "#6fcf8a"),
    ("#7a4ea3", "#c09be0"),
    ("#b8860b", "#e6c34d"),
    ("#b02e50", "#f07f9c"),
    ("#2b8c86", "#62cfc7"),
    ("#6b6b6b", "#b0b0b0"),
    ("#8a5a3c", "#d0a584"),
];
/// How many there are.
pub const COLOURS: usize = 9;

/// An HTML page that needs nothing else.
#[derive(Debug, Default)]
pub struct ChartPage {
    title: String,
    body: String,
}

impl ChartPage {
    /// An empty page.
    pub fn new(title: &str) -> Self {
        Self { title: escape(title), body: String::new() }
    }

    /// A heading of this level, with a name that links can go to.
    pub fn heading(&mut self, level: u8, text: &str) {
        let id: String = text
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        // Writing to a string does not fail, here and below.
        let _ = writeln!(self.body, "<h{level} id=\"{id}\">{}</h{level}>", escape(text));
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
    }

    /// A remark in small letters.
    pub fn note(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"note\">{}</p>", escape(text));
    }

    /// A box that says what is not there, and why.
    pub fn missing(&mut self, text: &str) {
        let _ = writeln!(self.body, "<div class=\"missing\">{}</div>", escape(text));
    }

    /// A chart, or several beside each other if there is room.
    pub fn charts(&mut self, charts: &[String]) {
        let _ = writeln!(self.body, "<div class=\"charts\">{}</div>", charts.concat());
    }

    /// Text as it is, in letters of one width.
    pub fn preformatted(&mut self, text: &str) {
        let _ = writeln!(self.body, "<pre>{}</pre>", escape(text));
    }

    /// Text as it is that is shown when somebody asks for it.
    pub fn details(&mut self, summary: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<details><summary>{}</summary><pre>{}</pre></details>",
            escape(summary),
            escape(text)
        );
    }

    /// A table; a row may have a class.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| -> String {
            cells.map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
        };
        let _ = write!(self.body, "<table><tr>{}</tr>", cells("th", &mut head.iter().copied()));
        for row in rows {
            let _ = write!(self.body, "<tr>{}</tr>", cells("td", &mut row.iter().map(String::as_str)));
        }
        self.body.push_str("</table>\n");
    }

    /// HTML as it is.
    pub fn raw(&mut self, html: &str) {
        self.body.push_str(html);
    }

    /// The file.
    pub fn finish(&self) -> String {
        let Self { title, body } = self;
        let style = format!("{PAGE_STYLE}{}", chart_style());
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
             <title>{title}</title><style>{style}</style></head><body>\n<h1>{title}</h1>\n{body}</body></html>\n"
        )
    }
}

const PAGE_STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;background:#fff;color:#222}\
h2{margin-top:2.2rem}table{border-collapse:collapse;margin:1rem 0;font-size:14px}\
td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}\
pre{background:#f4f4f4;padding:1rem;overflow-x:auto}\
.note,footer{color:#666;font-size:13px}.yes{color:#176b2c}.no{color:#a01515;font-weight:600}\
.missing{border:1px dashed #999;border-radius:4px;padding:1.2rem;color:#666;text-align:center}\
.charts{display:flex;flex-wrap:wrap;gap:1rem}.charts svg{max-width:100%;height:auto}\
@media(prefers-color-scheme:dark){body{background:#16181b;color:#ddd}td,th{border-color:#3a3d42}pre{background:#22252a}\
.note,footer,.missing{color:#999}.yes{color:#7fd694}.no{color:#ff8a80}a{color:#8ab8ff}}";

/// A chart for a file of its own: with its style and a ground.
pub fn standalone(svg: &str) -> String {
    let Some((open, rest)) = svg.split_once('>') else { return svg.to_owned() };
    let ground = "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>";
    let style = ".ground{fill:#fff}@media(prefers-color-scheme:dark){.ground{fill:#16181b}}";
    format!("{open}><style>{}{style}</style>{ground}{rest}\n", chart_style())
}

fn chart_style() -> String {
    let mut light = String::from(
        "svg text{font:12px system-ui,sans-serif;fill:#444}svg .name{fill:#222}svg .grid{stroke:#ddd}\
         svg .whisker{stroke:#222}svg .line{fill:none;stroke-width:2}svg .dashed{stroke-dasharray:5 4}\
         svg .in{fill:#fff}svg .cell{fill:#1764ab}",
    );
    let mut dark = String::from(
        "svg text{fill:#aaa}svg .name{fill:#ddd}svg .grid{stroke:#3a3d42}svg .whisker{stroke:#ddd}svg .in{fill:#111}\
         svg .cell{fill:#6cb2f0}",
    );
    for (index, (of_light, of_dark)) in PALETTE.iter().enumerate() {
        let _ = write!(light, "svg .s{index}{{stroke:{of_light}}}svg .f{index}{{fill:{of_light}}}");
        let _ = write!(dark, "svg .s{index}{{stroke:{of_dark}}}svg .f{index}{{fill:{of_dark}}}");
    }
    format!("{light}@media(prefers-color-scheme:dark){{{dark}}}")
}

/// The beginning of a chart.
pub(crate) fn open(width: f64, height: f64, what: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{}\">",
        escape(what)
    )
}

/// A text at a place; `anchor` is `start`, `middle` or `end`.
pub(crate) fn text(out: &mut String, x: f64, y: f64, anchor: &str, class: &str, words: &str) {
    let _ = write!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
        escape(words)
    );
}

/// As HTML has it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A name of at most so many letters.
pub(crate) fn cut(name: &str, letters: usize) -> String {
    match name.char_indices().nth(letters) {
        Some(_) => name.chars().take(letters.saturating_sub(1)).chain(['…']).collect(),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a page needs nothing else, has both styles, and says names as they are.
    use super::*;

    #[test]
    fn a_page_is_whole() {
        let mut page = ChartPage::new("a & b");
        page.heading(2, "Figure 1: <x>");
        page.missing("not measured");
        page.table(&["a"], &[vec!["<b>".into()]]);
        let page = page.finish();
        assert!(
            page.contains("a &amp; b") && page.contains("Figure 1: &lt;x&gt;") && page.contains("&lt;b&gt;")
        );
        assert!(page.contains("prefers-color-scheme:dark") && page.ends_with("</html>\n"));
        for outside in ["http://", "https://", "<script", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_chart_alone_has_its_style() {
        let alone = standalone(&(open(10.0, 10.0, "x") + "</svg>"));
        assert!(alone.starts_with("<svg xmlns=") && alone.contains("<style>") && alone.ends_with("</svg>\n"));
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }
}
