//! Another configuration while neighbours are there.

use super::super::neighbor::State;
use super::{Identity, Link, Nanos, Output, Spark};

impl Spark {
    /// Other timers and declared round-trip times, microseconds. Neighbours stay.
    pub fn configure(
        &mut self,
        now: Nanos,
        me: Identity,
        interfaces: impl IntoIterator<Item = (String, u64)>,
        out: &mut Vec<Output>,
    ) {
        for (name, declared_us) in interfaces {
            let Some(link) = self.links.get_mut(&name) else { continue };
            link.declared_us = declared_us;
            // what was agreed with longer periods in mind must not be waited for
            link.next_hello = link.next_hello.min(now + me.hello);
            let Some(neighbor) = link.neighbor.as_mut() else { continue };
            neighbor.next_heartbeat = neighbor.next_heartbeat.min(now + me.keepalive);
            if let Some(rtt_us) = neighbor.rtt.declare(declared_us)
                && neighbor.counts()
            {
                out.push(Output::Rtt(name, rtt_us));
            }
        }
        let renewed = me.hold != self.me.hold;
        self.me = me;
        if renewed {
            // how long to bear our silence is said in the handshake
            let established =
                |link: &Link| link.neighbor.as_ref().is_some_and(|n| n.state == State::Established);
            let names: Vec<String> =
                self.links.iter().filter(|(_, link)| established(link)).map(|(n, _)| n.clone()).collect();
            for name in names {
                self.send_handshake(now, &name, out);
            }
        }
    }
}
