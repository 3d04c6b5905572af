//! The tests of others: libmemcached's memccapable, which is a list of the duties of the text protocol.

use std::process::Command;

use breakeven_memcached::{Listen, Server, Settings};

use crate::peer::missing;

/// Tests of the text protocol that memccapable has.
const ASCII_TESTS_MIN: usize = 26;

#[test]
fn memccapable_finds_nothing_wrong_with_the_text_protocol() {
    let listen = Listen::Tcp {
        addresses: vec!["127.0.0.1".into()],
        port: 0,
    };
    let server = Server::open(Settings {
        listen,
        ..Settings::default()
    })
    .unwrap();
    let port = server.addresses()[0]
        .rsplit(':')
        .next()
        .unwrap()
        .to_string();
    let stopper = server.stopper();
    let thread = std::thread::spawn(move || server.run(None));
    let output = Command::new("memccapable")
        .args(["-h", "127.0.0.1", "-a", "-p", &port])
        .output();
    stopper.stop();
    thread.join().unwrap().unwrap();
    let output = match output {
        Ok(output) => output,
        Err(error) => return missing(&format!("memccapable: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let passed = text.matches("[pass]").count();
    println!("memccapable: {passed} passed");
    assert!(
        output.status.success() && !text.contains("[FAIL]"),
        "{text}"
    );
    assert!(passed >= ASCII_TESTS_MIN, "{text}");
}
