//! etcd as the lock service: two keys a plane, a lease, transactions.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use router_emu::rpc::tcp_channel;
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::elector::{Call, LeaseId, Reply, Seen};
use super::leased::Service;

/// What tonic makes of `proto/etcd.proto`.
#[allow(missing_docs, clippy::pedantic, clippy::unwrap_used)]
mod proto {
    tonic::include_proto!("etcdserverpb");
}

use proto::compare::{Result as Is, Target, TargetUnion};
use proto::kv_client::KvClient;
use proto::lease_client::LeaseClient;
use proto::{
    Compare, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest, RangeRequest,
    RequestOp, TxnRequest,
};

/// Port on which etcd serves clients.
pub const CLIENT_PORT: u16 = 2379;
/// Port on which etcd's members talk to each other.
pub const PEER_PORT: u16 = 2380;

/// An etcd cluster, asked about one plane.
#[derive(Debug)]
pub struct Etcd {
    endpoints: Vec<SocketAddr>,
    /// Common beginning of the plane's keys.
    prefix: String,
    /// Name of this controller.
    name: String,
    /// Deadline of a call to one member.
    timeout: Duration,
    /// The member that is asked first.
    first: AtomicUsize,
    channels: Mutex<Vec<Option<Channel>>>,
}

impl Etcd {
    /// A cluster whose members serve at `endpoints`, the nearest first. `name` stands in the leader's key.
    pub fn new(endpoints: Vec<SocketAddr>, plane: u8, name: &str, timeout: Duration) -> Self {
        let channels = Mutex::new(vec![None; endpoints.len()]);
        let (prefix, name) = (format!("/ebb/plane/{plane}/"), name.to_owned());
        Self { endpoints, prefix, name, timeout, first: AtomicUsize::new(0), channels }
    }

    fn leader_key(&self) -> Vec<u8> {
        format!("{}leader", self.prefix).into_bytes()
    }

    fn epoch_key(&self) -> Vec<u8> {
        format!("{}epoch", self.prefix).into_bytes()
    }

    fn channel(&self, member: usize) -> Channel {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels[member].get_or_insert_with(|| tcp_channel(self.endpoints[member])).clone()
    }

    /// Asks one member, under the deadline.
    async fn ask(&self, member: usize, call: &Call) -> anyhow::Result<Reply> {
        let channel = self.channel(member);
        let answer = match tokio::time::timeout(self.timeout, self.run(channel, call)).await {
            Ok(answer) => answer,
            Err(_) => Err(anyhow::anyhow!("no answer in {} ms", self.timeout.as_millis())),
        };
        answer.inspect_err(|_| {
            // a connection over a broken path would wake up late: the next call makes a new one
            let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
            channels[member] = None;
        })
    }

    async fn run(&self, channel: Channel, call: &Call) -> anyhow::Result<Reply> {
        match *call {
            Call::Read => {
                let mut after = self.prefix.clone().into_bytes();
                // '0' follows '/': all keys below the prefix
                after.pop();
                after.push(b'0');
                let range = RangeRequest { key: self.prefix.clone().into_bytes(), range_end: after };
                let kvs = of(KvClient::new(channel).range(range).await)?.kvs;
                let find = |key: &[u8]| kvs.iter().find(|kv| kv.key == key);
                let mut seen = Seen::default();
                if let Some(leader) = find(&self.leader_key()) {
                    seen.leader = Some(String::from_utf8_lossy(&leader.value).into_owned());
                }
                if let Some(epoch) = find(&self.epoch_key()) {
                    let text = String::from_utf8_lossy(&epoch.value);
                    let number = text.parse();
                    seen.epoch = number.with_context(|| format!("{}epoch holds {text:?}", self.prefix))?;
                    seen.revision = epoch.mod_revision;
                }
                Ok(Reply::Seen(seen))
            }
            Call::Grant(ttl) => {
                let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
                let reply =
                    of(LeaseClient::new(channel).lease_grant(LeaseGrantRequest { ttl: seconds }).await)?;
                if !reply.error.is_empty() {
                    bail!("{}", reply.error);
                }
                Ok(Reply::Granted(reply.id, Duration::from_secs(u64::try_from(reply.ttl).unwrap_or(0))))
            }
            Call::Claim { lease, revision, epoch } => {
                let nobody = is(self.leader_key(), Target::Create, TargetUnion::CreateRevision(0));
                let lead =
                    PutRequest { key: self.leader_key(), value: self.name.clone().into_bytes(), lease };
                self.write(channel, nobody, revision, epoch, Some(lead)).await
            }
            Call::Raise { lease, revision, epoch } => {
                let ours = is(self.leader_key(), Target::Lease, TargetUnion::Lease(lease));
                self.write(channel, ours, revision, epoch, None).await
            }
            Call::KeepAlive(lease) => keep_alive(channel, lease).await,
            Call::Revoke(lease) => {
                of(LeaseClient::new(channel).lease_revoke(LeaseRevokeRequest { id: lease }).await)?;
                Ok(Reply::Revoked)
            }
        }
    }

    /// Writes the epoch, and the leader if it is new, if `condition` holds and the epoch is as it was read.
    async fn write(
        &self,
        channel: Channel,
        condition: Compare,
        revision: i64,
        epoch: u64,
        lead: Option<PutRequest>,
    ) -> anyhow::Result<Reply> {
        let unchanged = is(self.epoch_key(), Target::Mod, TargetUnion::ModRevision(revision));
        let epoch = PutRequest { key: self.epoch_key(), value: epoch.to_string().into_bytes(), lease: 0 };
        let puts = lead.into_iter().chain([epoch]);
        let success = puts
            .map(|put| RequestOp { request: Some(proto::request_op::Request::RequestPut(put)) })
            .collect();
        let txn = TxnRequest { compare: vec![condition, unchanged], success };
        Ok(Reply::Done(of(KvClient::new(channel).txn(txn).await)?.succeeded))
    }
}

/// `key`'s property is equal to a value.
fn is(key: Vec<u8>, target: Target, value: TargetUnion) -> Compare {
    Compare { result: Is::Equal.into(), target: target.into(), key, target_union: Some(value) }
}

/// Renews once: a stream of one request, of which the first answer is taken.
async fn keep_alive(channel: Channel, lease: LeaseId) -> anyhow::Result<Reply> {
    let request = futures::stream::iter([LeaseKeepAliveRequest { id: lease }]);
    let mut answers = of(LeaseClient::new(channel).lease_keep_alive(request).await)?;
    let answer =
        answers.message().await.map_err(|status| in_words(&status))?.context("no answer to a renewal")?;
    let ttl = u64::try_from(answer.ttl).unwrap_or(0);
    Ok(Reply::Alive((ttl > 0).then(|| Duration::from_secs(ttl))))
}

fn of<T>(answer: Result<Response<T>, Status>) -> anyhow::Result<T> {
    Ok(answer.map_err(|status| in_words(&status))?.into_inner())
}

fn in_words(status: &Status) -> anyhow::Error {
    match std::error::Error::source(status) {
        Some(cause) => anyhow::anyhow!("{}: {cause}", status.message()),
        None => anyhow::anyhow!("{}", status.message()),
    }
}

impl Service for Etcd {
    async fn call(&self, call: Call) -> anyhow::Result<Reply> {
        let members = self.endpoints.len();
        // a write that was not answered may have been done: it is not repeated
        let once = matches!(call, Call::Claim { .. } | Call::Raise { .. });
        let first = self.first.load(Ordering::Relaxed);
        let mut errors = Vec::new();
        for member in (0..members).map(|i| (first + i) % members) {
            match self.ask(member, &call).await {
                Ok(reply) => {
                    self.first.store(member, Ordering::Relaxed);
                    return Ok(reply);
                }
                Err(e) => errors.push(format!("{}: {e:#}", self.endpoints[member])),
            }
            if once {
                self.first.store((member + 1) % members, Ordering::Relaxed);
                break;
            }
        }
        bail!("etcd does not answer: {}", errors.join("; "))
    }
}
