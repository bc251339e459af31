//! The shards of one thread: as a rule one.
//!
//! A daemon that takes another's place may have fewer threads than the other had shards. What a shard holds cannot be
//! mixed with what another holds: applications and peers know its calls by the numbers they have there. So a shard that
//! is left over goes on beside one of the others, on that one's thread, takes in nothing new, and is gone at the next
//! replacement once it holds nothing.

use crate::clock::now;
use crate::handover::{self, Standing};
use crate::shard::Shard;
use crate::shutdown::close;
use crate::token::Token;
use trunkline_net::Interest;
use trunkline_shm::{Decision, take_short_turns};

/// The shards of a thread.
pub(crate) struct Group {
    /// The one that waits for all.
    first: Shard,
    others: Vec<Shard>,
}

impl Group {
    /// Shards on so many threads: the first on one each, those that are left over beside them.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn spread(shards: Vec<Shard>, threads: usize) -> std::io::Result<Vec<Self>> {
        let mut groups: Vec<Self> = Vec::new();
        for (index, first) in shards.into_iter().enumerate() {
            match groups.get_mut(index % threads) {
                Some(group) => group.join(first)?,
                None => groups.push(Self { first, others: Vec::new() }),
            }
        }
        Ok(groups)
    }

    fn join(&mut self, shard: Shard) -> std::io::Result<()> {
        self.first.poller.add(&shard.poller, Token::Beside.to_poller(), Interest::Read)?;
        self.others.push(shard);
        Ok(())
    }

    /// Turns until told to stop.
    pub fn run(mut self) {
        if let Err(error) = take_short_turns() {
            tracing::debug!(%error, "the kernel gives no short turns");
        }
        self.each(handover::resume);
        while !self.first.stopping {
            if !self.turn() {
                self.wait();
            }
            self.stand();
        }
        close(self.first);
        self.others.into_iter().for_each(close);
    }

    /// One turn of each. Whether there was anything to do.
    fn turn(&mut self) -> bool {
        let worked = self.first.turn();
        self.others.iter_mut().fold(worked, |worked, shard| shard.turn() | worked)
    }

    /// Nothing to do: look a little longer, or block. Calls whose steps come soon pay for looking.
    fn wait(&mut self) {
        let within_ns = self.first.waiter.step_ns_max();
        let mut steps = 0;
        self.each(|shard| steps += shard.engine.take_quick_steps(within_ns));
        self.first.waiter.credit(steps);
        self.first.waiter.begin(now().0);
        loop {
            match self.first.waiter.decide(now().0) {
                Decision::Spin => std::hint::spin_loop(),
                Decision::Yield => rustix::thread::sched_yield(),
                Decision::Block => break self.block(),
            }
            if self.turn() {
                break self.first.waiter.arrived(now().0);
            }
        }
    }

    /// Every ring is armed; then the poller sleeps.
    fn block(&mut self) {
        let mut armed = true;
        self.each(|shard| armed = armed && shard.arm_all());
        if !armed {
            self.each(|shard| shard.crossings.disarm());
            return self.first.waiter.arrived(now().0);
        }
        let mut rest_ns: Option<u64> = None;
        self.each(|shard| rest_ns = rest_ns.into_iter().chain(shard.rest_ns()).min());
        if self.first.sleep(rest_ns) {
            self.first.waiter.arrived(now().0);
        } else {
            self.first.waiter.ran_dry();
        }
        self.others.iter_mut().for_each(|shard| _ = shard.sleep(Some(0)));
    }

    /// Stands still when all are to, and hands over. Comes back only if that was in vain.
    fn stand(&mut self) {
        if self.first.ordered_to_stand.is_none()
            || self.others.iter().any(|one| one.ordered_to_stand.is_none())
        {
            return;
        }
        // All stand before any waits for the order to hand over, which comes to one after the other.
        let mut standing: Vec<(&mut Shard, Standing)> = Vec::new();
        for shard in std::iter::once(&mut self.first).chain(&mut self.others) {
            let Some(order) = shard.ordered_to_stand.take() else { continue };
            let stands = handover::stand(shard, order);
            standing.push((shard, stands));
        }
        let leaving: Vec<_> = standing
            .into_iter()
            .map(|(shard, stands)| {
                let leave = stands.wait();
                let sent = leave.map(|leave| handover::hand_over(shard, leave));
                (shard, sent)
            })
            .collect();
        for (shard, sent) in leaving {
            if let Some(sent) = sent {
                sent.wait();
            }
            handover::go_on(shard);
        }
    }

    fn each(&mut self, mut act: impl FnMut(&mut Shard)) {
        act(&mut self.first);
        self.others.iter_mut().for_each(act);
    }
}
