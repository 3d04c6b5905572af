//! Blocks of generated data, and a record of their cost by each arm. Processor times were measured once. Stored bytes
//! are the same every time, and a test compares the record with them.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::simulate::{Cost, Matrix, Pipeline};
use super::split::PARTS;
use crate::codec::{Compressor, Features, Method};
use crate::decide::Class;
use crate::frame::{Encoder, frame_bytes_max};
use crate::meter::thread_cpu;

const RECORD: &str = include_str!("../../tests/matrices/generated.csv");
/// The cost of the same blocks in parts: processor time as a share of the whole's, and bytes of all parts.
const PARTS_RECORD: &str = include_str!("../../tests/matrices/parts.csv");
pub const BLOCK_BYTES: usize = 1 << 20;
const BLOCKS_OF_KIND: u64 = 3;
pub const KINDS: [&str; 5] = ["text", "source", "numbers", "redundant", "noise"];
pub const ARMS: [&str; 13] = [
    "store", "lz4:a8", "lz4:1", "zstd:-5", "zstd:-1", "zstd:1", "zstd:3", "zstd:5", "zstd:9",
    "zstd:15", "zstd:19", "xz:1", "xz:6",
];

/// Draws a number below `most`: small ones are more frequent than large ones, like words.
fn rank(random: &mut fastrand::Rng, most: f64) -> usize {
    (most.powf(random.f64()) - 1.0) as usize
}

/// Makes a block of a kind.
pub fn block(kind: &str, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1000 + seed);
    let mut block = Vec::with_capacity(BLOCK_BYTES + 64);
    let words: Vec<String> = (0..4000)
        .map(|_| {
            (0..random.usize(2..10))
                .map(|_| random.lowercase())
                .collect()
        })
        .collect();
    let mut step = 0.0_f64;
    while block.len() < BLOCK_BYTES {
        match kind {
            "text" => {
                block.extend(words[rank(&mut random, 4000.0)].bytes());
                block.push(b' ');
            }
            "source" => {
                let (name, other) = (
                    &words[rank(&mut random, 300.0)],
                    &words[rank(&mut random, 300.0)],
                );
                let line = format!(
                    "    let {name} = self.{other}({}, &mut {name});\n",
                    rank(&mut random, 90.0)
                );
                block.extend(line.bytes());
            }
            "numbers" => {
                step += 1e-3;
                let noise = rank(&mut random, 4096.0) as f64 * 1e-9;
                block.extend(((step.sin() + 2.0) * 1e3 + noise).to_le_bytes());
            }
            "redundant" => {
                let value = (rank(&mut random, 40.0) as f32).sqrt();
                for _ in 0..rank(&mut random, 200.0) + 1 {
                    block.extend(value.to_be_bytes());
                }
            }
            _ => block.extend(random.u64(..).to_le_bytes()),
        }
    }
    block.truncate(BLOCK_BYTES);
    block
}

pub fn class_of(block: &[u8]) -> Class {
    let mut compressor = Compressor::new();
    Class::content(&Features::as_needed(block, &mut compressor, Class::needs_probe).unwrap())
}

/// A recorded block.
struct Recorded {
    class: Class,
    /// Its cost by each arm.
    whole: Vec<Cost>,
    /// In halves, quarters and eighths.
    parts: Vec<[Cost; PARTS.len() - 1]>,
}

/// Returns the record of each kind's blocks.
fn recorded() -> Vec<Vec<Recorded>> {
    let unknown = || Recorded {
        class: Class::BINARY,
        whole: vec![Cost::default(); ARMS.len()],
        parts: vec![[Cost::default(); PARTS.len() - 1]; ARMS.len()],
    };
    let blocks = || (0..BLOCKS_OF_KIND).map(|_| unknown()).collect();
    let mut found: Vec<Vec<Recorded>> = KINDS.iter().map(|_| blocks()).collect();
    let place = |fields: &[&str], arm: &str| {
        let kind = KINDS.iter().position(|it| *it == fields[0]).unwrap();
        let arm = ARMS.iter().position(|it| *it == arm).unwrap();
        (kind, fields[1].parse::<usize>().unwrap(), arm)
    };
    for line in RECORD.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let &[_, _, class_number, arm, nanoseconds, stored] = &fields[..] else {
            panic!("{line}");
        };
        let (kind, block, arm) = place(&fields, arm);
        let row = &mut found[kind][block];
        row.class = Class::from_content_number(class_number.parse().unwrap()).unwrap();
        row.whole[arm] = Cost {
            work: nanoseconds.parse::<f64>().unwrap() * 1e-9,
            stored_bytes: stored.parse().unwrap(),
        };
    }
    for line in PARTS_RECORD.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let &[_, _, arm, parts, work_share, stored] = &fields[..] else {
            panic!("{line}");
        };
        let (kind, block, arm) = place(&fields, arm);
        let row = &mut found[kind][block];
        let parts: usize = parts.parse().unwrap();
        let way = PARTS.iter().position(|it| *it == parts).unwrap();
        row.parts[arm][way - 1] = Cost {
            work: row.whole[arm].work * work_share.parse::<f64>().unwrap(),
            stored_bytes: stored.parse().unwrap(),
        };
    }
    found
}

/// Compares the record with the arms' present sizes. With `BREAKEVEN_RECORD` naming a file, it writes the record again:
/// the least of three processor times.
#[test]
fn the_record_is_of_these_blocks_and_arms() {
    let path = std::env::var_os("BREAKEVEN_RECORD");
    let mut text = String::from("kind,block,class,arm,encode_ns,stored_bytes\n");
    let known = recorded();
    let (mut encoder, mut frame) = (Encoder::new(), vec![0; frame_bytes_max(BLOCK_BYTES)]);
    // The slow arms add no more proof than the quick ones.
    let arms = if path.is_some() { ARMS.len() } else { 7 };
    let mut held = 0;
    for (kind, known) in KINDS.iter().zip(&known) {
        for number in 0..BLOCKS_OF_KIND {
            let block = block(kind, number);
            let class = class_of(&block);
            for (arm, name) in ARMS[..arms].iter().enumerate() {
                let method: Method = name.parse().unwrap();
                let mut least = f64::INFINITY;
                let mut stored_bytes = 0;
                for _ in 0..if path.is_some() { 3 } else { 1 } {
                    let begun = thread_cpu();
                    let encoded = encoder.encode(method, &block, &mut frame).unwrap();
                    least = least.min(thread_cpu().0 - begun.0);
                    stored_bytes = encoded.frame_bytes;
                }
                let nanoseconds = (least * 1e9) as u64;
                let class_number = class.number();
                let line =
                    format!("{kind},{number},{class_number},{name},{nanoseconds},{stored_bytes}");
                writeln!(text, "{line}").unwrap();
                if path.is_none() {
                    let known = &known[number as usize];
                    assert_eq!(known.whole[arm].stored_bytes, stored_bytes as f64, "{line}");
                    assert_eq!(known.class, class, "{line}");
                    held += 1;
                }
            }
        }
    }
    match path {
        Some(path) => std::fs::write(path, text).unwrap(),
        None => assert!(held >= 100, "{held} lines held"),
    }
}

/// Encodes a block in equal parts: processor time, and bytes of all frames.
fn encode_in_parts(
    encoder: &mut Encoder,
    frame: &mut [u8],
    method: Method,
    block: &[u8],
    parts: usize,
) -> (f64, usize) {
    let begun = thread_cpu();
    let pieces = block.chunks(block.len().div_ceil(parts));
    let stored = pieces.map(|it| encoder.encode(method, it, frame).unwrap().frame_bytes);
    let stored = stored.sum();
    (thread_cpu().0 - begun.0, stored)
}

/// As for the record of whole blocks; `BREAKEVEN_RECORD_PARTS` names a file for a new one.
#[test]
fn the_record_of_parts_is_of_these_blocks_and_arms() {
    let path = std::env::var_os("BREAKEVEN_RECORD_PARTS");
    let mut text = String::from("kind,block,arm,parts,work_share,stored_bytes\n");
    let known = recorded();
    let (mut encoder, mut frame) = (Encoder::new(), vec![0; frame_bytes_max(BLOCK_BYTES)]);
    let (arms, count) = match path {
        Some(_) => (ARMS.len(), BLOCKS_OF_KIND),
        None => (7, 1),
    };
    let mut held = 0;
    for (kind, known) in KINDS.iter().zip(&known) {
        for number in 0..count {
            let block = block(kind, number);
            for (arm, name) in ARMS[..arms].iter().enumerate() {
                let method: Method = name.parse().unwrap();
                let mut in_parts =
                    |parts| encode_in_parts(&mut encoder, &mut frame, method, &block, parts);
                // The first time it also takes memory.
                in_parts(1);
                let whole = in_parts(1);
                for (way, &parts) in PARTS[1..].iter().enumerate() {
                    let (work, stored) = in_parts(parts);
                    let share = work / whole.0;
                    writeln!(text, "{kind},{number},{name},{parts},{share:.4},{stored}").unwrap();
                    if path.is_none() {
                        let known = known[number as usize].parts[arm][way].stored_bytes;
                        assert_eq!(known, stored as f64, "{kind}, {name} in {parts}");
                        held += 1;
                    }
                }
            }
        }
    }
    match path {
        Some(path) => std::fs::write(path, text).unwrap(),
        None => assert_eq!(held, 5 * 7 * 3),
    }
}

/// A row of blocks, with their costs by arms.
#[derive(Clone)]
pub struct Blocks {
    pub name: &'static str,
    pub arms: Vec<Cow<'static, str>>,
    pub matrix: Matrix,
    pub parts: Vec<Vec<[Cost; PARTS.len() - 1]>>,
    pub classes: Vec<Class>,
}

impl Blocks {
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Leaves some of the arms.
    pub fn only(&self, arms: &[&str]) -> Blocks {
        let places: Vec<usize> = (arms.iter())
            .map(|name| self.arms.iter().position(|it| it == name).unwrap())
            .collect();
        let whole = |row: &Vec<Cost>| places.iter().map(|&it| row[it]).collect();
        let parts = |row: &Vec<[Cost; 3]>| places.iter().map(|&it| row[it]).collect();
        Blocks {
            arms: places.iter().map(|&it| self.arms[it].clone()).collect(),
            matrix: Matrix {
                costs: self.matrix.costs.iter().map(whole).collect(),
            },
            parts: self.parts.iter().map(parts).collect(),
            ..self.clone()
        }
    }

    /// Returns the costs of blocks by each arm, whole and in parts, as separate arms.
    pub fn with_parts(&self) -> Matrix {
        let rows = self.matrix.costs.iter().zip(&self.parts);
        let costs = rows.map(|(whole, parts)| {
            let parts = parts.iter().flatten();
            whole.iter().chain(parts).copied().collect()
        });
        Matrix {
            costs: costs.collect(),
        }
    }

    /// Makes all blocks like the first.
    pub fn all_alike(mut self) -> Blocks {
        self.matrix.costs = vec![self.matrix.costs[0].clone(); self.classes.len()];
        self.parts = vec![self.parts[0].clone(); self.classes.len()];
        self.classes = vec![self.classes[0]; self.classes.len()];
        self
    }

    /// Multiplies the time of all work.
    pub fn slow_down(&mut self, slower: f64) {
        let whole = self.matrix.costs.iter_mut().flatten();
        let costs = whole.chain(self.parts.iter_mut().flatten().flatten());
        costs.for_each(|cost| cost.work *= slower);
    }

    /// Returns the cost of a block by an arm, in parts.
    pub fn cost(&self, block: usize, arm: usize, parts: usize) -> Cost {
        let way = PARTS.iter().position(|it| *it == parts).unwrap();
        match way {
            0 => self.matrix.costs[block][arm],
            way => self.parts[block][arm][way - 1],
        }
    }
}

/// The seed of a row where one is enough.
const SEED: u64 = 77;

/// Makes a row of `count` blocks, changing kind every `run` blocks.
pub fn blocks(name: &'static str, kinds: &[usize], run: usize, count: usize) -> Blocks {
    blocks_from(SEED, name, (kinds, run), count)
}

pub fn blocks_from(
    seed: u64,
    name: &'static str,
    (kinds, run): (&[usize], usize),
    count: usize,
) -> Blocks {
    let recorded = recorded();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut made = Blocks {
        name,
        arms: ARMS.map(Cow::Borrowed).to_vec(),
        matrix: Matrix::default(),
        parts: Vec::new(),
        classes: Vec::new(),
    };
    for index in 0..count {
        let kind = &recorded[kinds[index / run % kinds.len()]];
        // Times vary by some percent from block to block, for all arms alike.
        let speed = 1.0 + 0.06 * (random.f64() - 0.5);
        let row = &kind[random.usize(..kind.len())];
        let cost = |it: Cost| Cost {
            work: it.work * speed,
            stored_bytes: it.stored_bytes,
        };
        let whole = row.whole.iter().map(|it| cost(*it));
        made.matrix.costs.push(whole.collect());
        let parts = row.parts.iter().map(|it| it.map(cost));
        made.parts.push(parts.collect());
        made.classes.push(row.class);
    }
    made
}

pub fn all_blocks(count: usize) -> Vec<Blocks> {
    all_blocks_from(SEED, count)
}

pub fn all_blocks_from(seed: u64, count: usize) -> Vec<Blocks> {
    let all: &[usize] = &[0, 4, 2, 3, 1];
    let rows: [(&'static str, (&[usize], usize)); 8] = [
        ("text", (&[0], 1)),
        ("source", (&[1], 1)),
        ("numbers", (&[2], 1)),
        ("redundant", (&[3], 1)),
        ("noise", (&[4], 1)),
        ("all by 1 MiB", (all, 1)),
        ("all by 16 MiB", (all, 16)),
        ("all by 64 MiB", (all, 64)),
    ];
    let row = |(name, order)| blocks_from(seed, name, order, count);
    rows.map(row).into()
}

/// A pipeline in which the workers' LZ4 on text is `beta` times as fast as the link.
pub fn pipeline(beta: f64, workers: usize) -> Pipeline {
    let lz4 = ARMS.iter().position(|it| *it == "lz4:1").unwrap();
    let work = recorded()[0][0].whole[lz4].work;
    Pipeline {
        workers,
        frames: 2 * workers + 4,
        link_bytes_per_second: workers as f64 * BLOCK_BYTES as f64 / work / beta,
        write_overhead: 20e-6,
        work_overhead: 0.0,
        hidden_bytes: 0.0,
    }
}
