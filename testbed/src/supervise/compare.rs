//! The planes side by side: nearly equal networks, so that a canary on one of them shows what it does differently.

use futures::future::join_all;
use router_emu::proto::ControllerState;
use serde_json::{Value, json};
use topologies::lab::{Lab, Plane};

use super::controller::{Replica, replicas};
use super::leader;
use crate::api::protocol::ProgramStatus;

/// What `compare` prints.
pub async fn document(lab: &Lab, programs: &[ProgramStatus]) -> Value {
    let planes = lab.planes.iter().map(|plane| async move {
        let views = leader::views(lab, plane.id).await;
        let leading = leader::leading(&views);
        let restarts = replicas(lab, plane.id).iter().map(|replica| restarts(programs, replica)).sum();
        column(plane, leading, restarts)
    });
    json!({"version": 1, "lab": lab.name, "planes": join_all(planes).await})
}

/// How often a controller was started again.
fn restarts(programs: &[ProgramStatus], replica: &Replica) -> u32 {
    let own = programs.iter().find(|p| p.node == replica.host && p.name == replica.program);
    own.map_or(0, |p| p.restarts)
}

/// One plane. What only a leader knows is null while there is none.
fn column(plane: &Plane, leading: Option<(&Replica, &ControllerState)>, restarts: u32) -> Value {
    let of = |value: fn(&ControllerState) -> Value| leading.map_or(Value::Null, |(_, state)| value(state));
    let [gold, silver, bronze] = &plane.algorithms.primary;
    json!({
        "plane": plane.id,
        "program": plane.controller_program.as_deref().unwrap_or("ebb-controller"),
        "gold": gold, "silver": silver, "bronze": bronze, "backup": plane.algorithms.backup,
        "leader": leading.map(|(replica, _)| replica.name()),
        "restarts": restarts,
        "cycle": of(|s| s.cycle.into()),
        "snapshot_us": of(|s| s.snapshot_us.into()),
        "te_us": of(|s| s.te_us.into()),
        "program_us": of(|s| s.program_us.into()),
        "pairs_ok": of(|s| s.pairs_ok.into()),
        "pairs_failed": of(|s| s.pairs_failed.into()),
        "lsps": of(|s| s.lsps.into()),
        "protected": of(|s| s.protected.into()),
        "unrouted": of(|s| s.unrouted.into()),
        "max_utilisation_permille": of(|s| s.max_utilisation_permille.into()),
        "errors": of(|s| s.errors.len().into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_without_a_leader_has_its_settings_and_no_numbers() {
        let base = topologies::builtin("ebb-small").unwrap();
        let own =
            "overrides:\n  1: {controller_program: /opt/canary, backup: fir, algorithms: {bronze: hprr}}\n";
        let (lab, _) = Lab::from_str(&format!("{base}\n{own}"), "lab.yaml").unwrap();
        let (one, two) = (&lab.planes[0], &lab.planes[1]);
        let canary = column(one, None, 7);
        assert_eq!(
            (&canary["program"], &canary["bronze"], &canary["backup"]),
            (&json!("/opt/canary"), &json!("hprr"), &json!("fir"))
        );
        assert_eq!(
            (&canary["restarts"], &canary["leader"], &canary["cycle"]),
            (&json!(7), &Value::Null, &Value::Null)
        );
        let state = ControllerState { cycle: 3, unrouted: 2, ..Default::default() };
        let replica = &replicas(&lab, 2)[0];
        let usual = column(two, Some((replica, &state)), 0);
        assert_eq!(
            (&usual["program"], &usual["cycle"], &usual["unrouted"]),
            (&json!("ebb-controller"), &json!(3), &json!(2))
        );
        assert_eq!(usual["leader"], replica.name());
    }
}
