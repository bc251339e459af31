//! What a unary call costs its caller in CPU time, the daemon's part aside: caller and a stand-in share one thread, so
//! nothing waits for anything.
#[path = "../tests/support/mod.rs"]
mod support;

use std::future::{Future, poll_fn};
use std::pin::pin;
use support::{EchoClient, Place, Text, channel, small};
use trunkline::block_on;
use trunkline_call::Code;
use trunkline_call::entry::{Completion, FREED_MAX, Submission};

const CALLS: u32 = 400_000;

fn main() {
    let place = Place::new();
    let client = EchoClient::new(channel(&place.path()));
    let text = Text::new("x".repeat(64));
    let mut peer = None;
    let mut began = cpu_ns();
    for round in 0..CALLS + 1000 {
        if round == 1000 {
            began = cpu_ns();
        }
        let mut call = pin!(client.say(text.clone()));
        block_on(poll_fn(|cx| {
            let polled = call.as_mut().poll(cx);
            if polled.is_pending() {
                let peer = peer.get_or_insert_with(|| place.accept_with(small(), 1000));
                answer(peer);
            }
            polled.map(|reply| drop(reply.unwrap()))
        }));
    }
    println!("{} ns of CPU per call, with the stand-in's part", (cpu_ns() - began) / u64::from(CALLS));
}

fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn answer(peer: &mut support::Peer) {
    if peer.paths.is_empty() {
        peer.answer_control();
        return;
    }
    while let Some(entry) = peer.end.submissions.pop().unwrap() {
        match Submission::decode(&entry).unwrap() {
            Submission::Call(call) => {
                let mut offsets = [0; FREED_MAX];
                offsets[0] = call.payload.unwrap().span.offset;
                peer.complete(&Completion::Freed { offsets });
                let payload = peer.put(&[0; 104]);
                peer.complete(&Completion::Finish(support::peer::finish(call.call, Code::Ok, Some(payload))));
            }
            Submission::Release { block, metadata, .. } => peer.take_back(block, metadata),
            other => panic!("{other:?}"),
        }
    }
}
