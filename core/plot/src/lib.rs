//! Charts as SVG, and pages of them.
//!
//! Four forms are enough for what is measured here: lines over an axis ([`LineChart`]), bars beside names
//! ([`BarChart`]), names divided into parts ([`StackChart`]), and a table whose cells are shaded ([`HeatChart`]). A
//! chart is plain data; `svg()` turns it into text. A [`ChartPage`] puts charts, tables and paragraphs into
//! one HTML file.
//!
//! Nothing here knows what the numbers mean: who makes a chart says how a number is written ([`Format`]).
//!
//! # Invariants
//! * What is drawn needs no other file, no script and no font of its own. Colours are classes with a light and a dark
//!   value, chosen by the reader's system; a chart outside of a page takes its style along ([`standalone`]).
//! * Any numbers give a chart: what is not finite, and what is not above zero on a logarithmic axis, is left out.
//! * Names are escaped, whoever chose them.
//!
//! # Limits
//! * [`COLOURS`] lines or parts have colours of their own; further ones begin anew.
#![forbid(unsafe_code)]

mod axis;
mod bars;
mod heat;
mod lines;
mod page;
mod stack;

pub use axis::{Axis, Format, Scale};
pub use bars::{BarChart, BarRow};
pub use heat::HeatChart;
pub use lines::{ChartLine, LineChart};
pub use page::{COLOURS, ChartPage, escape, standalone};
pub use stack::StackChart;
