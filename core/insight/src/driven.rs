//! What calls that `trunkline drive` made can have of a target, and what not.

use crate::words::short;
use serde::{Deserialize, Serialize};

/// How `trunkline drive` made calls: each stands for as many as the one it was made after.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrivenCalls {
    /// Calls took so many times as long as the others; the times in the rows are divided by it.
    pub time_scale: f64,
    /// No more calls were made below one.
    pub below_max: u32,
    /// No message was larger.
    pub message_bytes_max: u32,
    /// Handlers took so many times the processor time of those calls' handlers; what rows say is divided by it. 0: they
    /// waited.
    #[serde(default)]
    pub work: f64,
    /// Of a method with more calls below all of its calls, fewer were made. 0: the file does not say.
    #[serde(default)]
    pub method_below_max: u32,
    /// Calls that began in a second, and that were under way at most, with those above them. 0: the file does not say.
    #[serde(default)]
    pub rate: f64,
    #[serde(default)]
    pub in_flight_max: u32,
    /// Wires, stacks and queues were planted, too.
    #[serde(default)]
    pub planted: bool,
    /// Each of the four queues was planted by itself.
    #[serde(default)]
    pub queues_apart: bool,
}

/// What a page says of it, and what of queues that were planted together or by themselves.
const PLANTED: &str = " Wires, stacks and queues were planted: bytes between the daemons passed through relays that \
                       delay them, for each call the one whose time is nearest to that of the call; the caller had \
                       entered a call for the time of both stacks, and what the relay has too little of, before it \
                       published it;";
const PLANTED_TOGETHER: &str = " and it took the answer late by the time of all four queues. So stacks are those of \
                                requests, and queues those in which callers receive.";
const PLANTED_APART: &str = " Caller and server had a queue of their own \
                             for each of the four. So stacks are those of requests, and everything else is where it \
                             was in the file.";
const MEASURED: &str = " What is shown is what the daemons measured of it.";

impl DrivenCalls {
    /// What a page of them says first.
    pub fn words(&self) -> String {
        format!(
            "`trunkline drive` made these calls through daemons after the shape of recorded or generated ones: their \
             method, sizes, calls above and below, outcome, and the time until the answer. Each stands for as many \
             calls as the one it was made after. Calls took {} times as long as those, and all times here are divided \
             by that; at most {} calls were made below one, and no message was larger than {} bytes. {}{}",
            short(self.time_scale),
            self.below_max,
            self.message_bytes_max,
            match self.work {
                work if work > 0.0 => format!(
                    "Handlers worked {} times as long as those on their threads' clocks, and processor time here is \
                     divided by that.",
                    short(work)
                ),
                _ => "Handlers wait; they take hardly any processor time.".to_owned(),
            },
            match (self.planted, self.queues_apart) {
                (false, _) => String::new(),
                (true, false) => [PLANTED, PLANTED_TOGETHER, MEASURED].concat(),
                (true, true) => [PLANTED, PLANTED_APART, MEASURED].concat(),
            }
        )
    }

    /// Why a target of this figure is out of reach of them, which hosts of so many clusters made; `None` if it is not.
    pub(crate) fn reason(&self, figure: &str, name: &str, wanted: f64, clusters: usize) -> Option<String> {
        let waits = (self.work == 0.0).then_some("handlers wait and take hardly any processor time");
        let fixed = match figure {
            "1" => Some("they were made in minutes, not in two years"),
            "8" if name.contains("cycles") => waits,
            "10" | "11" if !self.planted => {
                Some("the handler has the time that is not a wire's, a stack's or a queue's of this machine")
            }
            "12" if !self.planted => {
                Some("these are the wires and stacks of one machine, not of data centres far apart")
            }
            "13" if !self.planted => Some("nothing else waits in this machine's queues"),
            "16" | "19" if clusters < 2 => Some("one host of one cluster made all calls"),
            "20" => Some("the daemons' part of a host that does nothing else is no part of a fleet's work"),
            "21" => waits,
            "23" if name.contains("cycles") => waits,
            _ => None,
        };
        let larger = || format!("no message is larger than {} bytes", self.message_bytes_max);
        match figure {
            "4" if wanted > f64::from(self.below_max) => {
                Some(format!("at most {} calls were made below one", self.below_max))
            }
            // A service's bytes and extreme ratios consist of its largest messages.
            "8" if name.contains("bytes") => Some(larger()),
            "7" if wanted > 100.0 => Some(larger()),
            _ => fixed.map(str::to_owned),
        }
    }
}
