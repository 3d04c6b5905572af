//! The cost of each block by each method: the record behind bounds, choices of static methods and the thesis's tables
//! of static configurations.
//!
//! Both processors encode at once, each another block, as the pipeline's workers do. Processor time is the median of
//! three for quick methods. Every frame is decoded and compared.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use breakeven::codec::{Codec, Compressor, Decompressor, Method};
use breakeven::frame::{Encoder, frame_bytes_max, is_storable};
use breakeven::meter::thread_cpu;
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::simulate::{Cost, Matrix, Pipeline, simulate_static};
use breakeven::stream::{Container, Reader, ReaderOptions, oracle};

use super::bench::{Bench, FRAMES, Regime, WORKERS};
use super::corpus::{File, Input, Place, Shape};
use crate::laboratory::{Cell, Laboratory};
use crate::record::{CellRecord, Record, Row};

pub const RECORD: &str = "hirsch2017/costs";
const COLUMNS: &[&str] = &[
    "raw_bytes",
    "stored_bytes",
    "encode_seconds",
    "decode_seconds",
];
const RAW: usize = 0;
const STORED: usize = 1;
const ENCODE: usize = 2;
const DECODE: usize = 3;

/// Blocks of the thesis's files that its own configurations are tried on besides ours.
const TABLE_BLOCKS: usize = 4;
/// Above this a method is timed once.
const SLOW_SECONDS: f64 = 0.05;
/// The methods of a quick run.
const QUICK_ARMS: [&str; 5] = ["store", "zstd:-3", "zstd:1", "zstd:3", "lz4:1"];

/// Returns the thesis's static configurations (Tables A.1 to A.3).
pub fn published_methods() -> Vec<Method> {
    let lz4 = (0..=10).map(|step| Codec::Lz4 {
        acceleration: (5 * step).max(1),
    });
    let zstd = (1..=22).map(|level| Codec::Zstd { level });
    let xz = (1..=9).map(|level| Codec::Xz { level });
    lz4.chain(zstd).chain(xz).map(Method::of).collect()
}

/// Returns the methods that the thesis compares with zstd and then leaves out: LZ4HC, and zlib, in
/// whose place libdeflate stands (Figures 5.6 and 5.7).
pub fn rejected_methods() -> Vec<Method> {
    let lz4hc = (2..=12).map(|level| Codec::Lz4Hc { level });
    let deflate = (1..=12).map(|level| Codec::Deflate { level });
    lz4hc.chain(deflate).map(Method::of).collect()
}

/// Measures the costs of all kinds, or takes them from the record.
pub fn measure(laboratory: &Laboratory, bench: &Bench) -> Result<Costs> {
    let cell = |file: File| {
        let shape = bench.corpus.shape;
        Cell {
            name: file.name().to_string(),
            parameters: format!(
                "origin={} block_bytes={} blocks={} threads={WORKERS}",
                file.origin(laboratory),
                shape.block_bytes,
                shape.blocks
            ),
            measure: Box::new(move || costs_of(bench, file)),
        }
    };
    let cells = File::ALL.into_iter().map(cell).collect();
    Ok(Costs::of(&laboratory.need(RECORD, COLUMNS, cells)?))
}

/// Reads the costs recorded last, and the cells they are from.
pub fn recorded(records: &Path) -> Result<(Vec<CellRecord>, Costs)> {
    let cells = Record::new(records, RECORD, COLUMNS).latest()?;
    let costs = Costs::of(&cells);
    Ok((cells, costs))
}

/// Returns the methods that a block is tried with.
fn methods_of(is_quick: bool, place: Place) -> Result<Vec<Method>> {
    if is_quick {
        let methods = QUICK_ARMS.iter().map(|name| Ok(name.parse()?));
        return methods.collect();
    }
    let mut methods = Container::Mixed.arms();
    let is_published = matches!(place.file, File::Text | File::Matrix | File::Redundant);
    if is_published && is_of_tables(place.block) {
        methods.extend(published_methods());
        if place.file == File::Text {
            methods.extend(rejected_methods());
        }
        methods.sort();
        methods.dedup();
    }
    Ok(methods)
}

/// Whether a block is one of those on which all methods of the tables are tried.
fn is_of_tables(block: usize) -> bool {
    block.is_multiple_of(super::corpus::BLOCKS / TABLE_BLOCKS)
}

fn costs_of(bench: &Bench, file: File) -> Result<Vec<Row>> {
    let blocks = bench.corpus.shape.blocks;
    let worker = |first: usize| -> Result<Vec<(usize, Row)>> {
        let mut rows = Vec::new();
        let mut trial = Trial::new(bench.corpus.shape)?;
        for block in (first..blocks).step_by(WORKERS) {
            let place = Place { file, block };
            for method in methods_of(bench.is_quick, place)? {
                let values = trial
                    .cost(method, bench.corpus.block(place))
                    .with_context(|| format!("{method} on block {block}"))?;
                let row = Row {
                    task: format!("block-{block}"),
                    run: 1,
                    runs: 1,
                    contender: method.to_string(),
                    values,
                };
                rows.push((block, row));
            }
        }
        Ok(rows)
    };
    let mut rows = std::thread::scope(|scope| -> Result<Vec<(usize, Row)>> {
        let worker = &worker;
        let threads: Vec<_> = (0..WORKERS)
            .map(|first| scope.spawn(move || worker(first)))
            .collect();
        let mut rows = Vec::new();
        for thread in threads {
            let done = thread.join().ok().context("a thread panicked")?;
            rows.extend(done?);
        }
        Ok(rows)
    })?;
    rows.sort_by_key(|(block, _)| *block);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Working memory of one thread.
struct Trial {
    encoder: Encoder,
    /// For methods that no stream may hold.
    codecs: (Compressor, Decompressor),
    frame: Vec<u8>,
    decoded: Vec<u8>,
    /// Without threads: this thread decodes its blocks.
    pool: Pool,
}

impl Trial {
    fn new(shape: Shape) -> Result<Trial> {
        Ok(Trial {
            encoder: Encoder::new(),
            codecs: (Compressor::new(), Decompressor::new()),
            frame: vec![0; frame_bytes_max(shape.block_bytes)],
            decoded: Vec::with_capacity(shape.block_bytes),
            pool: Pool::new(PoolOptions { worker_count: 0 })?,
        })
    }

    /// Returns the values of a row.
    fn cost(&mut self, method: Method, block: &[u8]) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        let mut stored_bytes = 0;
        while times.len() < 3 {
            let begun = thread_cpu();
            stored_bytes = self.encode(method, block)?;
            times.push((thread_cpu() - begun).0);
            if times[0] > SLOW_SECONDS {
                break;
            }
        }
        times.sort_by(f64::total_cmp);
        let begun = thread_cpu();
        self.decode(method, stored_bytes, block.len())?;
        let decode_seconds = (thread_cpu() - begun).0;
        ensure!(self.decoded == block, "other bytes came back");
        Ok(vec![
            block.len() as f64,
            stored_bytes as f64,
            times[times.len() / 2],
            decode_seconds,
        ])
    }

    /// Makes a frame of a block, or the codec's bare output where it has no frame; returns its bytes.
    fn encode(&mut self, method: Method, block: &[u8]) -> Result<usize> {
        if is_storable(method) {
            let encoded = self.encoder.encode(method, block, &mut self.frame)?;
            return Ok(encoded.frame_bytes);
        }
        let stored = (self.codecs.0).compress(method, block, &mut self.frame)?;
        stored.context("does not shrink")
    }

    /// Decodes the encoded form of a block of so many bytes.
    fn decode(&mut self, method: Method, stored_bytes: usize, raw_bytes: usize) -> Result<()> {
        let stored = &self.frame[..stored_bytes];
        self.decoded.clear();
        if is_storable(method) {
            let mut reader = Reader::new(stored, &self.pool, ReaderOptions::default())?;
            reader.read_to_end(&mut self.decoded)?;
            return Ok(());
        }
        self.decoded.resize(raw_bytes, 0);
        Ok((self.codecs.1).decompress(method.decoder(), stored, &mut self.decoded)?)
    }
}

/// Recorded costs.
pub struct Costs {
    /// By kind, block and method: the values of a row.
    rows: BTreeMap<(String, usize, Method), Vec<f64>>,
}

/// A method for all blocks, and how it goes by arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Static {
    pub method: Method,
    pub seconds: f64,
    pub stored_bytes: f64,
}

impl Costs {
    pub fn of(cells: &[CellRecord]) -> Costs {
        let mut rows = BTreeMap::new();
        for cell in cells {
            for row in &cell.rows {
                let block = row
                    .task
                    .strip_prefix("block-")
                    .and_then(|it| it.parse().ok());
                let (Some(block), Ok(method)) = (block, row.contender.parse()) else {
                    continue;
                };
                rows.insert((cell.cell.clone(), block, method), row.values.clone());
            }
        }
        Costs { rows }
    }

    fn cost(&self, place: Place, method: Method) -> Option<Cost> {
        let key = (place.file.name().to_string(), place.block, method);
        let values = self.rows.get(&key)?;
        Some(Cost {
            work: values[ENCODE],
            stored_bytes: values[STORED],
        })
    }

    /// Returns the costs of an input by those of some methods whose cost is known for every block of it.
    pub fn known(&self, input: Input, shape: Shape, mut methods: Vec<Method>) -> Known<'_> {
        let blocks = (0..shape.blocks).flat_map(|block| {
            let files = input.files().into_iter();
            files.map(move |file| Place { file, block })
        });
        let blocks: Vec<Place> = blocks.collect();
        methods.retain(|method| blocks.iter().all(|it| self.cost(*it, *method).is_some()));
        Known {
            costs: self,
            input,
            shape,
            methods,
        }
    }

    /// Returns ratio, encoding and decoding speed (bytes a second, one core) of a method on the blocks of a kind that
    /// the tables show, if it was tried on them.
    pub fn speeds(&self, file: File, method: Method) -> Option<Speeds> {
        let mut sums = [0.0; COLUMNS.len()];
        for ((name, block, by), values) in &self.rows {
            if name == file.name() && *by == method && is_of_tables(*block) {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += value;
                }
            }
        }
        (sums[RAW] > 0.0).then(|| Speeds {
            ratio: sums[RAW] / sums[STORED],
            encode: sums[RAW] / sums[ENCODE],
            decode: sums[RAW] / sums[DECODE],
        })
    }
}

/// The costs of an input by some methods, block by block.
pub struct Known<'a> {
    costs: &'a Costs,
    input: Input,
    shape: Shape,
    methods: Vec<Method>,
}

impl Known<'_> {
    /// Returns the length of the first blocks.
    pub fn raw_bytes(&self, blocks: usize) -> f64 {
        (blocks * self.shape.block_bytes) as f64
    }

    fn matrix(&self, blocks: usize) -> Matrix {
        let row = |index: usize| {
            let place = self.input.place(index, self.shape);
            let cost = |method: &Method| self.costs.cost(place, *method).expect("a known cost");
            self.methods.iter().map(cost).collect()
        };
        Matrix {
            costs: (0..blocks).map(row).collect(),
        }
    }

    /// Returns how the first blocks go by each method alone, the fastest first.
    pub fn statics(&self, blocks: usize, regime: &Regime) -> Vec<Static> {
        let (pipeline, matrix) = (pipeline(regime), self.matrix(blocks));
        let one = |(index, method): (usize, &Method)| {
            let run = simulate_static(&pipeline, &matrix, index);
            Static {
                method: *method,
                seconds: run.drained_after.0,
                stored_bytes: run.stored_bytes,
            }
        };
        let mut statics: Vec<Static> = self.methods.iter().enumerate().map(one).collect();
        statics.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        statics
    }

    /// Returns the seconds in which no schedule is through with the first blocks.
    pub fn least_seconds(&self, blocks: usize, regime: &Regime) -> f64 {
        oracle::fastest(&pipeline(regime), &self.matrix(blocks)).lower_bound
    }

    /// Returns the bytes that no schedule makes fewer of the first blocks in so many seconds.
    pub fn fewest_bytes(&self, blocks: usize, regime: &Regime, seconds: f64) -> f64 {
        oracle::fewest_bytes(&pipeline(regime), &self.matrix(blocks), seconds)
    }

    /// Returns how many blocks the fastest schedule writes in so many seconds: whole periods.
    pub fn blocks_in(&self, seconds: f64, regime: &Regime) -> usize {
        let some = 160_usize.next_multiple_of(self.input.period());
        let least = self.least_seconds(some, regime);
        self.input.whole_periods(seconds * some as f64 / least)
    }
}

/// How a method does on a kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    pub ratio: f64,
    pub encode: f64,
    pub decode: f64,
}

/// Returns the pipeline of a regime.
fn pipeline(regime: &Regime) -> Pipeline {
    Pipeline {
        workers: WORKERS,
        frames: FRAMES,
        link_bytes_per_second: regime.link.0,
        write_overhead: 0.0,
        work_overhead: regime.block_seconds,
        hidden_bytes: 0.0,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use breakeven::units::BytesPerSecond;

    /// Makes costs of three methods that are the same for every block of every kind: seconds and
    /// bytes a block.
    pub fn made_up(shape: Shape, costs: &[(&str, f64, f64)]) -> Costs {
        let mut rows = BTreeMap::new();
        for file in File::ALL {
            for block in 0..shape.blocks {
                for (method, work, stored) in costs {
                    let key = (file.name().to_string(), block, method.parse().unwrap());
                    rows.insert(
                        key,
                        vec![shape.block_bytes as f64, *stored, *work, 0.5 * work],
                    );
                }
            }
        }
        Costs { rows }
    }

    #[test]
    fn the_fastest_static_method_is_first() {
        let shape = Shape {
            block_bytes: 100,
            blocks: 2,
        };
        let costs = made_up(
            shape,
            &[
                ("store", 0.0, 100.0),
                ("zstd:1", 1.0, 50.0),
                ("zstd:3", 2.0, 10.0),
            ],
        );
        let input = Input::Mixed(2);
        let arms: Vec<Method> = ["store", "zstd:1", "zstd:3", "zstd:5"]
            .map(|name| name.parse().unwrap())
            .into();
        let known = costs.known(input, shape, arms.clone());
        assert_eq!(known.methods, arms[..3]);
        let check = |link: f64, expected: [&str; 3]| {
            let regime = Regime {
                link: BytesPerSecond(link),
                lz4: BytesPerSecond(1.0),
                block_seconds: 0.0,
            };
            let statics = known.statics(10, &regime);
            let found: Vec<String> = statics.iter().map(|it| it.method.to_string()).collect();
            assert_eq!(found, expected, "link of {link}");
        };
        check(1.0, ["zstd:3", "zstd:1", "store"]);
        check(1e6, ["store", "zstd:1", "zstd:3"]);
    }

    #[test]
    fn the_thesis_has_42_configurations() {
        let methods = published_methods();
        assert_eq!(methods.len(), 42);
        let names: Vec<String> = methods.iter().map(Method::to_string).collect();
        assert_eq!((names[0].as_str(), names[1].as_str()), ("lz4:1", "lz4:a5"));
        assert_eq!((names[11].as_str(), names[41].as_str()), ("zstd:1", "xz:9"));
    }
}
