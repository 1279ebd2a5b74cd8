//! Draining planes.

use std::time::Duration;

use anyhow::ensure;
use tests::traffic::{Load, Traffic};
use tests::{Lab, note, wait_until};

fn entered(lab: &Lab) -> anyhow::Result<[u64; 2]> {
    let status = lab.status()?;
    Ok([status.plane(1)?.traffic.packets, status.plane(2)?.traffic.packets])
}

/// Input: all pairs send in all classes; plane 2 is drained, stays so for a while, and is undrained.
/// Output: nothing is lost; while drained its counters stand still and the other plane takes all; afterwards it carries
/// again.
pub fn o1_plane_drain(lab: &Lab) -> anyhow::Result<()> {
    let traffic = Traffic::start(lab, &Load::ALL)?;
    let text = lab.cli.ok(&["drain", "plane", "2"])?;
    note(text.trim());
    let status = lab.status()?;
    ensure!(status.plane(2)?.state == "drained", "plane 2 is {}", status.plane(2)?.state);
    let before = entered(lab)?;
    let during = wait_until(Duration::from_secs(60), "plane 1 to take the traffic", || {
        let now = entered(lab).map_err(|e| format!("{e:#}"))?;
        if now[0] > before[0] + 1000 { Ok(now) } else { Err(format!("{before:?}, {now:?}")) }
    })?;
    ensure!(during[1] == before[1], "{} packets entered the drained plane", during[1] - before[1]);
    note(format!("while drained: {} packets entered plane 1, none plane 2", during[0] - before[0]));
    let text = lab.cli.ok(&["undrain", "plane", "2", "--timeout", "120"])?;
    note(text.trim());
    wait_until(Duration::from_secs(60), "plane 2 to carry again", || {
        let now = entered(lab).map_err(|e| format!("{e:#}"))?;
        if now[1] > during[1] + 200 { Ok(()) } else { Err(format!("{during:?}, {now:?}")) }
    })?;
    let report = traffic.stop_lossless("drain and undrain of plane 2")?;
    note(format!("{} packets, 0 lost over drain and undrain", report.sent()));
    Ok(())
}

/// Input: plane 1 drained, then plane 2, without and with `--force`; a plane that does not exist.
/// Output: exit code 1 with words and nothing changed; 0 with `--force`, and traffic still flows; 2.
pub fn o5_last_plane(lab: &Lab) -> anyhow::Result<()> {
    lab.cli.ok(&["drain", "plane", "1"])?;
    let refused = lab.cli.run(&["drain", "plane", "2"])?;
    ensure!(refused.code == 1 && refused.stderr.contains("last"), "{refused:?}");
    ensure!(lab.status()?.plane(2)?.state == "ready", "the refused drain changed plane 2");
    let again = lab.cli.ok(&["drain", "plane", "1"])?;
    ensure!(again.contains("already"), "a second drain said {again:?}");
    lab.cli.ok(&["drain", "plane", "2", "--force"])?;
    let report = Load::ALL.send(&lab.cli, 2.0)?;
    ensure!(report.lost() == 0, "with both planes drained {} were lost:\n{}", report.lost(), report.losses());
    lab.cli.ok(&["undrain", "plane", "1", "--timeout", "120"])?;
    lab.cli.ok(&["undrain", "plane", "2", "--timeout", "120"])?;
    let none = lab.cli.run(&["drain", "plane", "7"])?;
    ensure!(none.code == 2, "drain of plane 7: exit code {}", none.code);
    Ok(())
}
