//! Shows what a policy does where its parts meet, a file for each matter. They are one program, since linking one takes
//! longer than to compile most of them.

mod chain;
mod expressions;
mod modules;
mod oracle;
mod plans;
mod queue;
mod re2;
mod support;
