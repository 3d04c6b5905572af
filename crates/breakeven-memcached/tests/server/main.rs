//! The server over its sockets: beside Debian's memcached and under libmemcached's tests.

mod differential;
mod peer;
mod suites;
