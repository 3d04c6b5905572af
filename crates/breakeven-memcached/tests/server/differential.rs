//! The same commands to ours and to Debian's memcached: the same bytes come back.
//!
//! CAS are numbers of the server's own. So each server gets the number that it last gave, and answers are compared
//! without them. Seconds that are left and that have passed are compared by whether there are any.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;

use breakeven_memcached::Settings;

use crate::peer::{Client, Debian, Ours};

/// Lines that are wrong, odd, or of the administrator.
const ODD: &[&str] = &[
    "get",
    "gets",
    "gat",
    "gat 10",
    "gat abc k0",
    "gat 10 k0 k1",
    "gats 10 k0",
    "gets",
    "get  k0   k1 ",
    "bget k1",
    "set k0",
    "set k0 0 0",
    "set k0 a 0 1",
    "set k0 0 a 1",
    "set k0 0 0 -1",
    "set k0 0 0 99999999999999999999",
    "cas k0 0 0 1",
    "cas k0 0 0 1 x",
    "append k0 0",
    "incr k0",
    "incr k0 abc",
    "incr k0 -1",
    "incr k0 18446744073709551616",
    "incr k0 5 noreply",
    "decr k0 99999999999999999999",
    "decr k0 1 noreply",
    "incr k0 noreply",
    "delete",
    "delete k0 0",
    "delete k0 5",
    "delete k0 noreply",
    "delete k0 0 noreply",
    "delete k0 5 noreply",
    "delete a b c d e",
    "touch k0",
    "touch k0 abc",
    "touch k0 0 noreply",
    "touch k1 -5",
    "verbosity",
    "verbosity 0",
    "verbosity x",
    "verbosity foo bar my",
    "verbosity 0 noreply",
    "foo",
    "",
    " ",
    "x",
    "  get k2",
    "flush_all abc",
    "flush_all 0",
    "flush_all -5",
    "flush_all noreply",
    "flush_all 0 noreply",
    "flush_all 1 2 3",
    "slabs",
    "slabs reassign 1 1",
    "slabs reassign a b",
    "slabs automove 1",
    "slabs automove 5",
    "slabs automove x",
    "slabs automove",
    "slabs automove ratio 0.5",
    "slabs automove ratio",
    "lru",
    "lru tune 10 20 0.1 2.0",
    "lru tune 50 50 0.1 2",
    "lru tune 10 20 0 2",
    "lru tune 10",
    "lru mode flat",
    "lru mode segmented",
    "lru mode x",
    "lru temp_ttl 60",
    "lru temp_ttl",
    "lru_crawler",
    "lru_crawler tocrawl 5",
    "lru_crawler tocrawl x",
    "lru_crawler sleep 9999999",
    "lru_crawler sleep 100",
    "lru_crawler x",
    "lru_crawler crawl x",
    "shutdown",
    "cache_memlimit",
    "cache_memlimit 4",
    "cache_memlimit abc",
    "stats detail",
    "stats detail x",
    "stats foo",
    "stats reset",
    "stats detail off",
    "mg",
    "ms",
    "md",
    "ma",
    "me",
    "mn x",
    "mx",
    "mx k0",
    "m",
    "mg k0 s s",
    "mg k0 !",
    "mg k0 \u{1}",
    "ms k0",
    "ms k0 x",
    "ms k0 -1",
    "md k0 !",
    "ma k0 q q",
    "ma k0 Dx",
    "mg k0 Tx",
    "mg k0 M",
    "mg =!= b k",
    "mg a b",
    "mg k0 s t f k O1 v q u h1 l2 c3 P L b T0 N0 R0 x",
    "ma k0 MX",
    "ma k0 MID",
    "mset",
    "md k0 C",
    "get k0\tk1",
    "set\tk0 0 0 1",
    "incr k3 +2",
    "touch k2 9223372036854775808",
];
/// The keys that the commands are about, beside long ones.
const KEYS: u32 = 12;
const BATCHES: u32 = 1_600;
const COMMANDS_MIN: u64 = 20_000;

/// A part of a command: bytes, or the CAS of a key that this server gave last, less some.
enum Part {
    Bytes(Vec<u8>),
    Cas(String, u64),
}

/// One server's answers about its CAS.
struct Side {
    client: Client,
    cas: HashMap<String, u64>,
    name: &'static str,
}

impl Side {
    fn run(&mut self, batch: &[Part], random: &mut fastrand::Rng, end: &[u8]) -> String {
        let mut bytes = Vec::new();
        for part in batch {
            match part {
                Part::Bytes(more) => bytes.extend_from_slice(more),
                Part::Cas(key, less) => {
                    let cas = self.cas.get(key).map_or(0, |cas| cas - less);
                    bytes.extend_from_slice(cas.to_string().as_bytes());
                }
            }
        }
        let mut sender = self.client.stream.try_clone().unwrap();
        let cut = random.usize(..=bytes.len());
        let other = random.usize(..=bytes.len());
        let cuts = [cut.min(other), cut.max(other)];
        let received = std::thread::scope(|scope| {
            // A batch may be longer than the room of both sockets.
            scope.spawn(move || send(&mut sender, &bytes, cuts));
            self.client.read_to(end)
        });
        self.plain(&received)
    }

    /// Returns an answer without each server's own parts, and keeps the CAS.
    fn plain(&mut self, answer: &[u8]) -> String {
        let mut plain = String::new();
        let mut rest = answer;
        while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 2..];
            let words: Vec<&str> = line.split(' ').collect();
            let value_bytes = match words[0] {
                "VALUE" => Some(words[3].parse().unwrap()),
                "VA" => Some(words[1].parse::<usize>().unwrap()),
                _ => None,
            };
            plain += &self.plain_line(&words);
            plain.push('\n');
            if let Some(bytes) = value_bytes {
                plain += &rest[..bytes].escape_ascii().to_string();
                assert_eq!(&rest[bytes..bytes + 2], b"\r\n", "{}: {line}", self.name);
                rest = &rest[bytes + 2..];
                plain.push('\n');
            }
        }
        assert!(
            rest.is_empty(),
            "{}: {:?}",
            self.name,
            rest.escape_ascii().to_string()
        );
        plain
    }

    fn plain_line(&mut self, words: &[&str]) -> String {
        if words[0] == "VALUE" && words.len() == 5 {
            self.cas
                .insert(words[1].to_string(), words[4].parse().unwrap());
            return format!("{} #", words[..4].join(" "));
        }
        if words[0] == "ME" {
            return plain_inspection(words);
        }
        if !["HD", "VA", "NS", "EX", "NF", "EN"].contains(&words[0]) {
            return words.join(" ");
        }
        let key = words.iter().find_map(|word| word.strip_prefix('k'));
        let mut plain = Vec::new();
        for word in words {
            let (letter, number) = word.split_at(word.len().min(1));
            plain.push(match (letter, number.parse::<u64>()) {
                ("c", Ok(0)) | ("t", Err(_)) => word.to_string(),
                ("c", Ok(cas)) => {
                    if let Some(key) = key {
                        self.cas.insert(key.to_string(), cas);
                    }
                    "c#".into()
                }
                ("t", Ok(_)) => "t#".into(),
                ("l", Ok(_)) => "l#".into(),
                _ => word.to_string(),
            });
        }
        plain.join(" ")
    }
}

/// Returns the answer of `me` on an item without each server's own parts.
fn plain_inspection(words: &[&str]) -> String {
    let plain = words.iter().map(|word| match word.split_once('=') {
        Some((name @ ("la" | "cas" | "cls" | "size"), _)) => format!("{name}=#"),
        Some(("exp", end)) if end != "-1" => "exp=#".into(),
        _ => word.to_string(),
    });
    plain.collect::<Vec<String>>().join(" ")
}

fn send(stream: &mut UnixStream, bytes: &[u8], cuts: [usize; 2]) {
    use std::io::Write;
    for piece in [
        &bytes[..cuts[0]],
        &bytes[cuts[0]..cuts[1]],
        &bytes[cuts[1]..],
    ] {
        stream.write_all(piece).unwrap();
    }
}

fn key(random: &mut fastrand::Rng) -> String {
    match random.u32(..40) {
        0 => "l".repeat(250),
        1 => "p:with.prefix".into(),
        _ => format!("k{}", random.u32(..KEYS)),
    }
}

/// Returns a number of any length.
fn number(random: &mut fastrand::Rng) -> u64 {
    random.u64(..) >> random.u32(..64)
}

fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    let bytes = match random.u32(..200) {
        0 => 300_000,
        1..=10 => random.usize(..20_000),
        11..=60 => return number(random).to_string().into_bytes(),
        61..=70 => 0,
        _ => random.usize(..100),
    };
    (0..bytes).map(|_| random.alphanumeric() as u8).collect()
}

fn end_of_life(random: &mut fastrand::Rng) -> i64 {
    *random
        .choice(&[
            0,
            0,
            0,
            1000,
            86_400,
            -1,
            2_592_000,
            2_592_001,
            4_000_000_000,
            -100,
        ])
        .unwrap()
}

fn text_store(random: &mut fastrand::Rng, batch: &mut Vec<Part>) {
    let name = *random
        .choice(&[
            "set", "set", "set", "add", "replace", "append", "prepend", "cas",
        ])
        .unwrap();
    let key = key(random);
    let mut value = value(random);
    let mut bytes = value.len();
    if random.u32(..60) == 0 {
        // The end is not at the given place, and the rest is a command of its own.
        bytes += 3;
        value.extend_from_slice(b"abcde");
    } else if random.u32(..300) == 0 {
        value = vec![b'x'; 1_048_577];
        bytes = value.len();
    }
    let flags = *random
        .choice(&["0", "0", "1", "65535", "4294967295", "4294967296"])
        .unwrap();
    let end = end_of_life(random);
    batch.push(Part::Bytes(
        format!("{name} {key} {flags} {end} {bytes}").into_bytes(),
    ));
    if name == "cas" {
        batch.push(Part::Bytes(b" ".to_vec()));
        batch.push(Part::Cas(key, random.u64(..4) / 3));
    }
    let silent = if random.u32(..10) == 0 {
        " noreply"
    } else {
        ""
    };
    let mut rest = format!("{silent}\r\n").into_bytes();
    rest.extend_from_slice(&value);
    rest.extend_from_slice(b"\r\n");
    batch.push(Part::Bytes(rest));
}

/// Whether a command hands out items, and whether it changes numbers. Debian's server pads a number that gets shorter
/// unless a reply that waits to be sent still holds the item. So no batch has both.
fn fetches_and_counts(line: &str) -> (bool, bool) {
    let name = line.split_whitespace().next().unwrap_or_default();
    let fetches = ["get", "gets", "gat", "gats", "bget", "mg"].contains(&name);
    (fetches, ["incr", "decr", "ma"].contains(&name))
}

fn text_other(random: &mut fastrand::Rng, counts: bool, batch: &mut Vec<Part>) {
    let one = key(random);
    let kind = if counts {
        random.u32(7..12)
    } else {
        [0, 2, 3, 4, 5, 6, 9, 10, 11][random.usize(..9)]
    };
    let line = match kind {
        0 if random.bool() => format!("me {one}"),
        0..=2 => format!("get {one}"),
        3..=4 => format!("gets {one} {}", key(random)),
        5 => {
            let keys: Vec<String> = (0..random.u32(1..60)).map(|_| key(random)).collect();
            format!("gets {}", keys.join(" "))
        }
        6 => format!("gat {} {one}", end_of_life(random)),
        7 => format!("incr {one} {}", number(random)),
        8 => format!("decr {one} {}", number(random)),
        9 => format!("touch {one} {}", end_of_life(random)),
        10 => format!("delete {one}"),
        _ => loop {
            let line = *random.choice(ODD).unwrap();
            let (fetches, changes) = fetches_and_counts(line);
            if !(if counts { fetches } else { changes }) && !line.starts_with("lru") {
                break line.to_string();
            }
        },
    };
    let end = if random.u32(..10) == 0 { "\n" } else { "\r\n" };
    batch.push(Part::Bytes(format!("{line}{end}").into_bytes()));
}

/// Returns the flags of a meta command that report on the item.
fn answers_of(name: &str) -> Vec<&'static str> {
    match name {
        "mg" => vec!["s", "v", "t", "f", "h", "l", "c", "k", "q", "u", "Oab"],
        "ms" => vec!["c", "k", "q", "Oab", "I"],
        "md" => vec!["k", "q", "Oab", "I"],
        _ => vec!["c", "k", "q", "Oab", "t", "v"],
    }
}

/// Adds a meta command: flags that change the item come before flags that report on it, whose order would show.
fn meta(random: &mut fastrand::Rng, counts: bool, batch: &mut Vec<Part>) {
    let first = if counts { "ma" } else { "mg" };
    let names = [first, first, "ms", "md"];
    let name = *random.choice(&names).unwrap();
    let is_base64 = random.u32(..10) == 0;
    let key = match is_base64 {
        true => (*random.choice(&["Zm9v", "AAEC", "IA=="]).unwrap()).to_string(),
        false => key(random),
    };
    let mut changes = Vec::new();
    let mut answers = answers_of(name);
    if is_base64 {
        // Debian's answers in the form in which the item was stored, ours in the form of the question.
        answers.retain(|answer| *answer != "k");
    }
    random.shuffle(&mut answers);
    answers.truncate(random.usize(..=answers.len()));
    // Debian's sets the end of the item that a number had before it took another digit.
    if name != "ma" && random.u32(..4) == 0 {
        changes.push(format!("T{}", end_of_life(random).max(0)));
    }
    if ["mg", "ma"].contains(&name) && random.u32(..4) == 0 && changes.is_empty() {
        changes.push(format!("N{}", [0, 1000][random.usize(..2)]));
    }
    if name == "mg" && random.u32(..4) == 0 && changes.is_empty() {
        changes.push(format!("R{}", [30, 5000][random.usize(..2)]));
    }
    if name == "ma" {
        if random.bool() {
            changes.push(format!("D{}", random.u64(..1000)));
        }
        if random.bool() {
            changes.push(format!("J{}", random.u64(..1000)));
        }
        let mode = random.choice(&["I", "D", "+", "-"]).unwrap();
        changes.push(format!("M{mode}"));
    }
    if name == "ms" {
        changes.push(format!("F{}", random.u32(..3)));
        if random.bool() {
            changes.push(format!(
                "M{}",
                random.choice(&["E", "A", "P", "R", "S", "x"]).unwrap()
            ));
        }
    }
    if is_base64 {
        changes.push("b".into());
    }
    random.shuffle(&mut changes);
    let flags: Vec<&str> = changes.iter().map(String::as_str).chain(answers).collect();
    let value = (name == "ms").then(|| value(random));
    let bytes = value
        .as_ref()
        .map_or(String::new(), |value| format!(" {}", value.len()));
    batch.push(Part::Bytes(format!("{name} {key}{bytes}").into_bytes()));
    if ["ms", "md", "ma"].contains(&name) && random.u32(..3) == 0 {
        batch.push(Part::Bytes(b" C".to_vec()));
        batch.push(Part::Cas(key, random.u64(..4) / 3));
    }
    let separator = if flags.is_empty() { "" } else { " " };
    let mut rest = format!("{separator}{}\r\n", flags.join(" ")).into_bytes();
    if let Some(value) = value {
        rest.extend_from_slice(&value);
        rest.extend_from_slice(b"\r\n");
    }
    batch.push(Part::Bytes(rest));
}

#[test]
fn lines_that_tune_memcached_are_answered_as_by_debians_memcached() {
    let folder = tempfile::tempdir().unwrap();
    let Some(debian) = Debian::start(folder.path(), &[]) else {
        return;
    };
    let ours = Ours::start(folder.path(), Settings::default());
    let mut clients = [&debian.path, &ours.path].map(|path| Client::connect(path));
    let mut tried = 0;
    for line in ODD.iter().filter(|line| line.starts_with("lru")) {
        let answers = clients.each_mut().map(|client| {
            client.send(format!("{line}\r\nmn\r\n").as_bytes());
            String::from_utf8(client.read_to(b"MN\r\n")).unwrap()
        });
        assert_eq!(answers[0], answers[1], "{line}");
        tried += 1;
    }
    assert!(tried >= 10, "{tried}");
}

/// A value that was to be replaced is not served any more where there was no room for the new one.
#[test]
fn a_set_without_room_leaves_no_old_value() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        evict: false,
        memory_bytes: 8 << 20,
        ..Settings::default()
    };
    let ours = Ours::start(folder.path(), settings);
    let debian = Debian::start(folder.path(), &["-M", "-m", "8"]);
    let set =
        |key: &str, bytes: usize| format!("set {key} 0 0 {bytes}\r\n{}\r\n", "v".repeat(bytes));
    for path in [Some(&ours.path), debian.as_ref().map(|it| &it.path)] {
        let Some(path) = path else { continue };
        let mut client = Client::connect(path);
        assert_eq!(client.ask(&set("old", 10)), "STORED\r\n");
        let mut number = 0;
        let refused = loop {
            let answer = client.ask(&set(&format!("k{number}"), 100_000));
            if answer != "STORED\r\n" {
                break answer;
            }
            number += 1;
            assert!(number < 1000, "never full");
        };
        assert_eq!(refused, "SERVER_ERROR out of memory storing object\r\n");
        assert_eq!(client.ask(&set("old", 100_000)), refused);
        assert_eq!(client.ask("get old\r\n"), "END\r\n");
    }
}

/// One client at a time lists all keys: the list waits in memory until the client takes it.
#[test]
fn keys_are_listed_for_one_client_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Ours::start(folder.path(), Settings::default());
    let mut clients = [0; 2].map(|_| Client::connect(&ours.path));
    let names = (0..150_000).map(|number| format!("set key{number:06} 0 0 1 noreply\r\nv\r\n"));
    clients[0].send(names.collect::<String>().as_bytes());
    assert_eq!(clients[0].ask("mn\r\n"), "MN\r\n");
    clients[0].send(b"lru_crawler metadump all\r\n");
    assert!(clients[0].read_to(b"\n").starts_with(b"key="));
    let busy = "BUSY currently processing crawler request\r\n";
    assert_eq!(clients[1].ask("lru_crawler metadump all\r\n"), busy);
    let listed = clients[0].read_to(b"END\r\n");
    let lines = listed.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, 150_000);
    clients[1].send(b"lru_crawler metadump all\r\n");
    assert!(clients[1].read_to(b"END\r\n").starts_with(b"key="));
}

#[test]
fn random_commands_are_answered_as_by_debians_memcached() {
    let seed = std::env::var("BREAKEVEN_SEED").map_or(20_200_323, |seed| seed.parse().unwrap());
    println!("BREAKEVEN_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    // Its threads that look after items hold them for moments, in which counting makes another item.
    let quiet = ["-o", "no_lru_maintainer,no_lru_crawler"];
    let Some(debian) = Debian::start(folder.path(), &quiet) else {
        return;
    };
    let settings = Settings {
        threads: 2,
        ..Settings::default()
    };
    let ours = Ours::start(folder.path(), settings);
    let side = |name, path| Side {
        client: Client::connect(path),
        cas: HashMap::new(),
        name,
    };
    let mut sides = [side("debian", &debian.path), side("ours", &ours.path)];
    // No CAS is so low that one less is none.
    for side in &mut sides {
        let keys = (0..KEYS).map(|key| format!("k{key}"));
        for key in keys.chain(["l".repeat(250), "p:with.prefix".into()]) {
            (0..3).for_each(|_| {
                assert_eq!(
                    side.client.ask(&format!("set {key} 0 0 1\r\n1\r\n")),
                    "STORED\r\n"
                )
            });
        }
    }
    let is_full = std::env::var("BREAKEVEN_FULL").is_ok_and(|value| value == "1");
    let mut commands = 0;
    for number in 0..BATCHES * if is_full { 10 } else { 1 } {
        let mut batch = Vec::new();
        let counts = random.bool();
        for _ in 0..random.u32(1..30) {
            match random.u32(..10) {
                0..=2 => text_store(&mut random, &mut batch),
                3..=5 => meta(&mut random, counts, &mut batch),
                _ => text_other(&mut random, counts, &mut batch),
            }
            commands += 1;
        }
        // The items that the batch left behind, so that no difference is found late.
        for key in (0..KEYS).map(|key| format!("k{key}")) {
            batch.push(Part::Bytes(
                format!("mg {key} s f t h v u k\r\n").into_bytes(),
            ));
        }
        let end = format!("EN O{number}\r\n");
        batch.push(Part::Bytes(
            format!("mg nothing O{number}\r\n").into_bytes(),
        ));
        let split = random.u64(..);
        let shown = Unanswered(&batch);
        let answers = sides
            .each_mut()
            .map(|side| side.run(&batch, &mut fastrand::Rng::with_seed(split), end.as_bytes()));
        drop(shown);
        if answers[0] != answers[1] {
            panic!("batch {number}: {}", difference(&batch, &answers));
        }
    }
    println!("differential: {commands} commands, the same answers");
    assert!(commands >= COMMANDS_MIN, "{commands}");
}

/// Commands that are shown if their answers do not come.
struct Unanswered<'a>(&'a [Part]);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("no answer to\n{}", commands(self.0));
        }
    }
}

/// Shows the first line that differs, and the commands.
fn difference(batch: &[Part], answers: &[String; 2]) -> String {
    let mut lines = answers[0].lines().zip(answers[1].lines()).enumerate();
    let found = lines.find(|(_, (debian, ours))| debian != ours);
    let shown = found.map_or("one is longer".into(), |(at, (debian, ours))| {
        let before: Vec<&str> = answers[0]
            .lines()
            .skip(at.saturating_sub(3))
            .take(3)
            .collect();
        format!("after {before:.120?}\n debian {debian:.200}\n ours   {ours:.200}")
    });
    format!("{shown}\n{}", commands(batch))
}

fn commands(batch: &[Part]) -> String {
    let commands: String = batch
        .iter()
        .map(|part| match part {
            Part::Bytes(bytes) => bytes[..bytes.len().min(120)].escape_ascii().to_string(),
            Part::Cas(key, less) => format!("<{key}-{less}>"),
        })
        .collect();
    commands.replace("\\r\\n", "\n")
}
