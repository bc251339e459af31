//! Shows what a native connection does where its parts meet, a file for each matter. They are one program, since
//! linking one takes longer than to compile most of them.

mod callers;
mod calls;
mod ends;
mod examples;
mod fairness;
mod hostile;
#[path = "../pair/mod.rs"]
mod pair;
