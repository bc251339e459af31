//! The shards of one thread: as a rule one.
//!
//! A shard without a thread of its own goes beside another, on that one's thread: one that nobody needs for now
//! (`elastic.rs`), and one that is left over where a daemon has fewer threads than the one before it had shards. What a
//! shard holds cannot be mixed with what another holds: applications and peers know its calls by the numbers they have
//! there. One that has nothing to do is not looked at until its poller says that there is something.

use crate::clock::now;
use crate::handover::{self, Standing};
use crate::placement::permille;
use crate::shard::Shard;
use crate::shutdown::close;
use crate::token::Token;
use std::io;
use std::sync::Once;
use std::sync::mpsc::{Receiver, SendError, Sender};
use trunkline_call::Instant;
use trunkline_net::{Interest, plant_wall_clock};
use trunkline_shm::{Decision, cycle_ticks, monotonic_ns, take_turns, thread_cpu_ns};
use trunkline_telemetry::{TaxClocks, begin_tax, begin_tax_round, end_tax, note_idle_round};

/// Turns without anything to do after which a shard that is beside another rests.
const IDLE_TURNS_MAX: u32 = 64;

/// How busy a thread is, in parts of a thousand, that takes short turns from then on, and no more. One that has always
/// work has others come in between, and comes back soon. One that waits yields, and with a short turn gives too little
/// away for others to come.
const SHORT_TURNS_PERMILLE: u64 = 700;
const ORDINARY_TURNS_PERMILLE: u64 = 500;

/// How often one is looked at that cannot be watched.
const UNWATCHED_NS: u64 = 1_000_000;

/// Says once for the process that something keeps its threads from asking: only a filter of system calls does, since
/// the kernel lets every thread have such slices.
fn say_refused(error: &io::Error) {
    static SAID: Once = Once::new();
    if error.kind() == io::ErrorKind::PermissionDenied {
        SAID.call_once(
            || tracing::warn!(%error, "sched_setattr is refused: busy shards take ordinary slices"),
        );
    } else {
        tracing::debug!(%error, "the kernel gives no short turns");
    }
}

/// A shard, and where orders for its thread come. Commands to the shard itself reach it wherever it is; whoever gives
/// an order for its thread says so by [`Command::OrderThread`](crate::command::Command::OrderThread).
pub(crate) struct Threaded {
    pub shard: Shard,
    pub orders: Receiver<ThreadOrder>,
}

/// What the thread of a shard is to do.
pub(crate) enum ThreadOrder {
    /// Give the shard away, with those that are beside it if it is the first of its thread, which ends then.
    Give(Sender<Vec<Threaded>>),
    /// Take these in.
    Take(Vec<Threaded>),
}

/// The shards of a thread.
pub(crate) struct Group {
    /// The one that waits for all.
    first: Shard,
    orders: Receiver<ThreadOrder>,
    /// By their numbers: they hand over in this order.
    others: Vec<Beside>,
    /// Whether one of those does not rest, as far as is known; and when the first timer of those that do is due.
    others_stir: bool,
    others_due: Option<Instant>,
    /// The clock, as it was looked at last.
    looked: Instant,
    /// What was asked of the kernel for this thread.
    takes_short_turns: bool,
}

/// A shard on another's thread.
struct Beside {
    shard: Shard,
    orders: Receiver<ThreadOrder>,
    /// The other's poller tells when this one's has something.
    is_watched: bool,
    /// Every ring of it is armed, and nothing is to be done until its poller or a timer says so.
    rests: bool,
    due: Option<Instant>,
    idle_turns: u32,
}

impl Group {
    /// Shards on so many threads: the first on one each, the others beside them.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn spread(shards: Vec<Threaded>, threads: usize) -> std::io::Result<Vec<Self>> {
        let mut groups: Vec<Self> = Vec::new();
        for (index, shard) in shards.into_iter().enumerate() {
            match groups.get_mut(index % threads) {
                Some(group) => group.join(shard)?,
                None => groups.push(Self::new(shard)),
            }
        }
        Ok(groups)
    }

    /// All shards that another thread had; `None` without any.
    pub fn of(shards: Vec<Threaded>) -> Option<Self> {
        let mut shards = shards.into_iter();
        let mut group = Self::new(shards.next()?);
        shards.for_each(|shard| group.take_in(shard));
        Some(group)
    }

    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        std::iter::once(&self.first).chain(self.others.iter().map(|other| &other.shard))
    }

    pub fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        std::iter::once(&mut self.first).chain(self.others.iter_mut().map(|other| &mut other.shard))
    }

    fn new(Threaded { shard: first, orders }: Threaded) -> Self {
        Self {
            first,
            orders,
            others: Vec::new(),
            others_stir: false,
            others_due: None,
            looked: now(),
            takes_short_turns: false,
        }
    }

    fn join(&mut self, threaded: Threaded) -> std::io::Result<()> {
        self.first.poller.add(&threaded.shard.poller, Token::Beside.to_poller(), Interest::Read)?;
        self.insert(threaded, true);
        Ok(())
    }

    /// The same, when there is nobody to tell why it cannot be watched: it is looked at every millisecond then.
    fn take_in(&mut self, threaded: Threaded) {
        let poller = &threaded.shard.poller;
        let watched = self.first.poller.add(poller, Token::Beside.to_poller(), Interest::Read);
        if let Err(error) = &watched {
            tracing::error!(shard = threaded.shard.index, %error, "cannot watch a shard's poller");
        }
        self.insert(threaded, watched.is_ok());
    }

    fn insert(&mut self, Threaded { shard, orders }: Threaded, is_watched: bool) {
        let at = self.others.partition_point(|other| other.shard.index < shard.index);
        let beside = Beside { shard, orders, is_watched, rests: false, due: None, idle_turns: 0 };
        self.others.insert(at, beside);
        self.others_stir = true;
    }

    /// Turns until told to stop, or until all its shards have left.
    pub fn run(self) {
        let clocks = TaxClocks { ticks: cycle_ticks, wall_ns: monotonic_ns, cpu_ns: thread_cpu_ns };
        begin_tax(clocks, self.first.tax.clone());
        plant_wall_clock(self.first.wall_clock_set_by_ns);
        self.turn_until_told();
        end_tax();
    }

    fn turn_until_told(mut self) {
        self.each(handover::resume);
        self.first.load.resumes(now());
        while !self.first.stopping {
            if !self.turn() {
                self.wait();
            } else if self.first.load.turned() {
                self.look_at_clock();
            }
            // First: a shard that is on its way here would not be turned while this thread stands still.
            if std::mem::take(&mut self.first.thread_is_ordered) {
                match self.obey() {
                    Some(still_here) => self = still_here,
                    None => return,
                }
            }
            self.stand();
        }
        close(self.first);
        self.others.into_iter().for_each(|other| close(other.shard));
    }

    /// One turn of each that does not rest. Whether there was anything to do.
    fn turn(&mut self) -> bool {
        begin_tax_round();
        let worked = self.first.turn();
        let looks =
            self.others_stir || self.first.beside_rang || self.others_due.is_some_and(|at| at <= self.looked);
        let worked = if looks { self.turn_others() | worked } else { worked };
        if !worked {
            note_idle_round();
        }
        worked
    }

    fn turn_others(&mut self) -> bool {
        let (rang, looked) = (std::mem::take(&mut self.first.beside_rang), self.looked);
        let mut worked = false;
        for other in &mut self.others {
            if !other.rests {
                worked |= other.turn();
            } else if rang || other.due.is_some_and(|at| at <= looked) {
                worked |= other.wake();
            }
        }
        self.others_stir = self.others.iter().any(|other| !other.rests);
        self.others_due = self.others.iter().filter_map(|other| other.due).min();
        self.give_away();
        worked
    }

    /// Nothing to do: look a little longer, or block. Calls whose steps come soon pay for looking.
    fn wait(&mut self) {
        let within_ns = self.first.waiter.step_ns_max();
        let mut steps = 0;
        self.each(|shard| steps += shard.engine.take_quick_steps(within_ns));
        self.first.waiter.credit(steps);
        self.look_at_clock();
        self.first.waiter.begin(self.looked.0);
        loop {
            match self.first.waiter.decide(self.looked.0) {
                Decision::Spin => std::hint::spin_loop(),
                Decision::Yield => rustix::thread::sched_yield(),
                Decision::Block => break self.block(),
            }
            // Behind the yield: what others did on this core meanwhile is not what this thread was busy with.
            self.looked = now();
            if self.turn() {
                self.first.load.resumes(self.looked);
                break self.first.waiter.arrived(now().0);
            }
        }
    }

    /// Every ring is armed; then the poller sleeps.
    fn block(&mut self) {
        let armed = self.first.arm_all() && (!self.others_stir || self.others_rest());
        if !armed {
            self.first.crossings.disarm();
            self.first.load.resumes(self.looked);
            return self.first.waiter.arrived(now().0);
        }
        let due_ns = self.others_due.map(|at| at.since_ns(self.looked));
        let rest_ns = self.first.rest_ns().into_iter().chain(due_ns).min();
        let worked = self.first.sleep(rest_ns);
        self.looked = now();
        // What it did between waking up and now is little, and known of no other way.
        self.first.load.resumes(if worked { self.first.sockets_worked } else { self.looked });
        if worked {
            self.first.waiter.arrived(self.looked.0);
        } else {
            self.first.waiter.ran_dry();
        }
    }

    /// Has all others rest. `false`: one has something to do.
    fn others_rest(&mut self) -> bool {
        self.others_stir = !self.others.iter_mut().all(Beside::rest);
        self.others_due = self.others.iter().filter_map(|other| other.due).min();
        !self.others_stir
    }

    /// The thread has been busy until now. If an interval is over, the control thread may have to know.
    fn look_at_clock(&mut self) {
        self.looked = now();
        let Some(interval) = self.first.load.note(self.looked) else { return };
        self.choose_turns(interval);
        self.first.tell_load(interval);
        for other in self.others.iter_mut().filter(|other| !other.shard.sessions.is_empty()) {
            other.shard.tell_load(interval);
        }
    }

    /// Short turns while the thread is busy.
    fn choose_turns(&mut self, (interval_ns, busy_ns): (u64, u64)) {
        let short = wants_short_turns(permille(busy_ns, interval_ns), self.takes_short_turns);
        if short == self.takes_short_turns {
            return;
        }
        self.takes_short_turns = short;
        if let Err(error) = take_turns(short) {
            say_refused(&error);
        }
    }

    /// Stands still when all are to, and hands over. Comes back only if that was in vain.
    fn stand(&mut self) {
        if self.first.ordered_to_stand.is_none()
            || self.others.iter().any(|other| other.shard.ordered_to_stand.is_none())
        {
            return;
        }
        // All stand before any waits for the order to hand over, which comes to one after the other.
        let mut standing: Vec<(&mut Shard, Standing)> = Vec::new();
        let others = self.others.iter_mut().map(|other| &mut other.shard);
        for shard in std::iter::once(&mut self.first).chain(others) {
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
        self.others.iter_mut().for_each(|other| other.rests = false);
        self.others_stir = !self.others.is_empty();
    }

    /// Does what the thread was ordered to. `None`: all its shards have left, and it ends.
    fn obey(mut self) -> Option<Self> {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                ThreadOrder::Take(shards) => shards.into_iter().for_each(|one| self.take_in(one)),
                ThreadOrder::Give(reply) => {
                    // They come back if whoever asked has gone.
                    let short = self.takes_short_turns;
                    let Err(SendError(shards)) = reply.send(self.into_all()) else { return None };
                    self = Self { takes_short_turns: short, ..Self::of(shards)? };
                }
            }
        }
        Some(self)
    }

    fn into_all(self) -> Vec<Threaded> {
        for other in self.others.iter().filter(|other| other.is_watched) {
            let _ = self.first.poller.remove(&other.shard.poller);
        }
        let first = Threaded { shard: self.first, orders: self.orders };
        let others = self.others.into_iter().map(|Beside { shard, orders, .. }| Threaded { shard, orders });
        std::iter::once(first).chain(others).collect()
    }

    /// Shards beside the first that are asked for leave.
    fn give_away(&mut self) {
        while let Some(at) = self.others.iter().position(|other| other.shard.thread_is_ordered) {
            let Beside { mut shard, orders, is_watched, .. } = self.others.remove(at);
            shard.thread_is_ordered = false;
            if is_watched {
                let _ = self.first.poller.remove(&shard.poller);
            }
            match orders.try_recv() {
                Ok(ThreadOrder::Give(reply)) => {
                    if let Err(SendError(shards)) = reply.send(vec![Threaded { shard, orders }]) {
                        shards.into_iter().for_each(|one| self.take_in(one));
                    }
                }
                Ok(ThreadOrder::Take(shards)) => {
                    self.take_in(Threaded { shard, orders });
                    shards.into_iter().for_each(|one| self.take_in(one));
                }
                Err(_) => self.take_in(Threaded { shard, orders }),
            }
        }
    }

    fn each(&mut self, mut act: impl FnMut(&mut Shard)) {
        act(&mut self.first);
        self.others.iter_mut().for_each(|other| act(&mut other.shard));
    }
}

impl Beside {
    fn turn(&mut self) -> bool {
        let worked = self.shard.turn();
        self.idle_turns = if worked { 0 } else { self.idle_turns + 1 };
        if self.idle_turns >= IDLE_TURNS_MAX {
            self.rest();
        }
        worked
    }

    /// Has it rest, if nothing is to be done. `false`: there is.
    fn rest(&mut self) -> bool {
        if self.rests {
            return true;
        }
        self.idle_turns = 0;
        if !self.shard.arm_all() {
            self.shard.crossings.disarm();
            return false;
        }
        let unwatched_ns = (!self.is_watched).then_some(UNWATCHED_NS);
        let rest_ns = self.shard.rest_ns().into_iter().chain(unwatched_ns).min();
        if rest_ns == Some(0) {
            self.shard.crossings.disarm();
            return false;
        }
        (self.rests, self.due) = (true, rest_ns.map(|ns| now().plus_ns(ns)));
        true
    }

    /// Its poller has something, or a timer of it is due. Whether there was anything to do. What is due may be what
    /// only a turn does, and before the next the thread may sleep.
    fn wake(&mut self) -> bool {
        (self.rests, self.due) = (false, None);
        let worked = self.shard.sleep(Some(0));
        self.turn() | worked
    }
}

/// Of a thread that was so busy in an interval, and takes short turns or not.
fn wants_short_turns(busy_permille: u64, takes_them: bool) -> bool {
    match busy_permille {
        SHORT_TURNS_PERMILLE.. => true,
        ORDINARY_TURNS_PERMILLE.. => takes_them,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a shard without a thread of its own does what is due, though its thread sleeps whenever it may; and
    //! that one on its way to a thread stands still with it.
    use super::*;
    use crate::command::Command;
    use crate::handle::tests::{shards_at_rest, threaded_at_rest};
    use crate::handover::Stand;
    use crate::reports::AskedReport;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use trunkline_telemetry::Ask;

    const WATCHDOG: Duration = Duration::from_secs(60);

    #[test]
    fn a_report_that_had_to_wait_is_made_when_its_time_comes() {
        let (_daemon, shards) = shards_at_rest("[daemon]\nshards = 2");
        let threaded = shards.into_iter().map(|shard| Threaded { shard, orders: channel().1 }).collect();
        let Some(mut group) = Group::of(threaded) else { panic!("there are shards") };
        let beside = &mut group.others[0];
        assert!(beside.rest(), "nothing is to be done");
        let (reply, reported) = channel();
        beside.shard.reports.ask(AskedReport::Whole(Ask::default(), reply));
        // Its timer is due, and says so once.
        beside.wake();
        assert!(beside.shard.reports.is_under_way(), "only a turn makes reports");
        assert!(!beside.rest(), "there is more of it");
        assert!((0..1000).any(|_| !beside.turn() && reported.try_recv().is_ok()), "it is made in turns");
    }

    #[test]
    fn a_thread_takes_in_what_it_was_given_before_it_stands_still() {
        let (daemon, mut shards) = threaded_at_rest("[daemon]\nshards = 2\n");
        let (second, first) = (shards.pop().unwrap(), shards.pop().unwrap());
        let (order, orders) = channel();
        let (stands, standing) = channel();
        let _ = order.send(ThreadOrder::Take(vec![second]));
        daemon.shards()[0].send(Command::OrderThread);
        let leave = [0, 1].map(|shard: usize| {
            let (leave, given) = channel();
            daemon.shards()[shard].send(Command::Stand(Stand { stands: stands.clone(), leave: given }));
            leave
        });
        let thread = std::thread::spawn(move || Group::new(Threaded { orders, ..first }).run());
        for _ in 0..2 {
            standing.recv_timeout(WATCHDOG).expect("both stand still");
        }
        drop(leave);
        daemon.shards().iter().for_each(|shard| _ = shard.send(Command::Stop));
        thread.join().unwrap();
    }

    #[test]
    fn a_busy_thread_takes_short_turns_until_it_mostly_waits() {
        let steps = [(300, false), (650, false), (700, true), (550, true), (500, true), (499, false)];
        let mut short = false;
        for (busy_permille, expected) in steps {
            short = wants_short_turns(busy_permille, short);
            assert_eq!(short, expected, "busy for {busy_permille}");
        }
    }
}
