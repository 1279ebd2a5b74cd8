//! Progress lines on standard error.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Says what is being waited for: each line with the time since the start.
pub struct Progress {
    began: Instant,
    quiet: bool,
    last: String,
}

impl Progress {
    /// Starts the clock.
    pub fn new(quiet: bool) -> Self {
        Self { began: Instant::now(), quiet, last: String::new() }
    }

    /// Prints a line, unless it says the same as the one before.
    pub fn say(&mut self, text: &str) {
        if self.quiet || text == self.last {
            return;
        }
        text.clone_into(&mut self.last);
        let seconds = self.began.elapsed().as_secs_f64();
        let dim = std::io::stderr().is_terminal();
        let (on, off) = if dim { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        // a closed standard error must not end the work
        let _ = writeln!(std::io::stderr(), "{on}{seconds:6.1} s{off}  {text}");
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}
