//! The terminal while a program fills its screen: the other screen, no cursor, keys as they are pressed. It is as it
//! was when this is dropped, and when the program ends by a signal.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;
use std::io::{self, Write as _};
use trunkline_call::printable;

/// Lines and columns of a terminal that does not say how many it has.
const SIZE_USUAL: (usize, usize) = (24, 80);
/// To the other screen, and no cursor; back again (xterm's private modes 1049 and 25).
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the corner; the rest of a line, and of the screen, becomes empty (ECMA-48: CUP, EL, ED).
const CORNER: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";
/// The other way round, for what is marked; as usual (SGR).
const MARKED: &str = "\x1b[7m";
const USUAL: &str = "\x1b[0m";

/// A terminal that is filled.
pub struct Terminal {
    before: Option<Termios>,
}

impl Terminal {
    /// Takes it. `resized` is called whenever it has another size.
    pub fn take(resized: impl Fn() + Send + 'static) -> Self {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut each = before.clone();
            each.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // A terminal that cannot do so gives the key with its line.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &each);
        }
        let _ = write!(io::stdout(), "{ENTER}").and_then(|()| io::stdout().flush());
        let by_signal = before.clone();
        if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH]) {
            std::thread::spawn(move || {
                for signal in signals.forever() {
                    if signal != SIGWINCH {
                        restore(by_signal.as_ref());
                        // As a shell says of a program that a signal has ended.
                        std::process::exit(128 + signal);
                    }
                    resized();
                }
            });
        }
        Self { before }
    }

    /// Lines and columns.
    pub fn size() -> (usize, usize) {
        let size = tcgetwinsize(io::stdout()).map(|size| (size.ws_row.into(), size.ws_col.into()));
        size.ok().filter(|(lines, columns)| *lines > 0 && *columns > 0).unwrap_or(SIZE_USUAL)
    }

    /// Shows these lines, and nothing else; those with `true` are marked.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn show(&self, lines: &[(String, bool)]) -> io::Result<()> {
        let mut out = String::from(CORNER);
        for (at, (line, is_marked)) in lines.iter().enumerate() {
            out.push_str(if *is_marked { MARKED } else { "" });
            // Names are chosen by applications: what a terminal would obey is not for it.
            out.push_str(&printable(line));
            out.push_str(if *is_marked { USUAL } else { "" });
            out.push_str(REST_OF_LINE);
            // Behind the last there is none, or the screen would roll.
            out.push_str(if at + 1 < lines.len() { "\r\n" } else { "" });
        }
        out.push_str(REST_OF_SCREEN);
        io::stdout().write_all(out.as_bytes())?;
        io::stdout().flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore(self.before.as_ref());
    }
}

fn restore(before: Option<&Termios>) {
    let _ = write!(io::stdout(), "{LEAVE}").and_then(|()| io::stdout().flush());
    if let Some(before) = before {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
    }
}
