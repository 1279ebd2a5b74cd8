//! Which links of the plane are up, as far as this router knows.
//!
//! A link is seen as two *endpoints* (router, interface). An endpoint is up while its router advertises an adjacency on
//! that interface; this router's own interfaces must have a carrier besides. A hop is usable if both its endpoints are
//! up. Routers that never advertised anything count as up: silence of the store is not loss of links.

use std::collections::{BTreeMap, BTreeSet};

/// Number of an endpoint; small and dense, never reused.
pub type Endpoint = u32;

#[derive(Debug, Default)]
struct Router {
    number: u32,
    /// Interfaces with an adjacency, once the router has been heard.
    advertised: Option<BTreeSet<String>>,
    endpoints: BTreeMap<String, Endpoint>,
}

#[derive(Clone, Debug)]
struct State {
    router: String,
    interface: String,
    advertised: bool,
    carrier: bool,
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
        let advertised = entry.advertised.as_ref().is_none_or(|set| set.contains(interface));
        self.states.push(State {
            router: router.to_owned(),
            interface: interface.to_owned(),
            advertised,
            carrier: true,
        });
        id
    }

    /// Whether an endpoint is up. Numbers that were never given out are.
    pub fn is_up(&self, endpoint: Endpoint) -> bool {
        let state = usize::try_from(endpoint).ok().and_then(|i| self.states.get(i));
        state.is_none_or(|s| s.advertised && s.carrier)
    }

    /// Takes a router's advertisement: the interfaces on which it has an adjacency. Adds endpoints that changed to `changed`.
    pub fn advertise<'a>(
        &mut self,
        router: &str,
        interfaces: impl IntoIterator<Item = &'a str>,
        changed: &mut Vec<Endpoint>,
    ) {
        let set: BTreeSet<String> = interfaces.into_iter().map(str::to_owned).collect();
        self.entry(router);
        let Some(entry) = self.routers.get_mut(router) else { return };
        for (interface, &id) in &entry.endpoints {
            if let Some(state) = usize::try_from(id).ok().and_then(|i| self.states.get_mut(i)) {
                flip(&mut state.advertised, set.contains(interface), state.carrier, id, changed);
            }
        }
        entry.advertised = Some(set);
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
        links.advertise("eb01.prn", [], &mut changed);
        assert_eq!(changed, [a]);
        links.set_carrier("eb01.prn", "to-lla", true, &mut changed);
        assert!(!links.is_up(a));
        links.advertise("eb01.prn", ["to-lla"], &mut changed);
        assert!(links.is_up(a));
        assert_eq!(changed, [a, a]);
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
