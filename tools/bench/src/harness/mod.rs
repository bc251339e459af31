//! What every study needs and no study is: processes that are started, told and ended, orders and their answers, rounds
//! that are taken in turn, what processes cost, and medians over rounds.

pub mod business;
pub mod children;
pub mod orders;
pub mod processes;
pub mod rounds;
pub mod shell;
pub mod stats;
pub mod work;
