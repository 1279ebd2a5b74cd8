//! Routing netlink, pipelined.
