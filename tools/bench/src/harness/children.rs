//! Processes of a run: started by us, measured by their pids, ended by us.

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// An error of a bench process: printed, and the run or the peer ends.
pub type Failure = Box<dyn std::error::Error>;

/// A running server and the address it is called at.
pub type Serving = (Child, String);

/// Looks for a file or socket of a starting process, one every [`START_PAUSE`].
const START_LOOKS: u32 = 1000;
const START_PAUSE: Duration = Duration::from_millis(10);

/// A child process that is killed, by its pid, when dropped, and by the kernel when the thread that started it ends:
/// also where nothing of ours runs any more, because the run was killed.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
}

impl Child {
    /// This program again, in another role.
    pub fn role<S: AsRef<OsStr>>(arguments: &[S]) -> Result<Self, Failure> {
        Self::start(&mut Self::role_command(arguments)?)
    }

    /// How this program is started in another role.
    pub fn role_command<S: AsRef<OsStr>>(arguments: &[S]) -> Result<Command, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("role").args(arguments);
        Ok(command)
    }

    /// Any program.
    pub fn start(command: &mut Command) -> Result<Self, Failure> {
        let process = ending_with_us(command)?.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        Ok(Self { process })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `command` by way of this program, which asks to end with us and then [becomes](become_program) it, under the same
/// pid.
fn ending_with_us(command: &Command) -> Result<Command, Failure> {
    let mut with_us = Child::role_command(&["become"])?;
    with_us.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => with_us.env(name, value),
            None => with_us.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        with_us.current_dir(dir);
    }
    Ok(with_us)
}

/// Runs `program` in place of this one, to be killed when the thread that started us ends.
///
/// # Errors
/// When it cannot be started.
pub fn become_program(program: &str, arguments: &[&str]) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Err(format!("{program}: {}", Command::new(program).args(arguments).exec()).into())
}

/// A child that answers lines with lines.
#[derive(Debug)]
pub struct Talker {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Talker {
    /// Starts `command` with its standard input and output held by us.
    pub fn start(command: &mut Command) -> Result<Self, Failure> {
        let mut process = ending_with_us(command)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(orders), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a child without pipes".into());
        };
        let (sender, answers) = channel();
        // A thread, so that a child that never answers costs a time-out and not the run.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child: Child { process }, orders, answers })
    }

    /// One line there, one line back.
    ///
    /// # Errors
    /// When the child has gone, or takes longer than `patience`.
    pub fn ask(&mut self, line: &str, patience: Duration) -> Result<String, Failure> {
        self.tell(line)?;
        self.hear(patience)
    }

    /// One line there; what comes back is for [`Talker::hear`].
    pub fn tell(&mut self, line: &str) -> Result<(), Failure> {
        Ok(self.orders.write_all(format!("{line}\n").as_bytes())?)
    }

    /// The next line the child prints.
    pub fn hear(&mut self, patience: Duration) -> Result<String, Failure> {
        self.answers.recv_timeout(patience).map_err(|error| format!("no answer: {error}").into())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }
}

/// Starts something on one core, where it then stays: what a thread starts may run where the thread may.
pub fn on_core<T>(core: usize, start: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let before = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).map_err(|error| format!("core {core} cannot be used: {error}"))?;
    let started = start();
    sched_setaffinity(None, &before)?;
    started
}

/// Written aside and renamed, so that a reader sees all of it or nothing.
pub fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let aside = PathBuf::from(format!("{}.new", path.display()));
    std::fs::write(&aside, text)?;
    Ok(std::fs::rename(aside, path)?)
}

/// Written unless it is there as it should be: so that what is made from it is not made again.
pub fn write_changed(path: &Path, text: &str) -> Result<(), Failure> {
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        Ok(())
    } else {
        write_file(path, text)
    }
}

/// What comes of an attempt once it succeeds, for as long as a process may take to start.
///
/// # Errors
/// As the last attempt.
pub fn once_there<T, E: Into<Failure>>(mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, Failure> {
    for _ in 0..START_LOOKS {
        if let Ok(there) = attempt() {
            return Ok(there);
        }
        std::thread::sleep(START_PAUSE);
    }
    attempt().map_err(Into::into)
}

/// The contents of a file that a starting process writes.
pub fn wait_for_file(path: &Path) -> Result<String, Failure> {
    once_there(|| std::fs::read_to_string(path)).map_err(|why| format!("{}: {why}", path.display()).into())
}

/// A port nobody listens at just now: for programs that do not say which one they chose themselves.
pub fn free_port() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// Waits for a process that is to listen there.
pub fn wait_until_it_listens(mut process: Child, at: SocketAddr) -> Result<Serving, Failure> {
    once_there(|| match (TcpStream::connect(at), process.ended()) {
        (Ok(_), _) => Ok(Ok(())),
        (Err(_), Some(status)) => Ok(Err(format!("it ended at once: {status}"))),
        (Err(why), None) => Err(format!("it does not listen at {at}: {why}")),
    })??;
    Ok((process, at.to_string()))
}

/// A path of our own making as an argument.
///
/// # Panics
/// If it is not UTF-8: they are names below the temporary directory.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("bench paths are our own temporary names")
}
