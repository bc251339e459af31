//! A router of R2P2 in a process of its own.

use super::{Process, until};

/// A running router.
pub struct Router {
    process: Option<Process>,
    namespace: Option<String>,
    listen: String,
    control: String,
}

impl Router {
    /// Starts a router; port 0 is any.
    pub fn start(namespace: Option<&str>, listen: &str, control: &str) -> Self {
        let (listen, control) = (listen.to_owned(), control.to_owned());
        let mut router = Self { process: None, namespace: namespace.map(str::to_owned), listen, control };
        router.restart();
        router
    }

    /// Kills it and starts another at the same ports.
    pub fn restart(&mut self) {
        self.process = None;
        let arguments = ["router", &self.listen, &self.control];
        let process = Process::start_within(self.namespace.as_deref(), &arguments, &[]);
        let ports = process.greeting().split_once(' ').expect("two ports");
        (self.listen, self.control) = (ports.0.to_owned(), ports.1.to_owned());
        self.process = Some(process);
    }

    /// Where clients call.
    pub fn endpoint(&self) -> String {
        format!("r2p2://{}", self.listen)
    }

    /// Where workers say how they stand.
    pub fn control(&self) -> &str {
        &self.control
    }

    /// What it says of itself.
    pub fn report(&mut self) -> String {
        self.process.as_mut().expect("it runs").ask("report")
    }

    /// Waits until a figure is what it should be.
    pub fn until(&mut self, name: &str, count: u64) {
        let wanted = format!("{name}={count}");
        let mut report = String::new();
        until(&format!("the router's {wanted}"), || {
            report = self.report();
            report.split(' ').any(|word| word == wanted).then_some(())
        });
    }
}
