//! What the demo runs on: two daemons, a server, a folder for their sockets and logs.

use super::child::{Ran, Resident, run};
use super::error::DemoError;
use crate::admin::proto::ListRequest;
use crate::admin::proto::admin_client::AdminClient;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trunkline::{Channel, Request, Wait};

/// Time a process gets to be ready: indexing a large folder included.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Time one act may take.
const ACT_LIMIT: Duration = Duration::from_secs(60);
/// How often a process is asked whether it is ready.
const READY_LOOK: Duration = Duration::from_millis(10);

/// The processes and their folder. All end when it is dropped.
pub struct Stage {
    folder: TempDir,
    programs: PathBuf,
    residents: Arc<Mutex<Vec<Resident>>>,
    interrupted: Arc<AtomicBool>,
}

/// A running daemon.
#[derive(Clone)]
pub struct Host {
    /// What it calls itself.
    pub node: String,
    /// Where applications attach.
    pub socket: PathBuf,
    /// Its admin API.
    pub admin: AdminClient,
    /// Where peers connect.
    pub endpoint: String,
    /// Of its process.
    pub id: u32,
}

impl Stage {
    /// An empty stage with the example programs from `programs`, or from beside this one.
    ///
    /// # Errors
    /// [`DemoError::Programs`] if they are not there.
    pub fn new(programs: Option<&Path>) -> Result<Self, DemoError> {
        let own = std::env::current_exe()?;
        let beside = own.parent().map(Path::to_owned).unwrap_or_default();
        let programs = programs.map_or(beside, Path::to_owned);
        for name in ["search-server", "search-client"] {
            if !programs.join(name).is_file() {
                return Err(DemoError::Programs { name, folder: programs });
            }
        }
        let folder = tempfile::Builder::new().prefix("trunkline-demo-").tempdir()?;
        Ok(Self { folder, programs, residents: Arc::default(), interrupted: Arc::default() })
    }

    /// Ends everything and this process when it is interrupted.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn end_on_signals(&self) -> Result<(), DemoError> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let (residents, folder) = (Arc::clone(&self.residents), self.folder.path().to_owned());
        let interrupted = Arc::clone(&self.interrupted);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                interrupted.store(true, Ordering::Release);
                lock(&residents).clear();
                let _ = std::fs::remove_dir_all(folder);
                // The shell's convention for a program that a signal ended.
                std::process::exit(128 + signal);
            }
        })?;
        Ok(())
    }

    /// If a signal came, leaves the end of the process to the thread that takes signals: what fails from then on fails
    /// because the stage is being cleared.
    pub fn yield_to_signal(&self) {
        // SYNC: pairs with the Release in `end_on_signals`.
        while self.interrupted.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    /// Where the example programs are.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Where sockets, configurations and logs are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a daemon with this configuration and waits until it answers.
    ///
    /// # Errors
    /// [`DemoError::NotReady`] with its log.
    pub fn start_daemon(&self, node: &str, config: &str) -> Result<Host, DemoError> {
        let path = |kind: &str| self.folder.path().join(format!("{node}.{kind}"));
        std::fs::write(path("toml"), config)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--socket").arg(path("sock")).arg("daemon").arg("--until-stdin-closes");
        // Nothing is in flight when the demo ends, so nobody needs longer.
        command.arg("--config").arg(path("toml")).args(["--drain", "300ms"]);
        let id = self.start(node, command)?;
        let channel = Channel::builder().name("trunkline demo").socket(path("sock")).connect_lazy();
        let admin = AdminClient::new(channel);
        let list = self.wait_until(node, || admin.list(Request::new(ListRequest::default())).wait().ok())?;
        let endpoint = list.into_inner().listening.into_iter().next().unwrap_or_default();
        Ok(Host { node: node.into(), socket: path("sock"), admin, endpoint, id })
    }

    /// Starts the search server at a daemon and waits until it serves; returns its process id and what it said.
    ///
    /// # Errors
    /// [`DemoError::NotReady`] with its log.
    pub fn start_server(&self, host: &Host, folder: &Path) -> Result<(u32, String), DemoError> {
        let mut command = Command::new(self.programs.join("search-server"));
        command.arg("--socket").arg(&host.socket).arg("--until-stdin-closes").arg(folder);
        let name = "search-server";
        let id = self.start(name, command)?;
        let said = self.wait_until(name, || {
            let residents = lock(&self.residents);
            let log = residents.iter().find(|resident| resident.name() == name)?.log();
            log.contains("serving").then_some(log)
        })?;
        Ok((id, said))
    }

    /// Runs the search client at a daemon.
    ///
    /// # Errors
    /// [`DemoError::Act`] if it fails or takes too long.
    pub fn client(&self, host: &Host, arguments: &[&str], input: &str) -> Result<String, DemoError> {
        let mut command = Command::new(self.programs.join("search-client"));
        command.arg("--socket").arg(&host.socket).args(arguments);
        let act = format!("search-client {}", arguments.join(" "));
        let ran = self.run(&act, command, input)?;
        if ran.status.success() { Ok(ran.output) } else { Err(DemoError::Act { act, output: ran.output }) }
    }

    /// Runs this program at a daemon; returns its exit code, too.
    ///
    /// # Errors
    /// [`DemoError::Act`] if it takes too long.
    pub fn trunkline(&self, host: &Host, arguments: &[&str]) -> Result<(Option<i32>, String), DemoError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--socket").arg(&host.socket).args(arguments);
        let ran = self.run(&format!("trunkline {}", arguments.join(" ")), command, "")?;
        Ok((ran.status.code(), ran.output))
    }

    fn run(&self, act: &str, command: Command, input: &str) -> Result<Ran, DemoError> {
        let ran = run(command, input, &self.folder.path().join("act.out"), ACT_LIMIT)?;
        let late = || format!("no end after {} s\n{}", ACT_LIMIT.as_secs(), self.logs());
        ran.ok_or_else(|| DemoError::Act { act: act.into(), output: late() })
    }

    fn start(&self, name: &str, command: Command) -> Result<u32, DemoError> {
        let log = self.folder.path().join(format!("{name}.log"));
        let resident = Resident::start(name, command, log)?;
        let id = resident.id();
        lock(&self.residents).push(resident);
        Ok(id)
    }

    fn wait_until<T>(&self, name: &str, ready: impl Fn() -> Option<T>) -> Result<T, DemoError> {
        let until = Instant::now() + READY_LIMIT;
        loop {
            if let Some(what) = ready() {
                return Ok(what);
            }
            let mut residents = lock(&self.residents);
            let ended = residents.iter_mut().any(|resident| resident.name() == name && resident.has_ended());
            drop(residents);
            if ended || Instant::now() > until {
                return Err(DemoError::NotReady { name: name.into(), log: self.logs() });
            }
            std::thread::sleep(READY_LOOK);
        }
    }

    /// The last lines of every process's log, for a failure.
    fn logs(&self) -> String {
        let mut out = String::new();
        for resident in lock(&self.residents).iter() {
            let log = resident.log();
            let lines: Vec<&str> = log.lines().rev().take(10).collect();
            let _ = writeln!(out, "{}:", resident.name());
            lines.iter().rev().for_each(|line| {
                let _ = writeln!(out, "  {line}");
            });
        }
        out
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // In the order of calls: the server first, so that nobody is missed by somebody who still runs.
        let mut residents = lock(&self.residents);
        while let Some(mut resident) = residents.pop() {
            resident.end();
        }
    }
}

fn lock(residents: &Mutex<Vec<Resident>>) -> std::sync::MutexGuard<'_, Vec<Resident>> {
    residents.lock().unwrap_or_else(PoisonError::into_inner)
}
