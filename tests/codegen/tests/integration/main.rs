//! Shows what generated code does where its parts meet, a file for each matter. They are one program, since linking one
//! takes longer than to compile most of them.

mod agreement;
mod guide;
mod imports;
mod in_place;
mod stubs;
mod style;
mod support;
mod wide;
