//! The old daemon's side: starts the new program, leads through the steps, and takes everything back if one fails.

use super::kept_counts::KeptCounts;
use super::order::{LastLines, Leave, LeaveError, Moved, SentSets, Stand};
use super::records::{PARTS_MAX, RecordedPart};
use super::wire::{Channel, ChannelError, VERSION, Word};
use crate::command::{Command as ShardCommand, ControlMessage, ShardSender};
use crate::handle::Daemon;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::{FdFlags, fcntl_setfd};
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use trunkline_engine::GrpcLeft;
use trunkline_module::{Untrusted, check_trusted, open_regular};
use trunkline_shm::{ControlSocket, monotonic_ns};
use trunkline_telemetry::CallsAsk;

/// How often gRPC connections are looked at while they end.
const LOOK: Duration = Duration::from_millis(5);
/// Longest nothing new is begun over gRPC before this daemon stands still: a client hears GOAWAY and leaves within a
/// round trip or two, a call that is short ends.
const HOLD_MAX: Duration = Duration::from_secs(1);
/// Shortest it is held if not everybody leaves at once, whatever grace is given: answers that are there get out.
const HOLD_MIN: Duration = Duration::from_millis(100);
/// Longest a call is waited for that one of this daemon's own services has begun: it could not be answered by another
/// process, and a probe would take a replacement for a failure.
const OWN_MAX: Duration = Duration::from_secs(10);

/// How often the new daemon is asked while gRPC calls end: it gives a daemon up that says nothing for two minutes.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// How often it is looked whether the hand-over is still wanted, until the new daemon has said its first word.
const WANTED_LOOK: Duration = Duration::from_millis(50);

/// Longest the last lines of the access log are waited for: some thousands a shard. The other daemon serves meanwhile.
const LAST_LINES_MAX: Duration = Duration::from_secs(2);

/// Longest it takes a process whose files are closed to have ended.
const ENDS_MAX: Duration = Duration::from_millis(500);

/// Whom to hand over to.
#[derive(Clone, Debug)]
pub struct HandOver {
    /// The program.
    pub binary: PathBuf,
    /// Its arguments; the number of the channel's descriptor is appended.
    pub arguments: Vec<OsString>,
    /// What the program of this daemon is called.
    pub build: String,
    /// What is known of what was counted, for the new daemon to go on with.
    pub counts: KeptCounts,
    /// Time gRPC connections get for their calls to end.
    pub grace: Duration,
    /// Longest the new daemon may take to say that it can take over: to start, to read a configuration, to load
    /// modules. This daemon serves meanwhile.
    pub start_max: Duration,
    /// Longest one step may take from there on: it bounds how long this daemon stands still.
    pub step_max: Duration,
}

/// How far a hand-over is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The program runs.
    Started {
        /// The program.
        binary: PathBuf,
        /// Its process.
        process: u32,
    },
    /// It can take over.
    Able {
        /// What it is called.
        build: String,
    },
    /// It has what takes time to build.
    Prepared,
    /// gRPC calls have ended, but for so many.
    Drained {
        /// Calls that end as UNAVAILABLE.
        left: usize,
    },
    /// So many of this daemon's threads stand still, and what they had is sent.
    Standing(usize),
    /// Everything is sent.
    Sent,
    /// It has everything.
    Ready,
    /// It is the daemon.
    Gone,
}

/// What was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The new daemon's process.
    pub process: u32,
    /// What its program is called.
    pub build: String,
    /// Sessions of applications.
    pub sessions: usize,
    /// Connections to other daemons.
    pub connections: usize,
    /// Calls in flight.
    pub calls: usize,
    /// Time this daemon stood still until it let go.
    pub stood_ns: u64,
}

/// Why this daemon goes on.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// The program cannot be started.
    #[error("cannot start {}: {error}", binary.display())]
    Start {
        /// The program.
        binary: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// The program could have been written by somebody who has not the daemon's rights.
    #[error("cannot start the program: {0}")]
    Untrusted(#[from] Untrusted),
    /// It says that it cannot take over.
    #[error("the new daemon cannot take over: {0}")]
    Refused(String),
    /// It took too long, or this daemon could not tell it something.
    #[error("the new daemon did not take over: {0}")]
    Lost(String),
    /// It closed the channel, and did not end at once.
    #[error("the new daemon did not take over: it closed the channel")]
    Closed,
    /// It ended by itself before it could take over.
    #[error(
        "{}, process {process}, ended before it took over ({status}); if it said why, that stands in the daemon's log",
        binary.display()
    )]
    Died {
        /// The program.
        binary: PathBuf,
        /// Its process.
        process: u32,
        /// How.
        status: ExitStatus,
    },
    /// It is wanted no longer.
    #[error("it was called off")]
    CalledOff,
    /// A thread of this daemon does not stop.
    #[error("this daemon cannot hand over: {0}")]
    Own(String),
}

impl Daemon {
    /// Hands everything to a new process. On success this daemon's threads stand still for good, and the process
    /// is to end *without* dropping it ([`std::process::exit`]). `tell` hears of every step. While this daemon serves,
    /// and waits for the new one to start and for gRPC calls to end, it asks whether that `is_wanted` still.
    ///
    /// # Errors
    /// [`HandOverError`]: the new process is gone, and this daemon goes on as if nothing had been.
    pub fn hand_over(
        &self,
        order: &HandOver,
        tell: &mut dyn FnMut(Step),
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Handed, HandOverError> {
        let (mut child, socket) = start(order)?;
        tell(Step::Started { binary: order.binary.clone(), process: child.id() });
        let handed = self.lead((order, is_wanted), child.id(), socket, tell);
        let handed = handed.map_err(|error| bury(&mut child, order, error));
        if handed.is_err() {
            self.shards().iter().for_each(|shard| {
                shard.send(ShardCommand::StayWithGrpc);
            });
        }
        handed
    }

    fn lead(
        &self,
        (order, is_wanted): (&HandOver, &dyn Fn() -> bool),
        process: u32,
        socket: ControlSocket,
        tell: &mut dyn FnMut(Step),
    ) -> Result<Handed, HandOverError> {
        let own = |error: io::Error| HandOverError::Own(error.to_string());
        let channel = Arc::new(Channel::new(socket, order.start_max).map_err(own)?);
        let (process_id, shards) = (std::process::id(), self.shards().len());
        let hello = Word::Hello {
            version: VERSION,
            build: order.build.clone(),
            process: process_id,
            shards,
            listening: Some(self.endpoints.names()),
        };
        let (build, prepares, counts, records, tells_apart) =
            match first_word(&channel, &hello, (order.start_max, is_wanted))? {
                Word::Able { build, prepares, counts, records, tells_apart } => {
                    (build, prepares, counts, records, tells_apart)
                }
                Word::Unable { why } => return Err(HandOverError::Refused(why)),
                other => return Err(HandOverError::Refused(format!("it answered {other:?}"))),
            };
        tell(Step::Able { build: build.clone() });
        let mut recorded = vec![0; if records { shards } else { 0 }];
        if records {
            channel.send(&Word::Past(Box::new(order.counts.history.clone())), &[]).map_err(lost)?;
            self.send_recorded(&channel, &mut recorded)?;
        }
        if tells_apart {
            let told_apart = Box::new(order.counts.told_apart.clone());
            channel.send(&Word::ToldApart(told_apart), &[]).map_err(lost)?;
        }
        let sets = Arc::new(SentSets::new(prepares));
        self.send_schemas(&channel, &sets)?;
        tell(Step::Prepared);
        let left = self.drain_grpc(order.grace, &mut while_draining(&channel, &sets, is_wanted))?;
        // Those that were bound meanwhile.
        self.send_schemas(&channel, &sets)?;
        self.send_recorded(&channel, &mut recorded)?;
        tell(Step::Drained { left });
        // A change that was written down and not handed over would come back at the next start.
        let unchanging = self.kept.hold();
        let stopped_ns = monotonic_ns();
        channel.set_step_max(order.step_max).map_err(own)?;
        let (moved, standing) =
            self.stop_and_send(&channel, (&sets, counts, recorded.into()), order.step_max, tell)?;
        channel.send(&Word::End { stopped_ns }, &[]).map_err(lost)?;
        tell(Step::Sent);
        match channel.next().map_err(lost)?.0 {
            Word::Ready => {}
            Word::Failed { why } | Word::Unable { why } => return Err(HandOverError::Refused(why)),
            other => return Err(HandOverError::Refused(format!("it answered {other:?}"))),
        }
        tell(Step::Ready);
        // A packet arrives whole or is refused whole. Once it was taken there is no way back: the other daemon has it.
        channel.send(&Word::Go, &[]).map_err(lost)?;
        let stood_ns = monotonic_ns() - stopped_ns;
        write_last_lines(&standing);
        // The threads that wait for these stand still until the process ends.
        std::mem::forget((standing, unchanging));
        tell(Step::Gone);
        let Moved { sessions, connections, calls } = moved;
        Ok(Handed { process, build, sessions, connections, calls, stood_ns })
    }

    /// Sends what takes time to build while this daemon still serves, and waits until it is built.
    fn send_schemas(&self, channel: &Channel, sets: &SentSets) -> Result<(), HandOverError> {
        let mut any = false;
        for shard in self.shards() {
            for set in shard.ask(|reply| ShardCommand::Sources { reply }).unwrap_or_default() {
                any |= sets.send(channel, &set).map_err(lost)?.is_new;
            }
        }
        if any && sets.are_prepared() { prepare(channel) } else { Ok(()) }
    }

    /// Sends the calls that shards have recorded since these numbers, while they turn. What is behind
    /// [`PARTS_MAX`] parts is sent when they stand.
    fn send_recorded(&self, channel: &Channel, from: &mut [u64]) -> Result<(), HandOverError> {
        for (index, (shard, from)) in self.shards().iter().zip(from).enumerate() {
            for _ in 0..PARTS_MAX {
                let ask = CallsAsk::all_from(*from);
                let Some(calls) = shard.ask(|reply| ShardCommand::Calls { ask, reply }) else { break };
                let more = calls.more;
                *from = calls.next;
                if let Some(part) = RecordedPart::of(calls) {
                    channel.send(&Word::Recorded { shard: index, part }, &[]).map_err(lost)?;
                }
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Has gRPC connections end with their calls, as far as they do within `grace`: those that are there first, so
    /// that a long call holds up nobody else; then, for a moment in which nothing new is begun, all. In between this
    /// daemon's own services answer what they have begun. How many calls are left.
    fn drain_grpc(
        &self,
        grace: Duration,
        meanwhile: &mut dyn FnMut() -> Result<(), HandOverError>,
    ) -> Result<usize, HandOverError> {
        let leave = |hold| {
            let ask = |shard: &ShardSender| shard.ask(|reply| ShardCommand::LeaveGrpc { hold, reply });
            self.shards().iter().filter_map(ask).fold(GrpcLeft::default(), |sum, shard| GrpcLeft {
                unfinished: sum.unfinished + shard.unfinished,
                calls: sum.calls + shard.calls,
            })
        };
        let own_calls = || {
            let ask = |shard: &ShardSender| shard.ask(|reply| ShardCommand::HoldOwnServices { reply });
            self.shards().iter().filter_map(ask).sum::<usize>()
        };
        let mut wait = |is_over: &dyn Fn() -> bool, longest: Duration| {
            let began = Instant::now();
            while !is_over() && began.elapsed() < longest {
                meanwhile()?;
                std::thread::park_timeout(LOOK);
            }
            Ok::<(), HandOverError>(())
        };
        let hold_max = HOLD_MAX.min(grace.max(HOLD_MIN));
        wait(&|| leave(false).unfinished == 0, grace)?;
        wait(&|| own_calls() == 0, OWN_MAX)?;
        wait(&|| leave(true).unfinished == 0, hold_max)?;
        Ok(leave(true).calls)
    }

    /// Stops the control thread, then every shard; each sends its parts and stands still. What holds them is dropped
    /// when one fails, and all go on.
    fn stop_and_send(
        &self,
        to: &Arc<Channel>,
        (sets, counts, recorded): (&Arc<SentSets>, bool, Arc<[u64]>),
        step_max: Duration,
        tell: &mut dyn FnMut(Step),
    ) -> Result<(Moved, Vec<Sender<LastLines>>), HandOverError> {
        let (mut moved, mut standing) = (Moved::default(), Vec::new());
        let mut part = |give: &dyn Fn(Box<Leave>)| {
            let (done, sent) = channel();
            let (holds, in_vain) = channel();
            let (channel, sets, recorded) = (Arc::clone(to), Arc::clone(sets), Arc::clone(&recorded));
            give(Box::new(Leave { channel, sets, counts, recorded, done, in_vain }));
            standing.push(holds);
            let part = match sent.recv_timeout(step_max) {
                Ok(Ok(part)) => part,
                Ok(Err(LeaveError::Channel(error))) => return Err(lost(error)),
                Ok(Err(error)) => return Err(HandOverError::Own(error.to_string())),
                Err(RecvTimeoutError::Timeout) => return Err(HandOverError::Own("a thread hangs".into())),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(HandOverError::Own("a thread has ended".into()));
                }
            };
            moved.sessions += part.sessions;
            moved.connections += part.connections;
            moved.calls += part.calls;
            tell(Step::Standing(standing.len()));
            Ok(())
        };
        part(&|leave| self.tell_control(ControlMessage::Leave(leave)))?;
        let orders = self.stop_shards(step_max)?;
        for order in &orders {
            part(&|leave| {
                // A shard that has ended drops the order, which is noticed.
                let _ = order.send(leave);
            })?;
        }
        Ok((moved, standing))
    }

    /// Has every shard stand still, with what it has said to the others in their queues. They go on when what gives
    /// them the next order is dropped without.
    fn stop_shards(&self, step_max: Duration) -> Result<Vec<Sender<Box<Leave>>>, HandOverError> {
        let (stands, standing) = channel();
        let mut orders = Vec::new();
        for shard in self.shards() {
            let (order, leave) = channel();
            let _ = shard.send(ShardCommand::Stand(Stand { stands: stands.clone(), leave }));
            orders.push(order);
        }
        drop(stands);
        for _ in &orders {
            standing.recv_timeout(step_max).map_err(|error| match error {
                RecvTimeoutError::Timeout => HandOverError::Own("a thread hangs".into()),
                RecvTimeoutError::Disconnected => HandOverError::Own("a thread has ended".into()),
            })?;
        }
        Ok(orders)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { binary, process } => write!(f, "started {}, process {process}", binary.display()),
            Self::Able { build } => write!(f, "it is {build} and can take over"),
            Self::Prepared => f.write_str("it has the schemas"),
            Self::Drained { left: 0 } => f.write_str("no gRPC call is under way"),
            Self::Drained { left: 1 } => {
                f.write_str("1 gRPC call has not ended in time and will end as UNAVAILABLE")
            }
            Self::Drained { left } => {
                write!(f, "{left} gRPC calls have not ended in time and will end as UNAVAILABLE")
            }
            Self::Standing(1) => f.write_str("1 of this daemon's threads stands still"),
            Self::Standing(threads) => write!(f, "{threads} of this daemon's threads stand still"),
            Self::Sent => f.write_str("everything is sent"),
            Self::Ready => f.write_str("it has everything"),
            Self::Gone => f.write_str("it is the daemon"),
        }
    }
}

/// Has the control thread, which stands first, write down what shards have told it since it stands.
fn write_last_lines(standing: &[Sender<LastLines>]) {
    let (written, done) = channel();
    if standing.first().is_some_and(|control| control.send(written).is_ok()) {
        let _ = done.recv_timeout(LAST_LINES_MAX);
    }
}

/// What the new program answers to `hello`, once it has started.
fn first_word(
    channel: &Channel,
    hello: &Word,
    (longest, is_wanted): (Duration, &dyn Fn() -> bool),
) -> Result<Word, HandOverError> {
    channel.send(hello, &[]).map_err(lost)?;
    let began = Instant::now();
    while !channel.has_word(WANTED_LOOK).map_err(lost)? {
        if !is_wanted() {
            return Err(HandOverError::CalledOff);
        }
        if began.elapsed() >= longest {
            return Err(lost(ChannelError::Silent));
        }
    }
    Ok(channel.next().map_err(lost)?.0)
}

/// What is to be done again and again while gRPC calls end, which may take as long as whoever asked has wished: to
/// notice that the hand-over is wanted no longer, or that the new daemon has gone, and to keep that one from giving up.
fn while_draining(
    channel: &Channel,
    sets: &SentSets,
    is_wanted: &dyn Fn() -> bool,
) -> impl FnMut() -> Result<(), HandOverError> {
    let mut asked = Instant::now();
    move || {
        if !is_wanted() {
            return Err(HandOverError::CalledOff);
        }
        // It says nothing by itself, unless that is its last word.
        if channel.has_word(Duration::ZERO).map_err(lost)? {
            return answered(channel);
        }
        if sets.are_prepared() && asked.elapsed() >= ASK_EVERY {
            asked = Instant::now();
            return prepare(channel);
        }
        Ok(())
    }
}

/// Has the new daemon build what it was sent, and waits until it has.
fn prepare(channel: &Channel) -> Result<(), HandOverError> {
    channel.send(&Word::Prepare, &[]).map_err(lost)?;
    answered(channel)
}

fn answered(channel: &Channel) -> Result<(), HandOverError> {
    match channel.next().map_err(lost)?.0 {
        Word::Prepared => Ok(()),
        Word::Failed { why } | Word::Unable { why } => Err(HandOverError::Refused(why)),
        other => Err(HandOverError::Refused(format!("it answered {other:?}"))),
    }
}

/// Starts the program with one end of a channel.
fn start(order: &HandOver) -> Result<(Child, ControlSocket), HandOverError> {
    let failed = |error: io::Error| HandOverError::Start { binary: order.binary.clone(), error };
    let (ours, theirs) = ControlSocket::pair().map_err(|error| failed(io::Error::other(error)))?;
    let theirs = OwnedFd::from(theirs);
    // The one descriptor the new program keeps. This process starts no other meanwhile.
    fcntl_setfd(theirs.as_fd(), FdFlags::empty()).map_err(|error| failed(error.into()))?;
    let number = theirs.as_raw_fd().to_string();
    let program = program(&order.binary)?;
    // The file that was looked at, whatever lies at the path by now; the new program still learns its path.
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg0(&order.binary).args(&order.arguments).arg(number);
    let child = command.spawn().map_err(failed)?;
    Ok((child, ours))
}

/// The program, open. It gets the rights of this daemon, so it must be one that nobody else could have written, unless
/// it is the very file this daemon runs.
fn program(path: &Path) -> Result<File, Untrusted> {
    let file = open_regular(path)?;
    let place = |found: Metadata| (found.dev(), found.ino());
    let own = std::fs::metadata("/proc/self/exe").map(place);
    match (file.metadata().map(place), own) {
        (Ok(found), Ok(own)) if found == own => {}
        _ => check_trusted(path, &file)?,
    }
    let mut first = [0; 2];
    if file.read_at(&mut first, 0).is_ok_and(|read| read == 2) && &first == b"#!" {
        let problem =
            format!("{} is a script, which its interpreter would look up by its path again", path.display());
        return Err(Untrusted { problem, advice: "name the program itself".into() });
    }
    Ok(file)
}

/// Ends what did not take over. If it has ended by itself, that is why; where something else failed, it ends because of
/// that.
fn bury(child: &mut Child, order: &HandOver, error: HandOverError) -> HandOverError {
    let ended = if matches!(error, HandOverError::Closed) { ended(child) } else { None };
    // It may have ended by itself; then there is nothing to end.
    let _ = child.kill();
    let _ = child.wait();
    match ended {
        Some(status) => HandOverError::Died { binary: order.binary.clone(), process: child.id(), status },
        None => error,
    }
}

/// How it ended, if it did so by itself: a moment passes between the end of its files and its own.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    let until = Instant::now() + ENDS_MAX;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < until => std::thread::park_timeout(LOOK),
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
}

fn lost(error: ChannelError) -> HandOverError {
    match error {
        ChannelError::Ended => HandOverError::Closed,
        error => HandOverError::Lost(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    //! Shows which programs a daemon gives its rights to.
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    fn refused(path: &Path) -> String {
        program(path).expect_err("is refused").to_string()
    }

    #[test]
    fn only_programs_that_nobody_else_could_have_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        assert!(refused(&path).contains("No such file"), "{}", refused(&path));
        std::fs::write(&path, "\x7fELF").unwrap();
        mode(0o755);
        assert!(program(&path).is_ok());
        for writable in [0o775, 0o757] {
            mode(writable);
            assert!(refused(&path).contains("may be written by others"), "{}", refused(&path));
        }
        mode(0o755);
        assert!(refused(folder.path()).contains("is no regular file"));
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(refused(&path).contains("is a script"));
        if chown(&path, Some(12_345), None).is_ok() {
            assert!(refused(&path).contains("belongs to user 12345"), "{}", refused(&path));
        }
    }

    /// Whoever could have written it has these rights already, or could have had them long ago.
    #[test]
    fn the_program_of_this_very_process_is_not_asked_about() {
        assert!(program(&std::env::current_exe().unwrap()).is_ok());
    }
}
