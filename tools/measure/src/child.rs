//! Child processes: started by us, told and heard, ended by us.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// An error of a process that is measured: printed, and the run ends.
pub type Failure = Box<dyn std::error::Error>;

/// A running server and the address it is called at.
pub type Serving = (Child, String);

/// Looks for a file or socket of a starting process, one every [`START_PAUSE`].
const START_LOOKS: u32 = 6000;
const START_PAUSE: Duration = Duration::from_millis(10);

/// A child process that is killed, by its pid, when dropped.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
}

impl Child {
    /// Starts `command` with neither input nor output.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, Failure> {
        Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?.into())
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

impl From<std::process::Child> for Child {
    fn from(process: std::process::Child) -> Self {
        Self { process }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
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
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, Failure> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
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
        Ok(Self { child: process.into(), orders, answers })
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
    ///
    /// # Errors
    /// When the child has gone.
    pub fn tell(&mut self, line: &str) -> Result<(), Failure> {
        Ok(self.orders.write_all(format!("{line}\n").as_bytes())?)
    }

    /// The next line the child prints.
    ///
    /// # Errors
    /// As [`Talker::ask`].
    pub fn hear(&mut self, patience: Duration) -> Result<String, Failure> {
        self.answers.recv_timeout(patience).map_err(|error| format!("no answer: {error}").into())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }
}

/// Writes a file aside and renames it, so that a reader sees all of it or nothing.
///
/// # Errors
/// When it cannot be written.
pub fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let aside = PathBuf::from(format!("{}.new", path.display()));
    std::fs::write(&aside, text)?;
    Ok(std::fs::rename(aside, path)?)
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
///
/// # Errors
/// It is not there in time.
pub fn wait_for_file(path: &Path) -> Result<String, Failure> {
    once_there(|| std::fs::read_to_string(path)).map_err(|why| format!("{}: {why}", path.display()).into())
}

/// A port nobody listens at just now: for programs that do not say which one they chose themselves.
///
/// # Errors
/// If there is none.
pub fn free_port() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// An address of this host that nobody else is given, for a process to listen at that takes no port 0: in the network
/// 127.0.0.0/8 each process has an address of its own, at which the kernel gives no port to anybody who asks for any.
/// It stays free until somebody listens there, also where that is later or again.
///
/// # Errors
/// If there is none.
pub fn own_address() -> Result<SocketAddr, Failure> {
    static NEXT_PORT: AtomicU16 = AtomicU16::new(20_000);
    // The kernel's numbers of processes have 22 bits at most (proc(5), `pid_max`).
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, 128 + high % 64, middle, low);
    let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
    Ok(TcpListener::bind((own, port))?.local_addr()?)
}

/// Waits for a process that is to listen there.
///
/// # Errors
/// It ended, or does not listen in time.
pub fn wait_until_it_listens(mut process: Child, at: SocketAddr) -> Result<Serving, Failure> {
    once_there(|| match (TcpStream::connect(at), process.ended()) {
        (Ok(_), _) => Ok(Ok(())),
        (Err(_), Some(status)) => Ok(Err(format!("it ended at once: {status}"))),
        (Err(why), None) => Err(format!("it does not listen at {at}: {why}")),
    })??;
    Ok((process, at.to_string()))
}
