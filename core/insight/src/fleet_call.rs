//! A call of a fleet, and its parts in seconds.

use trunkline_telemetry::{Component, FlightRow};

/// A call of a fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetCall {
    /// Number of its method in [`Fleet::methods`].
    pub method: u32,
    /// Number of its block in [`Fleet::heads`].
    pub block: u32,
    /// Calls it stands for.
    pub weight: f64,
    /// Calls above it; `None` if nobody told, and no tree that was recorded says so.
    pub ancestors: Option<u16>,
    /// The number of its trace in [`Fleet::traces`].
    pub trace: Option<u32>,
    /// The rest; its own numbers of method and host are those of its block.
    pub row: FlightRow,
}

impl FleetCall {
    /// Completion time in seconds.
    pub fn total_s(&self) -> f64 {
        self.row.components.total_ns() as f64 * 1e-9
    }

    /// A component in seconds.
    pub fn part_s(&self, component: Component) -> f64 {
        self.row.components[component] as f64 * 1e-9
    }

    /// Both wires, in seconds.
    pub fn wire_s(&self) -> f64 {
        self.part_s(Component::RequestWire) + self.part_s(Component::ResponseWire)
    }

    /// Both stacks, in seconds.
    pub fn stack_s(&self) -> f64 {
        self.part_s(Component::RequestStack) + self.part_s(Component::ResponseStack)
    }

    /// The four queues, in seconds.
    pub fn queue_s(&self) -> f64 {
        let queues = [
            Component::ClientSendQueue,
            Component::ServerReceiveQueue,
            Component::ServerSendQueue,
            Component::ClientReceiveQueue,
        ];
        queues.into_iter().map(|queue| self.part_s(queue)).sum()
    }

    /// Everything but the application, in seconds.
    pub fn tax_s(&self) -> f64 {
        self.row.components.tax_ns() as f64 * 1e-9
    }

    /// Processor time of the handler in seconds, if it told.
    pub fn cpu_s(&self) -> Option<f64> {
        (self.row.cpu_ns > 0).then(|| f64::from(self.row.cpu_ns) * 1e-9)
    }
}
