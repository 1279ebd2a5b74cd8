//! The two clocks of a probe: `CLOCK_MONOTONIC` for everything, `CLOCK_REALTIME` because the kernel stamps arrivals
//! with it.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// A time as nanoseconds; what is before the clock's zero is 0.
pub fn nanoseconds(time: TimeSpec) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec()).unwrap_or(0))
}

fn read(clock: ClockId) -> u64 {
    // the two clocks used here always exist: an error would mean a kernel that is not Linux
    clock_gettime(clock).map_or(0, nanoseconds)
}

/// `CLOCK_MONOTONIC` now, nanoseconds.
pub fn now() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME` now, nanoseconds.
pub fn realtime() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// Sleeps until `CLOCK_MONOTONIC` reads `until_ns`; a signal may end the sleep early.
pub fn sleep_until(until_ns: u64) {
    let seconds = i64::try_from(until_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let rest = i64::try_from(until_ns % 1_000_000_000).unwrap_or(0);
    let until = TimeSpec::new(seconds, rest);
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until);
}
