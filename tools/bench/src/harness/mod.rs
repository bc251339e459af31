//! What every study needs and no study is: this program in its roles, orders and their answers, rounds that are taken
//! in turn. What processes cost and medians over rounds are in `trunkline-measure`.

pub mod business;
pub mod children;
pub mod orders;
pub mod rounds;
pub mod shell;
pub mod work;
