//! Clients that mean no good.
