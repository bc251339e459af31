//! The keyboard under a picture that is shown again and again: `q` leaves.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Read};

/// A terminal that gives keys as they are pressed, and shows none. It is as it was when this is dropped, and when the
/// program ends by a key or a signal.
pub struct Keys {
    before: Option<Termios>,
}

/// Whether a key leaves: `q`, and what ends an input (control-D).
fn leaves(key: u8) -> bool {
    matches!(key, b'q' | b'Q' | 4)
}

impl Keys {
    /// Watches the keyboard, if standard input is one.
    pub fn watch() -> Self {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut each = before.clone();
            each.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // A terminal that cannot do so gives the key with its line.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &each);
            let (by_key, by_signal) = (before.clone(), before.clone());
            std::thread::spawn(move || until_left(&by_key));
            if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) {
                std::thread::spawn(move || {
                    if let Some(signal) = signals.forever().next() {
                        // As a shell says of a program that a signal has ended.
                        leave(&by_signal, 128 + signal);
                    }
                });
            }
        }
        Self { before }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            restore(before);
        }
    }
}

fn until_left(before: &Termios) {
    for key in io::stdin().lock().bytes().map_while(Result::ok) {
        if leaves(key) {
            leave(before, 0);
        }
    }
}

fn leave(before: &Termios, code: i32) -> ! {
    restore(before);
    std::process::exit(code)
}

fn restore(before: &Termios) {
    // A terminal that is gone needs nothing.
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
}
