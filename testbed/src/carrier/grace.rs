//! Who comes first among the guest's kernel threads.
//!
//! A repair writes to the kernel, and its writes wait for grace periods (`synchronize_net` under the routing lock is an
//! expedited one). The threads that end those are ordinary ones in a distribution's kernel; with agents that run before
//! all ordinary threads they would wait for their own waiters. The normal grace periods' thread has a boot parameter
//! (`rcutree.kthread_prio`), the expedited ones' have none.

use std::fs;

use router_emu::agent::set_scheduler;

/// One above the agents' (`router_emu::agent::Urgency`).
pub const PRIORITY: i32 = 2;
/// Names of the threads, `kernel/rcu/tree.c`.
const THREADS: &str = "rcu_exp_";

/// Moves the threads of expedited grace periods into `SCHED_FIFO`. A kernel that names them otherwise is left as it is.
pub fn first() {
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let named = fs::read_to_string(process.path().join("comm"));
        if !named.is_ok_and(|name| name.starts_with(THREADS)) {
            continue;
        }
        if let Err(why) = set_scheduler(pid, libc::SCHED_FIFO, PRIORITY) {
            tracing::warn!("grace periods keep their usual priority: {why}");
        }
    }
}
