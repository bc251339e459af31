//! Shows what R2P2 does where its parts meet, a file for each matter. They are one program, since linking one takes
//! longer than to compile most of them.

mod envelope;
mod examples;
mod held;
mod hostile;
mod routing;
mod simulation;
mod waits;
mod world;
