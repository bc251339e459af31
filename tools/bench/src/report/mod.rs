//! What a run says: sheets of figures, and from them tables, plots and marks. Nothing here knows what was measured.

pub mod document;
mod marks;
mod page;
mod plots;
pub mod sheet;
