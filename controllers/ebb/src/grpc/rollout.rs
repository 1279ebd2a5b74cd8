//! What a rollout asks and tells routers.

use router_emu::proto::config_agent_client::ConfigAgentClient;
use router_emu::proto::openr_ctrl_client::OpenrCtrlClient;
use router_emu::proto::{self, ConfigState, Neighbor, PushConfigRequest};

use super::{Agent, GrpcAgents};
use crate::agents::Answer;

impl GrpcAgents {
    /// The running configuration.
    ///
    /// # Errors
    /// See [`crate::agents::AgentError`], here and below.
    pub async fn config(&self, router: &str) -> Answer<ConfigState> {
        let get = |channel| async move {
            ConfigAgentClient::new(channel).get_config(proto::GetConfigRequest { version: 0 }).await
        };
        self.call(router, Agent::Config, "GetConfig", get).await
    }

    /// Gives a router another configuration, or has it check one.
    pub async fn push_config(&self, router: &str, request: PushConfigRequest) -> Answer<ConfigState> {
        let push = |channel| async move { ConfigAgentClient::new(channel).push_config(request).await };
        self.call(router, Agent::Config, "PushConfig", push).await
    }

    /// Lets a router keep a version.
    pub async fn confirm_config(&self, router: &str, version: u64, writer: &str) -> Answer<()> {
        let request = proto::ConfirmConfigRequest { version, writer: writer.to_owned() };
        let confirm = |channel| async move { ConfigAgentClient::new(channel).confirm_config(request).await };
        self.call(router, Agent::Config, "ConfirmConfig", confirm).await.map(drop)
    }

    /// Has a router go back to a version.
    pub async fn rollback_config(&self, router: &str, version: u64, writer: &str) -> Answer<()> {
        let request = proto::RollbackConfigRequest { to_version: version, writer: writer.to_owned() };
        let back = |channel| async move { ConfigAgentClient::new(channel).rollback_config(request).await };
        self.call(router, Agent::Config, "RollbackConfig", back).await.map(drop)
    }

    /// The neighbours of a router.
    pub async fn neighbors(&self, router: &str) -> Answer<Vec<Neighbor>> {
        let get = |channel| async move {
            OpenrCtrlClient::new(channel).get_neighbors(proto::GetNeighborsRequest {}).await
        };
        self.call(router, Agent::Openr, "GetNeighbors", get).await.map(|reply| reply.neighbors)
    }
}
