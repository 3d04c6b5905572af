//! The server over its sockets: beside Debian's memcached and under libmemcached's tests.

mod differential;
mod peer;
mod suites;

#[test]
fn a_server_that_stops_leaves_the_socket_of_the_one_that_took_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let old = peer::Ours::start(folder.path(), Default::default());
    let new = peer::Ours::start(folder.path(), Default::default());
    let path = new.path.clone();
    drop(old);
    std::os::unix::net::UnixStream::connect(&path).expect("the new server's socket");
    drop(new);
    assert!(!path.exists(), "the last server removes its socket");
}
