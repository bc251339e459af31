//! Lines over an axis.

use crate::axis::Axis;
use crate::page::{COLOURS, cut, open, text};
use std::fmt::Write;

/// Lines over a common axis.
#[derive(Clone, Debug)]
pub struct LineChart {
    /// What it shows, for who cannot see it; not drawn.
    pub title: String,
    /// The axis below.
    pub x: Axis,
    /// The axis at the left.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<ChartLine>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct ChartLine {
    /// What it is called at its side; without a name nothing stands there.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// It is what others are held against.
    pub dashed: bool,
    /// Its points are not joined.
    pub dots: bool,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 14.0;
const BELOW: f64 = 46.0;
/// For names.
const RIGHT: f64 = 170.0;
const NAME_LETTERS: usize = 24;
const NAME_HEIGHT: f64 = 17.0;

impl ChartLine {
    /// A line.
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, dashed: false, dots: false }
    }

    /// What others are held against.
    pub fn dashed(mut self) -> Self {
        self.dashed = true;
        self
    }

    /// Points that are not joined.
    pub fn dots(mut self) -> Self {
        self.dots = true;
        self
    }
}

impl LineChart {
    /// The chart; empty without a point that has a place.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let Some(across) = self.x.range(points().map(|(x, _)| *x)) else { return String::new() };
        let Some(up) = self.y.range(points().map(|(_, y)| *y)) else { return String::new() };
        let height = HEIGHT.max(TOP + BELOW + NAME_HEIGHT * self.lines.len() as f64);
        let (right, foot) = (WIDTH - RIGHT, height - BELOW);
        let x_of = |x: f64| LEFT + across.part(x) * (right - LEFT);
        let y_of = |y: f64| foot - up.part(y) * (foot - TOP);
        let mut out = open(WIDTH, height, &self.title);
        for (value, words) in self.y.marks(&up) {
            let y = y_of(value);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
            text(&mut out, LEFT - 6.0, y + 4.0, "end", "", &words);
        }
        for (value, words) in self.x.marks(&across) {
            text(&mut out, x_of(value), foot + 18.0, "middle", "", &words);
        }
        text(&mut out, (LEFT + right) / 2.0, height - 8.0, "middle", "name", &self.x.label);
        if !self.y.label.is_empty() {
            let (x, y) = (14.0, (TOP + foot) / 2.0);
            let _ = write!(out, "<g transform=\"rotate(-90 {x} {y})\">");
            text(&mut out, x, y, "middle", "name", &self.y.label);
            out.push_str("</g>");
        }
        let mut named = 0;
        for (index, line) in self.lines.iter().enumerate() {
            let colour = index % COLOURS;
            let sound = line.points.iter().filter(|(x, y)| self.x.bears(*x) && self.y.bears(*y));
            let places: Vec<(f64, f64)> = sound.map(|(x, y)| (x_of(*x), y_of(*y))).collect();
            draw(&mut out, line, colour, &places);
            if !line.name.is_empty() {
                let y = TOP + 10.0 + NAME_HEIGHT * f64::from(named);
                named += 1;
                let name = cut(&line.name, NAME_LETTERS);
                text(&mut out, right + 12.0, y, "start", &format!("f{colour}"), &name);
            }
        }
        out + "</svg>"
    }
}

fn draw(out: &mut String, line: &ChartLine, colour: usize, places: &[(f64, f64)]) {
    if line.dots || places.len() == 1 {
        for (x, y) in places {
            let _ = write!(out, "<circle class=\"f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>");
        }
        return;
    }
    let joined: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let dashed = if line.dashed { " dashed" } else { "" };
    let _ = write!(out, "<polyline class=\"line s{colour}{dashed}\" points=\"{}\"/>", joined.join(" "));
}

#[cfg(test)]
mod tests {
    //! Shows that points are where they belong, and that what has no place is left out.
    use super::*;

    fn chart(x: Axis, y: Axis, points: &[(f64, f64)]) -> String {
        let lines = vec![ChartLine::new("a<b", points.to_vec())];
        LineChart { title: "t".into(), x, y, lines }.svg()
    }

    #[test]
    fn points_are_where_they_belong() {
        let format = |value: f64| format!("{value}");
        let drawn = chart(
            Axis::linear("x", format),
            Axis::log("y", format),
            &[(0.0, 1.0), (5.0, 10.0), (7.0, 0.0), (8.0, f64::NAN), (10.0, 100.0)],
        );
        assert!(drawn.contains("points=\"76.0,254.0 383.0,134.0 690.0,14.0\""), "{drawn}");
        assert!(drawn.contains("a&lt;b") && !drawn.contains("NaN"));
        assert_eq!(chart(Axis::linear("x", format), Axis::log("y", format), &[(1.0, 0.0)]), "");
    }

    #[test]
    fn what_is_beyond_the_end_is_left_out() {
        let format = |value: f64| format!("{value}");
        let y = Axis { most: Some(10.0), ..Axis::linear("y", format) };
        let drawn = chart(Axis::linear("x", format), y, &[(0.0, 1.0), (1.0, 10.0), (2.0, 1e9)]);
        assert!(drawn.contains("points=\"76.0,230.0 383.0,14.0\""), "{drawn}");
    }
}
