//! The server over its sockets: beside Debian's memcached, under its tools, and against clients that mean no good.

mod abuse;
mod differential;
mod peer;
mod suites;
