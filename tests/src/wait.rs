//! Waiting for an observed state.

use std::time::{Duration, Instant};

use anyhow::bail;

/// Distance between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// Looks until `look` says `Ok`; what it says in `Err` is what was seen instead, and the last one is in the error.
pub fn wait_until<T>(
    deadline: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, String>,
) -> anyhow::Result<T> {
    let began = Instant::now();
    loop {
        let seen = match look() {
            Ok(value) => return Ok(value),
            Err(seen) => seen,
        };
        if began.elapsed() >= deadline {
            bail!("waited {} s for {what}; seen last:\n{seen}", deadline.as_secs());
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input: a condition that comes true at the third look, and one that never does. Output: its value; the last
    /// observation.
    #[test]
    fn looks_again_and_tells_what_it_saw() {
        let mut looks = 0;
        let third = || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err(format!("look {looks}")) }
        };
        assert_eq!(wait_until(Duration::from_secs(5), "three", third).unwrap(), 3);
        let never = wait_until::<()>(Duration::ZERO, "the moon", || Err("clouds".into())).unwrap_err();
        assert_eq!(never.to_string(), "waited 0 s for the moon; seen last:\nclouds");
    }
}
