//! The end-to-end suite: one lab, brought up once in the carrier of `TESTBED_E2E_CARRIER` (default `auto`), and tests in
//! order on it, each of which finds it ready and leaves it so. Parts of names as argument, with commas
//! between them, run only those tests. `TESTBED_E2E_FULL=1` runs the long forms and the tests of [`LONG`], `TESTBED_E2E_CUTS=N` sets how many links the local-repair test cuts.
//!
//! Names begin with the number of what they show (F1, P1, ...), as the papers' check list has it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use tests::lab::{self, Guard, Lab};
use tests::{cli, evidence, results};

mod basics;
mod configuration;
mod edits;
mod encryption;
mod engineering;
mod failures;
mod faults;
mod forwarding;
mod isolation;
mod kills;
mod links;
mod operations;
mod programming;
mod replicas;
mod runs;
mod scenarios;

/// Tests of minutes, which run when they are named or in the long form: kills that are tried until they hit a moment, a dozen
/// controllers beside three members of etcd, outages that wait for timers of routers.
const LONG: [&str; 4] = [
    "p2_intermediate_dies_in_phase_1",
    "p3_leader_dies_while_it_writes",
    "p5_stale_leader",
    "o4_bad_config_everywhere",
];

/// A test on the shared lab.
type OnLab = fn(&Lab) -> anyhow::Result<()>;
/// A test that makes its own labs.
type Alone = fn() -> anyhow::Result<()>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // one lab: one test at a time, in order
    arguments.test_threads = Some(1);
    let wanted = arguments.filter.take().unwrap_or_default();
    let chosen = |trial: &Trial| {
        let now = !wanted.is_empty() || lab::full() || !LONG.contains(&trial.name());
        now && wanted.split(',').any(|part| trial.name().contains(part))
    };
    let trials: Vec<Trial> = trials().into_iter().filter(chosen).collect();
    if arguments.list {
        return libtest_mimic::run(&arguments, trials).exit_code();
    }
    let guard = match cli::program().and_then(|program| Guard::start(&program)) {
        Ok(guard) => guard,
        Err(error) => {
            eprintln!("the suite cannot start: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(guard);
    match results::write() {
        Ok(path) => println!("table of results: {}", path.display()),
        Err(error) => eprintln!("no table of results: {error:#}"),
    }
    conclusion.exit_code()
}

fn trials() -> Vec<Trial> {
    let on_lab: [(&str, OnLab); 57] = [
        ("up_ready", basics::up_ready),
        ("up_again", basics::up_again),
        ("ping_all_pairs", basics::ping_all_pairs),
        ("names_and_exit_codes", basics::names_and_exit_codes),
        ("status_shape", basics::status_shape),
        ("probe_shape", basics::probe_shape),
        ("f1_labels_on_the_wire", forwarding::f1_labels_on_the_wire),
        ("f2_static_labels", forwarding::f2_static_labels),
        ("f3_label_depth", forwarding::f3_label_depth),
        ("f4_groups_of_a_long_path", forwarding::f4_groups_of_a_long_path),
        ("f5_spread_over_planes", forwarding::f5_spread_over_planes),
        ("f6_class_to_mesh", forwarding::f6_class_to_mesh),
        ("e1_e2_headroom", engineering::e1_e2_headroom),
        ("e6_disjoint_backups", engineering::e6_disjoint_backups),
        ("p1_reprogram_every_cycle", programming::p1_reprogram_every_cycle),
        ("p2_intermediate_dies_in_phase_1", programming::p2_intermediate_dies_in_phase_1),
        ("p4_empty_controller", programming::p4_empty_controller),
        ("r1_local_repair", failures::r1_local_repair),
        ("f7_strict_priority", scenarios::f7_strict_priority),
        ("r2_srlg_cut", scenarios::r2_srlg_cut),
        ("r3_primary_and_backup", scenarios::r3_primary_and_backup),
        ("r8_node_death", scenarios::r8_node_death),
        ("r4_fallback_and_back", failures::r4_fallback_and_back),
        ("r5_without_controllers", failures::r5_without_controllers),
        ("link_cut_in_status", failures::link_cut_in_status),
        ("fault_impaired_links", faults::impaired_links),
        ("fault_node_crash", faults::node_crash),
        ("fault_crash_loop", faults::crash_loop),
        ("fault_control_channel", faults::control_channel),
        ("fault_kernel_state", faults::kernel_state),
        ("o1_plane_drain", operations::o1_plane_drain),
        ("o2_link_and_router_drain", operations::o2_link_and_router_drain),
        ("o5_last_plane", operations::o5_last_plane),
        ("o5_out_of_band", operations::o5_out_of_band),
        ("config_push_and_rollback", configuration::config_push_and_rollback),
        ("config_unconfirmed", configuration::config_unconfirmed),
        ("o4_canary", configuration::o4_canary),
        ("o4_bad_config_everywhere", configuration::o4_bad_config_everywhere),
        ("o6_blocked_services", programming::o6_blocked_services),
        ("o7_traffic_matrix", engineering::o7_traffic_matrix),
        ("kill_lsp_agent", kills::lsp_agent),
        ("kill_route_agent", kills::route_agent),
        ("kill_openr", kills::openr),
        ("kill_fib_agent", kills::fib_agent),
        ("kill_bird", kills::bird),
        ("e3_f5_edit_demands", edits::e3_f5_edit_demands),
        ("edit_capacity", edits::edit_capacity),
        ("o3_canary", edits::o3_canary),
        ("p3_leader_dies_while_it_writes", replicas::p3_leader_dies_while_it_writes),
        ("p5_stale_leader", replicas::p5_stale_leader),
        ("scenario_passes", runs::scenario_passes),
        ("scenario_fails", runs::scenario_fails),
        ("scenario_killed", runs::scenario_killed),
        ("silent_failure", failures::silent_failure),
        ("r6_member_down", links::r6_member_down),
        ("r7_flapping_link", links::r7_flapping_link),
        ("o8_round_trip_time", links::o8_round_trip_time),
    ];
    let mut trials: Vec<Trial> =
        on_lab.into_iter().map(|(name, test)| trial(name, move || on_shared_lab(name, test))).collect();
    trials.push(trial("two_labs", || on_shared_lab("two_labs", isolation::two_labs)));
    trials.push(trial("down_twice", || on_shared_lab_last("down_twice", isolation::down_twice)));
    let alone: [(&str, Alone); 4] = [
        ("macsec_rotation", encryption::macsec_rotation),
        ("interrupted_up", isolation::interrupted_up),
        ("killed_up", isolation::killed_up),
        ("up_without_root", isolation::up_without_root),
    ];
    trials.extend(alone.into_iter().map(|(name, test)| {
        trial(name, move || caught(name, test).map_err(|message| Failed::from(beside(name, &message))))
    }));
    trials
}

/// A test whose outcome is kept for the table of results.
fn trial(name: &'static str, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    Trial::test(name, move || results::record(name, test))
}

/// Runs a test; a panic is a failure with its message.
fn caught(name: &str, test: impl FnOnce() -> anyhow::Result<()>) -> Result<(), String> {
    println!();
    match catch_unwind(AssertUnwindSafe(test)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of no text");
            Err(format!("{name} panicked: {text}"))
        }
    }
}

/// Keeps the message of a test that has no shared lab.
fn beside(name: &str, message: &str) -> String {
    let dir = evidence::folder().join(name);
    let _ = std::fs::create_dir_all(&dir);
    let _ = std::fs::write(dir.join("failure.txt"), message);
    evidence::copy_tree(&lab::second_state_folder(), &dir.join("state"));
    format!("{message}\nevidence: {}", dir.display())
}

fn on_shared_lab(name: &str, test: OnLab) -> Result<(), Failed> {
    let lab = lab::shared().map_err(|e| Failed::from(format!("{e:#}")))?;
    let result = caught(name, || {
        lab.settle()?;
        test(lab)
    });
    let result = result.map_err(|message| {
        let dir = evidence::save(lab, name, &message);
        Failed::from(format!("{message}\nevidence: {}", dir.display()))
    });
    // the next test waits for readiness itself; here the way is only cleared
    let _ = lab.put_back();
    result
}

/// For the test that takes the lab down: nothing is put back.
fn on_shared_lab_last(name: &str, test: OnLab) -> Result<(), Failed> {
    let lab = lab::shared().map_err(|e| Failed::from(format!("{e:#}")))?;
    caught(name, || test(lab)).map_err(Failed::from)
}
