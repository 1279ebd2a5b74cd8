//! Replicas of the controllers, and where the members of their lock service run.

use super::Report;
use crate::file::ControllersEntry;
use crate::lab::Lock;
use crate::spec::{SpecSite, host_name};

/// Members of an etcd cluster if the file does not say.
const MEMBERS: u32 = 3;

/// Number of replicas of each plane, and their lock.
pub(super) fn check(
    report: &mut Report<'_>,
    entry: Option<&ControllersEntry>,
    sites: &[SpecSite],
) -> (u8, Lock) {
    let entry = entry.cloned().unwrap_or_default();
    let replicas = u8::try_from(report.whole(&entry.replicas, "replicas", 1)).unwrap_or(1);
    let etcd = report.read_given(&entry.lock, "lock of controllers").is_some_and(|word| word.0);
    let members = report.whole(&entry.members, "members of etcd", MEMBERS);
    let place = entry.members.0.as_ref().map(|text| text.place);
    if let Some(place) = place.filter(|_| !etcd && entry.lock.0.as_ref().is_none_or(|t| t.read().is_ok())) {
        report.error(
            place,
            "`members` are those of an etcd cluster, and there is none",
            "add `lock: etcd`, or remove `members`",
        );
    }
    let Some(lock) = entry.lock.0.filter(|_| etcd) else { return (replicas, Lock::Embedded) };
    let place = place.unwrap_or(lock.place);
    if members.is_multiple_of(2) {
        let message = format!("{members} members of etcd bear no more failures than {}", members - 1);
        report.error(place, message, "1, 3 or 5");
    }
    let dcs: Vec<&str> = sites.iter().filter(|s| s.hosts > 0).map(|s| s.name.as_str()).collect();
    let wanted = usize::try_from(members).unwrap_or(usize::MAX);
    if dcs.len() < wanted {
        let message = format!(
            "{members} members of etcd need {members} data centres, one each, and the lab has {}",
            dcs.len()
        );
        report.error(place, message, "add sites with `kind: dc`, or write a smaller odd `members`");
    }
    (replicas, Lock::Etcd { members: dcs.into_iter().take(wanted).map(|dc| host_name(1, dc)).collect() })
}
