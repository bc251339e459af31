//! Shows what dispatching does where its parts meet, a file for each matter. They are one program, since linking one
//! takes longer than to compile most of them.

mod lines;
mod policies;
