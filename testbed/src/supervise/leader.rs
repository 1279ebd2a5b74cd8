//! The controllers of a plane as they answer on their unix sockets, and the one that leads.

use std::time::Duration;

use futures::future::join_all;
use router_emu::proto::ebb_controller_client::EbbControllerClient;
use router_emu::proto::{ControllerState, GetStateRequest, RunCycleRequest};
use router_emu::rpc::unix_channel;
use tonic::transport::Channel;
use tonic::{Code as RpcCode, Status};
use topologies::lab::Lab;

use super::controller::{Replica, replicas};
use super::status::ANSWER;
use crate::failure::{Code, Failure};

/// Longest wait for a leader: a lease that nobody renews runs out meanwhile, and another replica takes the lead.
const ELECTION: Duration = Duration::from_secs(20);
/// Longest wait for a cycle: those of the largest labs take seconds, and an agent that is silent costs its deadline.
const CYCLE: Duration = Duration::from_secs(120);
/// Distance between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// What a controller answers.
#[derive(Debug)]
pub struct View {
    /// Which one.
    pub replica: Replica,
    /// Its state, or why there is none.
    pub state: Result<ControllerState, String>,
}

impl Replica {
    /// A client of its RPC.
    pub fn client(&self) -> EbbControllerClient<Channel> {
        EbbControllerClient::new(unix_channel(self.socket()))
    }

    /// A call that was not answered, as people should read it.
    pub fn silent(&self, status: &Status) -> Failure {
        let Replica { plane, host, program, .. } = self;
        Failure::new(
            Code::Failed,
            format!("{program} of plane {plane} on {host} did not answer: {}", status.message()),
        )
        .hint(format!("`testbed logs {host}/{program}` shows what it says"))
    }
}

/// All controllers of a plane.
pub async fn views(lab: &Lab, plane: u8) -> Vec<View> {
    let each = replicas(lab, plane).into_iter().map(|replica| async move {
        let mut client = replica.client();
        let answer = client.get_state(GetStateRequest { with_mesh: false });
        let state = match tokio::time::timeout(ANSWER, answer).await {
            Ok(Ok(state)) => Ok(state.into_inner()),
            Ok(Err(status)) => Err(status.message().to_owned()),
            Err(_) => Err(format!("no answer in {} ms", ANSWER.as_millis())),
        };
        View { replica, state }
    });
    join_all(each).await
}

/// The one that leads, with its state. One that was stopped for a while may still think that it does: its epoch is lower.
pub fn leading(views: &[View]) -> Option<(&Replica, &ControllerState)> {
    let states = views.iter().filter_map(|view| Some((&view.replica, view.state.as_ref().ok()?)));
    states.filter(|(_, state)| state.leading).max_by_key(|(_, state)| state.epoch)
}

/// Waits for a leader.
///
/// # Errors
/// There is none within the time of an election.
pub async fn find(lab: &Lab, plane: u8) -> anyhow::Result<Replica> {
    let began = tokio::time::Instant::now();
    loop {
        let views = views(lab, plane).await;
        if let Some((leader, _)) = leading(&views) {
            return Ok(leader.clone());
        }
        if began.elapsed() > ELECTION {
            return Err(nobody(plane, &views).into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn nobody(plane: u8, views: &[View]) -> Failure {
    let mut message = format!("no controller of plane {plane} leads");
    for View { replica, state } in views {
        let said = match state {
            Ok(state) => state.errors.join("; "),
            Err(why) => why.clone(),
        };
        message += &format!("\n  {}: {said}", replica.name());
    }
    Failure::new(Code::Failed, message)
        .hint("`testbed status` shows whether they and the lock service run, `testbed logs HOST/PROGRAM` what they say")
}

/// Runs a cycle of a plane's controller now.
///
/// # Errors
/// No leader, or one that does not answer in time.
pub async fn cycle(lab: &Lab, plane: u8, with_mesh: bool) -> anyhow::Result<ControllerState> {
    let late = |_| {
        let message = format!("no controller of plane {plane} has finished a cycle in {} s", CYCLE.as_secs());
        Failure::new(Code::TimedOut, message)
            .hint("`testbed status` shows which controllers run, `testbed logs HOST/PROGRAM` what they say")
    };
    tokio::time::timeout(CYCLE, cycle_of_leader(lab, plane, with_mesh)).await.map_err(late)?
}

/// The same without an end.
async fn cycle_of_leader(lab: &Lab, plane: u8, with_mesh: bool) -> anyhow::Result<ControllerState> {
    loop {
        let leader = find(lab, plane).await?;
        match leader.client().run_cycle(RunCycleRequest { with_mesh }).await {
            Ok(state) => return Ok(state.into_inner()),
            // it has lost the lead meanwhile: another one is waited for
            Err(status) if status.code() == RpcCode::FailedPrecondition => {}
            Err(status) => return Err(leader.silent(&status).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_that_claim_to_lead_the_one_with_the_higher_epoch_does() {
        let base = topologies::builtin("ebb-small").unwrap();
        let (lab, _) = Lab::from_str(&format!("{base}\ncontrollers: {{replicas: 4}}\n"), "lab.yaml").unwrap();
        let answers = [
            Ok(ControllerState { epoch: 3, leading: true, ..Default::default() }),
            Ok(ControllerState { epoch: 9, ..Default::default() }),
            Err("gone".to_owned()),
            Ok(ControllerState { epoch: 4, leading: true, ..Default::default() }),
        ];
        let all = replicas(&lab, 1).into_iter().zip(answers);
        let views: Vec<View> = all.map(|(replica, state)| View { replica, state }).collect();
        assert_eq!(leading(&views).unwrap().0.number, 4);
        assert_eq!(leading(&views[1..3]), None);
        let text = nobody(1, &views[1..3]).to_string();
        assert!(
            text.contains("no controller of plane 1 leads") && text.contains("ebb-controller-1.3: gone"),
            "{text}"
        );
    }
}
