//! Which clock a guest under emulation gets.
//!
//! Under TCG the guest's time-stamp counter is the machine's own. Where the machine itself trusts it, the guest is told its
//! rate and to trust it too: it then boots without calibrating anything, and reads a nanosecond clock without leaving the
//! emulated processor. Elsewhere the guest gets an HPET, which costs a device access for each reading.

use std::fs;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The guest's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// The machine's time-stamp counter, at so many kHz.
    Counter {
        /// Counts per millisecond.
        khz: u64,
    },
    /// An emulated HPET.
    Hpet,
    /// What the hypervisor offers (KVM).
    Hypervisor,
}

/// Picks the clock for a guest under TCG.
pub fn for_emulation() -> Clock {
    let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_default();
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|l| l.starts_with("flags")).unwrap_or_default();
    if trusted(source.trim(), flags) {
        counter_rate().map_or(Clock::Hpet, |khz| Clock::Counter { khz })
    } else {
        Clock::Hpet
    }
}

/// The kernel keeps time by the counter (itself, or through a page that scales it) and the processor keeps its rate.
fn trusted(source: &str, flags: &str) -> bool {
    let has = |flag: &str| flags.split_whitespace().any(|f| f == flag);
    matches!(source, "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page")
        && has("constant_tsc")
        && has("nonstop_tsc")
}

#[cfg(target_arch = "x86_64")]
fn counter_rate() -> Option<u64> {
    let read = || {
        // SAFETY: the instruction exists on every x86-64 processor and only reads a counter.
        // JUSTIFICATION: the rate cannot be had from the kernel without root.
        unsafe { std::arch::x86_64::_rdtsc() }
    };
    let sample = || {
        let (before, count) = (Instant::now(), read());
        std::thread::sleep(Duration::from_millis(15));
        let (after, end) = (Instant::now(), read());
        let elapsed = after.duration_since(before).as_nanos();
        u64::try_from(u128::from(end.wrapping_sub(count)) * 1_000_000 / elapsed.max(1)).ok()
    };
    // a sample is off when another process runs between the two readings; the middle of three is not
    let mut rates: Vec<u64> = (0..3).filter_map(|_| sample()).collect();
    rates.sort_unstable();
    rates.get(1).copied().filter(|khz| (100_000..100_000_000).contains(khz))
}

#[cfg(not(target_arch = "x86_64"))]
fn counter_rate() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::trusted;

    #[test]
    fn only_a_steady_counter_is_trusted() {
        assert!(trusted("tsc", "flags : fpu constant_tsc nonstop_tsc"));
        assert!(!trusted("hpet", "flags : constant_tsc nonstop_tsc"));
        assert!(!trusted("tsc", "flags : constant_tsc"));
    }
}
