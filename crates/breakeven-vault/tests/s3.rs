//! A vault on a real S3 server, through a proxy that cuts, delays and refuses requests.

mod server;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use breakeven::pool::{Pool, PoolOptions};
use breakeven::vault::{
    AddOptions, Entropy, FarEnd, FolderEnd, Listed, PasswordCost, RestoreOptions, Time, Vault,
    VaultOptions, VerifyOptions, WriterOptions,
};
use breakeven_vault::{S3Options, open};
use server::Server;

const PASSWORD: &[u8] = b"a password";
const COST: PasswordCost = PasswordCost {
    memory_kib: 8,
    passes: 1,
    lanes: 1,
};

/// Returns the far end behind a port.
fn far_end(port: u16) -> Arc<dyn FarEnd> {
    let named = |name: &str, value: &str| (name.to_string(), value.to_string());
    let options = S3Options {
        endpoint: Some(format!("http://{}:{port}", std::net::Ipv4Addr::LOCALHOST)),
        variables: vec![
            named("AWS_ACCESS_KEY_ID", "test"),
            named("AWS_SECRET_ACCESS_KEY", "test"),
            named("AWS_REGION", "us-east-1"),
        ],
        request_timeout: Duration::from_secs(2),
    };
    open("s3://bucket/games", &options).expect("a far end")
}

/// The fate of a connection.
#[derive(Clone, Copy)]
enum Fault {
    None,
    /// It is cut after so many bytes of the request.
    CutRequest(usize),
    /// All is sent, and the answer is cut after so many bytes.
    CutAnswer(usize),
    /// All is sent, and the answer is held back until the client gives up.
    Hold,
    /// It is refused as too much.
    Throttle,
}

/// Starts a proxy. Every so many connections meet a fault, and the faults are counted.
fn proxy(upstream: u16, faults: Arc<AtomicU64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let Ok(client) = client else { continue };
            let fault = match number % 9 {
                1 => Fault::CutRequest(50 + 37 * number),
                3 => Fault::CutAnswer(number % 40),
                5 => Fault::Throttle,
                7 if number % 36 == 7 => Fault::Hold,
                7 => Fault::CutAnswer(0),
                _ => Fault::None,
            };
            faults.fetch_add(u64::from(!matches!(fault, Fault::None)), Ordering::Relaxed);
            std::thread::spawn(move || carry(client, upstream, fault));
        }
    });
    port
}

fn carry(mut client: TcpStream, upstream: u16, fault: Fault) -> std::io::Result<()> {
    if matches!(fault, Fault::Throttle) {
        let _ = client.read(&mut [0; 1 << 16])?;
        let answer = "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        client.write_all(answer.as_bytes())?;
        return client.shutdown(Shutdown::Both);
    }
    let server = TcpStream::connect(("127.0.0.1", upstream))?;
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    let request_bytes = match fault {
        Fault::CutRequest(count) => count,
        _ => usize::MAX,
    };
    let sending = std::thread::spawn(move || pass(from, to, request_bytes));
    match fault {
        Fault::Hold => drop(sending.join()),
        Fault::CutAnswer(count) => pass(server, client, count),
        // A connection that does well is used again; in the end it is cut as well.
        _ => pass(server, client, 2 << 20),
    }
    Ok(())
}

/// Passes so many bytes on, and then cuts both ways.
fn pass(mut from: TcpStream, mut to: TcpStream, most: usize) {
    let mut left = most;
    let mut buffer = [0; 1 << 14];
    while left > 0 {
        let room = left.min(buffer.len());
        let Ok(count) = from.read(&mut buffer[..room]) else {
            break;
        };
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
        left -= count;
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn pool() -> Pool {
    Pool::new(PoolOptions { worker_count: 2 }).expect("a pool")
}

fn options(seconds: i64) -> AddOptions {
    AddOptions {
        now: Time {
            seconds: 4_000_000_000 + seconds,
            nanoseconds: 0,
        },
        ..AddOptions::default()
    }
}

fn make_tree(root: &Path) {
    let mut random = fastrand(7);
    fs::create_dir(root.join("below")).expect("a folder");
    for at in 0..12 {
        let bytes: Vec<u8> = (0..200_000).map(|_| random() as u8).collect();
        fs::write(root.join(format!("below/{at}")), bytes).expect("a file");
    }
    fs::write(root.join("text"), "a line\n".repeat(50_000)).expect("a file");
}

/// A generator of this test's own: xorshift.
fn fastrand(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 20
    }
}

fn check_restored(vault: &Vault, epoch: u64, root: &Path) {
    let target = tempfile::tempdir().expect("a folder");
    let keep = RestoreOptions::default();
    let restored = vault.restore(&pool(), epoch, target.path(), &keep, &mut |_| ());
    let restored = restored.expect("a restore");
    assert!(restored.problems.is_empty(), "{:?}", restored.problems);
    let back = target.path().join(root.strip_prefix("/").expect("a path"));
    let mut names: Vec<String> = (0..12).map(|at| format!("below/{at}")).collect();
    names.push("text".to_string());
    for name in names.iter().filter(|name| root.join(name).exists()) {
        let (was, is) = (fs::read(root.join(name)), fs::read(back.join(name)));
        assert!(was.expect("a file") == is.expect("a file"), "{name}");
    }
}

#[test]
fn a_vault_lives_on_an_s3_server_behind_a_bad_line() {
    let Some(server) = Server::start() else {
        return;
    };
    let faults = Arc::new(AtomicU64::new(0));
    let port = proxy(server.port, Arc::clone(&faults));
    let source = tempfile::tempdir().expect("a folder");
    make_tree(source.path());
    let paths = [source.path().to_path_buf()];
    let packs = VaultOptions {
        frame_bytes: 200_000,
        pack_bytes: 500_000,
        ..VaultOptions::default()
    };
    let entropy = || Entropy::system().expect("random bytes");
    let far = far_end(port);
    let mut vault = Vault::init(far, packs, PASSWORD, COST, entropy()).expect("a vault");
    let again = Vault::init(far_end(port), packs, PASSWORD, COST, entropy());
    assert!(again.is_err(), "a second one in the same place");
    let first = vault
        .add(&pool(), &paths, &options(0), &mut |_| ())
        .expect("a snapshot");
    for at in 0..8 {
        fs::remove_file(source.path().join(format!("below/{at}"))).expect("a file");
    }
    let second = vault
        .add(&pool(), &paths, &options(9), &mut |_| ())
        .expect("a snapshot");
    // Another machine, without the bad line.
    let mut other = Vault::open(far_end(server.port), PASSWORD, entropy()).expect("a vault");
    assert_eq!(other.snapshots().expect("snapshots").len(), 2);
    check_restored(&vault, second.epoch, source.path());
    let before = other.stored_bytes().expect("sizes");
    other.forget(&[first.epoch]).expect("it forgets");
    let writing = WriterOptions::default();
    vault.reload().expect("the newest state");
    let collected = vault.collect(&pool(), writing, (100, 0), 0.6, &mut |_| ());
    println!("{:?}", collected.expect("it collects"));
    let after = other.stored_bytes().expect("sizes");
    assert!(after < before / 2 + 500_000, "{before} to {after}");
    check_restored(&vault, second.epoch, source.path());
    let verified = vault.verify(&pool(), VerifyOptions::default(), &mut |_| ());
    let verified = verified.expect("it reads");
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
    let faults = faults.load(Ordering::Relaxed);
    println!("{faults} connections met a fault");
    assert!(faults >= 20, "{faults}");
}

/// Starts a proxy that counts the requests that go through it.
fn counting(upstream: u16, requests: Arc<AtomicU64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let requests = Arc::clone(&requests);
            std::thread::spawn(move || count(client, upstream, &requests));
        }
    });
    port
}

fn count(mut client: TcpStream, upstream: u16, requests: &AtomicU64) -> std::io::Result<()> {
    const VERSION: &[u8] = b" HTTP/1.1\r\n";
    let mut server = TcpStream::connect(("127.0.0.1", upstream))?;
    let (from, to) = (server.try_clone()?, client.try_clone()?);
    let answers = std::thread::spawn(move || pass(from, to, usize::MAX));
    let (mut buffer, mut tail) = ([0; 1 << 14], Vec::new());
    loop {
        let read = client.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        // A match may begin in one part and end in the next.
        tail.extend_from_slice(&buffer[..read]);
        let found = tail.windows(VERSION.len()).filter(|it| *it == VERSION);
        requests.fetch_add(found.count() as u64, Ordering::Relaxed);
        tail.drain(..tail.len().saturating_sub(VERSION.len() - 1));
        server.write_all(&buffer[..read])?;
    }
    server.shutdown(Shutdown::Write)?;
    drop(answers.join());
    Ok(())
}

/// An add to a vault of 1,000 snapshots makes as many requests as to one of 5, except for the second pages of listings.
#[test]
fn an_unchanged_add_asks_as_much_at_any_number_of_snapshots() {
    let Some(server) = Server::start() else {
        return;
    };
    let requests = Arc::new(AtomicU64::new(0));
    let port = counting(server.port, Arc::clone(&requests));
    let source = tempfile::tempdir().expect("a folder");
    make_tree(source.path());
    let paths = [source.path().to_path_buf()];
    let entropy = || Entropy::system().expect("random bytes");
    let storage = Arc::new(breakeven::storage::MemoryStorage::new());
    let near = FolderEnd::shared(storage);
    let options_of_vault = VaultOptions::default();
    let made = Vault::init(
        Arc::clone(&near),
        options_of_vault,
        PASSWORD,
        COST,
        entropy(),
    );
    let mut vault = made.expect("a vault");
    let pool = pool();
    let mut seconds = 0;
    let mut add = |vault: &mut Vault| {
        seconds += 9;
        let added = vault.add(&pool, &paths, &options(seconds), &mut |_| ());
        added.expect("a snapshot");
    };
    let far = far_end(server.port);
    // Of an unchanged add, as an own process makes it.
    let mut asked = |vault: &mut Vault, snapshots: usize| {
        for _ in vault.snapshots().expect("snapshots").len()..snapshots {
            add(vault);
        }
        bring(&*near, &*far);
        requests.store(0, Ordering::Relaxed);
        let opened = Vault::open(far_end(port), PASSWORD, entropy());
        let mut opened = opened.expect("a vault");
        add(&mut opened);
        requests.load(Ordering::Relaxed)
    };
    let few = asked(&mut vault, 5);
    let many = asked(&mut vault, 1000);
    println!("{few} requests at 5 snapshots, {many} at 1000");
    assert!(few > 10 && many <= few + 8, "{few} and {many}");
}

/// Gives one far end the objects of another.
fn bring(from: &dyn FarEnd, to: &dyn FarEnd) {
    for folder in ["keys", "packs", "copies", "index", "snapshots", "locks"] {
        let there = to.list(folder).expect("a listing");
        let names = |listed: Vec<Listed>| -> BTreeSet<String> {
            listed.into_iter().map(|it| it.name).collect()
        };
        let (there, here) = (names(there), names(from.list(folder).expect("a listing")));
        for name in here.difference(&there).filter(|it| *it != "turn") {
            let object = format!("{folder}/{name}");
            let bytes = from.read(&object, 1 << 30).expect("an object");
            to.put(&object, &bytes).expect("it is put");
        }
        let gone: Vec<String> = there.difference(&here).cloned().collect();
        to.delete(folder, &gone).expect("it goes");
    }
    let config = from.read("config", 1 << 20).expect("an object");
    to.put("config", &config).expect("it is put");
}

#[test]
fn a_second_writer_is_told_and_unlock_takes_the_turn() {
    let Some(server) = Server::start() else {
        return;
    };
    let entropy = || Entropy::system().expect("random bytes");
    let far = || far_end(server.port);
    let made = Vault::init(far(), VaultOptions::default(), PASSWORD, COST, entropy());
    drop(made.expect("a vault"));
    let held = far().take_turn().expect("the turn");
    let mut vault = Vault::open(far(), PASSWORD, entropy()).expect("a vault");
    let refused = vault
        .forget(&[])
        .expect_err("a turn that is taken")
        .to_string();
    assert!(refused.contains("another process writes"), "{refused}");
    vault.unlock().expect("the turn");
    vault.forget(&[]).expect("a change");
    drop(held);
    vault.forget(&[]).expect("a change");
}

/// Opens an unreachable store, and returns the error.
fn refused(endpoint: &str, variables: &[(&str, &str)]) -> String {
    let variables = variables.iter();
    let options = S3Options {
        endpoint: Some(endpoint.to_string()),
        variables: (variables.map(|(name, value)| (name.to_string(), value.to_string()))).collect(),
        ..S3Options::default()
    };
    let opened = open("s3://bucket/games", &options);
    opened.err().expect("it cannot be reached").to_string()
}

#[test]
fn what_is_missing_is_said_before_any_request() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("its address"));
    listener.set_nonblocking(true).expect("it does not wait");
    let keys = [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    // Without credentials no server is asked, also not the machine's host.
    for variables in [
        &[][..],
        &[("AWS_REGION", "us-east-1")],
        &[("AWS_ACCESS_KEY_ID", "")],
    ] {
        let said = refused(&endpoint, variables);
        assert!(said.contains("AWS_ACCESS_KEY_ID"), "{said}");
    }
    assert!(refused(&endpoint, &keys[..1]).contains("AWS_SECRET_ACCESS_KEY"));
    drop(listener);
    // One server does not listen any more, and the other's name does not exist.
    for endpoint in [&endpoint[..], "http://nobody.invalid:9000"] {
        let said = refused(endpoint, &keys);
        assert!(said.contains(endpoint), "{said}");
        assert!(said.contains("are host and port right?"), "{said}");
    }
    // A way around may lead there all the same.
    let proxy = format!("http://{}:9", std::net::Ipv4Addr::LOCALHOST);
    let around = [keys[0], keys[1], ("http_proxy", &proxy)];
    let options = S3Options {
        endpoint: Some(endpoint),
        variables: around
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        ..S3Options::default()
    };
    open("s3://bucket/games", &options).expect("nobody is asked yet");
}
