//! Which links of the plane are up, as far as this router knows.
//!
//! A link is seen as two *endpoints* (router, interface). An endpoint is up while its router advertises an adjacency on
//! that interface; this router's own interfaces must have a carrier besides. A hop is usable if both its endpoints are
//! up. Routers that never advertised anything count as up: silence of the store is not loss of links.

use std::collections::BTreeMap;

/// Number of an endpoint; small and dense, never reused.
pub type Endpoint = u32;

#[derive(Debug, Default)]
struct Router {
    number: u32,
    /// Interfaces with an adjacency and since when, once the router has been heard.
    advertised: Option<BTreeMap<String, u64>>,
    endpoints: BTreeMap<String, Endpoint>,
}

#[derive(Clone, Debug)]
struct State {
    router: String,
    interface: String,
    advertised: bool,
    carrier: bool,
    /// When a flare said that it was lost, on its router's clock.
    flared: Option<u64>,
}

impl State {
    /// What an adjacency of this age (none: no adjacency) says: one from before the flare says nothing.
    fn counts(&self, since_ns: Option<u64>) -> bool {
        since_ns.is_some_and(|since| self.flared.is_none_or(|lost| since > lost))
    }
}

/// An adjacency as a router advertises it.
#[derive(Clone, Copy, Debug)]
pub struct Advertised<'a> {
    /// Its interface.
    pub interface: &'a str,
    /// When it came about or last changed, nanoseconds of its router's monotonic clock.
    pub since_ns: u64,
}

impl<'a> From<&'a str> for Advertised<'a> {
    /// An adjacency of this moment.
    fn from(interface: &'a str) -> Self {
        Self { interface, since_ns: u64::MAX }
    }
}

/// The table of endpoints.
#[derive(Debug, Default)]
pub struct Links {
    routers: BTreeMap<String, Router>,
    states: Vec<State>,
}

impl Links {
    /// The number of a router, given out at first use.
    pub fn router(&mut self, router: &str) -> u32 {
        self.entry(router).number
    }

    fn entry(&mut self, router: &str) -> &mut Router {
        let number = u32::try_from(self.routers.len()).unwrap_or(u32::MAX);
        self.routers.entry(router.to_owned()).or_insert_with(|| Router { number, ..Router::default() })
    }

    /// The number of an endpoint, given out at first use.
    pub fn endpoint(&mut self, router: &str, interface: &str) -> Endpoint {
        if let Some(&known) = self.routers.get(router).and_then(|r| r.endpoints.get(interface)) {
            return known;
        }
        let id = Endpoint::try_from(self.states.len()).unwrap_or(Endpoint::MAX);
        let entry = self.entry(router);
        entry.endpoints.insert(interface.to_owned(), id);
        let advertised = entry.advertised.as_ref().is_none_or(|set| set.contains_key(interface));
        self.states.push(State {
            router: router.to_owned(),
            interface: interface.to_owned(),
            advertised,
            carrier: true,
            flared: None,
        });
        id
    }

    /// Whether an endpoint is up. Numbers that were never given out are.
    pub fn is_up(&self, endpoint: Endpoint) -> bool {
        let state = usize::try_from(endpoint).ok().and_then(|i| self.states.get(i));
        state.is_none_or(|s| s.advertised && s.carrier)
    }

    /// Takes a router's advertisement: its adjacencies. Adds endpoints that changed to `changed`.
    pub fn advertise<'a, A: Into<Advertised<'a>>>(
        &mut self,
        router: &str,
        adjacencies: impl IntoIterator<Item = A>,
        changed: &mut Vec<Endpoint>,
    ) {
        let set: BTreeMap<String, u64> =
            adjacencies.into_iter().map(Into::into).map(|a| (a.interface.to_owned(), a.since_ns)).collect();
        self.entry(router);
        let Some(entry) = self.routers.get_mut(router) else { return };
        for (interface, &id) in &entry.endpoints {
            if let Some(state) = usize::try_from(id).ok().and_then(|i| self.states.get_mut(i)) {
                let up = state.counts(set.get(interface).copied());
                flip(&mut state.advertised, up, state.carrier, id, changed);
            }
        }
        entry.advertised = Some(set);
    }

    /// Takes a flare: the endpoint is down until its router advertises an adjacency that is younger than the loss. Ignored
    /// for endpoints that no path has, and if the adjacency is back already.
    pub fn flare(&mut self, router: &str, interface: &str, lost_ns: u64, changed: &mut Vec<Endpoint>) {
        let Some(entry) = self.routers.get(router) else { return };
        let Some(&id) = entry.endpoints.get(interface) else { return };
        let since = entry.advertised.as_ref().and_then(|set| set.get(interface)).copied();
        if let Some(state) = usize::try_from(id).ok().and_then(|i| self.states.get_mut(i))
            && state.flared.is_none_or(|before| before < lost_ns)
        {
            state.flared = Some(lost_ns);
            let up = state.advertised && state.counts(since);
            flip(&mut state.advertised, up, state.carrier, id, changed);
        }
    }

    /// Takes note of the carrier of an own interface.
    pub fn set_carrier(&mut self, router: &str, interface: &str, up: bool, changed: &mut Vec<Endpoint>) {
        let id = self.endpoint(router, interface);
        if let Some(state) = usize::try_from(id).ok().and_then(|i| self.states.get_mut(i)) {
            flip(&mut state.carrier, up, state.advertised, id, changed);
        }
    }

    /// Endpoints that the store says are down, as (router, interface): what a restarted agent must remember.
    pub fn withdrawn(&self) -> Vec<(String, String)> {
        let down = self.states.iter().filter(|s| !s.advertised);
        down.map(|s| (s.router.clone(), s.interface.clone())).collect()
    }

    /// Marks an endpoint as withdrawn until its router advertises again: the reverse of [`Links::withdrawn`].
    pub fn withdraw(&mut self, router: &str, interface: &str) {
        let id = self.endpoint(router, interface);
        if let Some(state) = usize::try_from(id).ok().and_then(|i| self.states.get_mut(i)) {
            state.advertised = false;
        }
    }

    /// Name of an endpoint, `eb01.prn/to-lla`.
    pub fn name(&self, endpoint: Endpoint) -> String {
        let state = usize::try_from(endpoint).ok().and_then(|i| self.states.get(i));
        state.map_or_else(|| format!("endpoint {endpoint}"), |s| format!("{}/{}", s.router, s.interface))
    }
}

fn flip(flag: &mut bool, to: bool, other: bool, id: Endpoint, changed: &mut Vec<Endpoint>) {
    if *flag != to {
        *flag = to;
        if other {
            changed.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_up_and_withdrawal_is_down() {
        let mut links = Links::default();
        let (a, b) = (links.endpoint("eb01.prn", "to-lla"), links.endpoint("eb01.lla", "to-prn"));
        assert!(links.is_up(a) && links.is_up(b));

        let mut changed = Vec::new();
        links.advertise("eb01.prn", ["to-lla", "to-atn"], &mut changed);
        assert!(changed.is_empty());
        links.advertise("eb01.prn", ["to-atn"], &mut changed);
        assert_eq!(changed, [a]);
        assert!(!links.is_up(a) && links.is_up(b));
        assert_eq!(links.withdrawn(), [("eb01.prn".to_owned(), "to-lla".to_owned())]);
        // an endpoint first named after the advertisement takes its state from it
        let late = links.endpoint("eb01.prn", "to-frc");
        assert!(!links.is_up(late));
    }

    #[test]
    fn carrier_and_adjacency_must_both_be_there() {
        let mut links = Links::default();
        let a = links.endpoint("eb01.prn", "to-lla");
        let mut changed = Vec::new();
        links.set_carrier("eb01.prn", "to-lla", false, &mut changed);
        links.advertise("eb01.prn", ["to-atn"; 0], &mut changed);
        assert_eq!(changed, [a]);
        links.set_carrier("eb01.prn", "to-lla", true, &mut changed);
        assert!(!links.is_up(a));
        links.advertise("eb01.prn", ["to-lla"], &mut changed);
        assert!(links.is_up(a));
        assert_eq!(changed, [a, a]);
    }

    #[test]
    fn a_flare_holds_until_a_younger_adjacency() {
        let mut links = Links::default();
        let a = links.endpoint("eb01.prn", "to-lla");
        let at = |since_ns| [Advertised { interface: "to-lla", since_ns }];
        let mut changed = Vec::new();
        links.advertise("eb01.prn", at(100), &mut changed);
        links.flare("eb01.prn", "to-lla", 200, &mut changed);
        assert!(!links.is_up(a));
        // by another way, and for a link that nobody uses
        links.flare("eb01.prn", "to-lla", 200, &mut changed);
        links.flare("eb01.prn", "to-atn", 200, &mut changed);
        assert_eq!(changed, [a]);
        // an announcement that was on its way when the link was lost
        links.advertise("eb01.prn", at(100), &mut changed);
        assert!(!links.is_up(a));
        links.advertise("eb01.prn", at(300), &mut changed);
        assert!(links.is_up(a));
        // a late copy of the old flare, then a new one
        links.flare("eb01.prn", "to-lla", 200, &mut changed);
        links.flare("eb01.prn", "to-lla", 250, &mut changed);
        assert!(links.is_up(a));
        links.flare("eb01.prn", "to-lla", 400, &mut changed);
        assert_eq!(changed, [a, a, a]);
    }

    #[test]
    fn a_flare_from_a_router_that_never_advertised_is_believed() {
        let mut links = Links::default();
        let a = links.endpoint("eb01.prn", "to-lla");
        let mut changed = Vec::new();
        links.flare("eb01.prn", "to-lla", 7, &mut changed);
        assert!(!links.is_up(a));
        links.advertise("eb01.prn", [Advertised { interface: "to-lla", since_ns: 8 }], &mut changed);
        assert!(links.is_up(a));
    }

    #[test]
    fn an_own_flare_counts_although_the_carrier_is_there() {
        let mut links = Links::default();
        let mut changed = Vec::new();
        links.set_carrier("eb01.prn", "to-lla", true, &mut changed);
        let a = links.endpoint("eb01.prn", "to-lla");
        links.advertise("eb01.prn", [Advertised { interface: "to-lla", since_ns: 5 }], &mut changed);
        links.flare("eb01.prn", "to-lla", 9, &mut changed);
        assert_eq!((links.is_up(a), &changed[..]), (false, &[a][..]));
        // a carrier that comes and goes says nothing of what passes
        links.set_carrier("eb01.prn", "to-lla", false, &mut changed);
        links.set_carrier("eb01.prn", "to-lla", true, &mut changed);
        assert!(!links.is_up(a));
        links.advertise("eb01.prn", [Advertised { interface: "to-lla", since_ns: 10 }], &mut changed);
        assert!(links.is_up(a));
    }

    #[test]
    fn withdrawn_endpoints_survive_a_restart() {
        let mut links = Links::default();
        links.withdraw("eb01.atn", "to-lla");
        let id = links.endpoint("eb01.atn", "to-lla");
        assert!(!links.is_up(id));
        let mut changed = Vec::new();
        links.advertise("eb01.atn", ["to-lla"], &mut changed);
        assert!(links.is_up(id));
        assert_eq!(links.name(id), "eb01.atn/to-lla");
    }
}
