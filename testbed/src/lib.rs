//! The orchestrator.
