//! Draining a plane: BGP de-preferred or withdrawn on all its routers, then the counters watched until nothing enters any more.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::try_join_all;
use topologies::lab::{Lab, Role};

use super::files::{run_dir, write_drain};
use super::status;
use crate::api::server::Writer;
use crate::bird::{self, Control, Drain, Reload};
use crate::failure::{Code, Failure};

/// Time for one BIRD to take a new configuration over.
const RECONFIGURE: Duration = Duration::from_secs(20);
/// Distance between two readings of the counters; a plane is empty when two in a row are equal.
const READING: Duration = Duration::from_millis(400);

/// Drained planes, with how.
pub type Drained = BTreeMap<u8, Drain>;

/// Whether draining `planes` on top of `drained` leaves a plane that carries traffic.
pub fn leaves_one(lab: &Lab, drained: &Drained, planes: &[u8]) -> bool {
    lab.planes.iter().any(|p| !planes.contains(&p.id) && !drained.contains_key(&p.id))
}

/// Refuses what would leave no plane.
pub fn check(lab: &Lab, drained: &Drained, planes: &[u8], drain: bool, force: bool) -> anyhow::Result<()> {
    if let Some(plane) = planes.iter().find(|plane| lab.plane(**plane).is_none()) {
        let planes: Vec<_> = lab.planes.iter().map(|p| p.id.to_string()).collect();
        return Err(Failure::new(Code::Usage, format!("lab {} has no plane {plane}", lab.name))
            .hint(format!("its planes: {}", planes.join(", ")))
            .into());
    }
    if drain && !force && !leaves_one(lab, drained, planes) {
        let which = match planes {
            [plane] => format!("plane {plane} is the last one that carries traffic"),
            _ => "these are the last planes that carry traffic".to_owned(),
        };
        return Err(Failure::new(Code::Failed, format!("refused: {which}; draining would leave no plane"))
            .hint("leave or undrain another plane, or say --force")
            .into());
    }
    Ok(())
}

/// Writes the drain state to every router of the plane and makes BIRD take it over.
pub async fn announce(lab: &Lab, plane: u8, drain: Drain) -> anyhow::Result<()> {
    let routers = lab.nodes.iter().filter(|n| n.role == Role::Router && n.plane == Some(plane));
    try_join_all(routers.map(|router| async {
        write_drain(&router.name, drain)?;
        let control = Control::new(run_dir(&router.name).join(bird::SOCKET_FILE), RECONFIGURE);
        let done = control.configure(Reload::Full, None).await;
        done.with_context(|| format!("BIRD on {} did not take the drain state over", router.name))?;
        anyhow::Ok(())
    }))
    .await?;
    Ok(())
}

/// Waits until no packet enters the plane from the fabric; returns how long that took.
pub async fn wait_empty(lab: &Lab, plane: u8, limit: Duration, output: &Writer) -> anyhow::Result<Duration> {
    let began = tokio::time::Instant::now();
    let mut before = None;
    loop {
        let now = status::plane_traffic(lab, plane).await;
        if let (Some(now), Some(before)) = (now, before)
            && now == before
        {
            return Ok(began.elapsed());
        }
        if began.elapsed() > limit {
            let state = match now {
                Some(now) => format!("{} packets so far and still counting", now.packets),
                None => "a route-agent of the plane does not answer".to_owned(),
            };
            return Err(Failure::new(
                Code::TimedOut,
                format!("plane {plane} was not empty after {} s: {state}", limit.as_secs()),
            )
            .hint(
                "the plane stays de-preferred; `testbed status` shows its counters, `undrain` takes it back",
            )
            .into());
        }
        output.progress(format!("plane {plane}: waiting for its counters to stop")).await?;
        before = now;
        tokio::time::sleep(READING).await;
    }
}

/// Waits until every aggregator of the lab has a next hop into `plane` for every other site again.
pub async fn wait_chosen(lab: &Lab, plane: u8, limit: Duration) -> anyhow::Result<()> {
    let began = tokio::time::Instant::now();
    loop {
        let missing = tokio::task::block_in_place(|| super::fabric::sites_without_plane(lab, plane))?;
        let Some(example) = missing.first() else { return Ok(()) };
        if began.elapsed() > limit {
            return Err(Failure::new(
                Code::TimedOut,
                format!("plane {plane} was not chosen again by {example} after {} s", limit.as_secs()),
            )
            .hint("`testbed exec fa.SITE -- ip -6 route` shows what the aggregator chose")
            .into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
