//! te
