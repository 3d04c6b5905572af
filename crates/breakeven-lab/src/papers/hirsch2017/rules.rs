//! Other people's rules on our pipeline: the thesis's, ACE's, Datacomp's, ZFS's and Pebble's.
//!
//! Each decides as its source says and by the inputs that its source uses. Its differences stand with each. All have
//! the speed of the link, none pays for asking, and all go through the same writer and the same link as we do. Where a
//! source has a codec that no stock reader of one stream decodes, the nearest one of ours takes its place.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use breakeven::codec::{Codec, Compressor, Method};
use breakeven::stream::{Outcome, Rule};

use super::bench::{Regime, WORKERS};

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The worker reports a panic in a rule; the others may end.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the caller: a worker chooses for a block and later learns of it.
fn worker() -> ThreadId {
    std::thread::current().id()
}

fn methods(names: &[&str]) -> Vec<Method> {
    let parse = |name: &&str| name.parse().expect("a method of the list");
    names.iter().map(parse).collect()
}

/// The speed that the thesis's rule steps towards (section 3.2.5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// The link's speed times the last block's factor.
    S1,
    /// The link's speed over this factor: S2 has 1, S3 has 1.5.
    Within(f64),
}

/// The thesis's level stepping (sections 3.2.5 and 4.2, Listing 4.2).
///
/// After each block its compression speed (by all threads) is compared with the target. Too slow:
/// down by `difference / divisor` levels, at least one, at once. Too fast: up likewise, but only if
/// it is too fast by a tenth ("very conservatively"). A jump ends at the last level of its algorithm; the
/// next one goes on in the neighbour's.
///
/// Not in the source, so ours: the divisors, the tenth, and the order of the levels. A divisor is the span of an
/// algorithm's levels on this machine over their number. The order is LZ4 by acceleration 50, 45 to 5, 1, zstd 1 to 22,
/// xz 1 to 9. It starts at zstd 1, on the fastest link at LZ4 1, as the thesis does.
#[derive(Debug)]
pub struct Stepping {
    strategy: Strategy,
    levels: Vec<Method>,
    link: f64,
    lz4: f64,
    level: Mutex<usize>,
}

impl Stepping {
    pub fn new(strategy: Strategy, regime: &Regime) -> Stepping {
        let lz4 = (0..=10).rev().map(|step| Codec::Lz4 {
            acceleration: (5 * step).max(1),
        });
        let zstd = (1..=22).map(|level| Codec::Zstd { level });
        let xz = (1..=9).map(|level| Codec::Xz { level });
        let levels: Vec<Method> = lz4.chain(zstd).chain(xz).map(Method::of).collect();
        let is_fast = regime.link.0 > 0.5 * regime.lz4.0;
        let begins = levels.iter().position(|method| match method.codec {
            Codec::Lz4 { acceleration } => is_fast && acceleration == 1,
            Codec::Zstd { level } => !is_fast && level == 1,
            _ => false,
        });
        Stepping {
            strategy,
            levels,
            link: regime.link.0,
            lz4: regime.lz4.0,
            level: Mutex::new(begins.unwrap_or(0)),
        }
    }

    /// Bytes a second by which a level is too fast or slow, for a step of one.
    fn divisor(&self, method: Method) -> f64 {
        match method.codec {
            // From one to some three times LZ4's speed in ten steps; zstd from half of it to next to
            // nothing in 21; xz from a fiftieth.
            Codec::Lz4 { .. } => self.lz4 / 5.0,
            Codec::Zstd { .. } => self.lz4 / 42.0,
            _ => self.lz4 / 400.0,
        }
    }

    /// Returns the level after a block that was done at `level`, when the rule stands at `now`.
    fn step(&self, now: usize, outcome: &Outcome) -> usize {
        const CONSERVATIVE: f64 = 0.1;
        let raw = outcome.raw_bytes as f64;
        let speed = WORKERS as f64 * raw / outcome.wall.0.max(1e-9);
        let factor = raw / outcome.stored_bytes.max(1) as f64;
        let target = match self.strategy {
            Strategy::S1 => self.link * factor,
            Strategy::Within(factor) => self.link / factor,
        };
        let difference = speed - target;
        let jump = (difference / self.divisor(self.levels[now])) as i64;
        let jump = match difference {
            slow if slow < 0.0 => jump.min(-1),
            fast if fast > CONSERVATIVE * target => jump.max(1),
            _ => 0,
        };
        let wanted = (now as i64 + jump).clamp(0, self.levels.len() as i64 - 1) as usize;
        self.within_algorithm(now, wanted)
    }

    /// Stops a jump at the end of its algorithm, unless it stands there.
    fn within_algorithm(&self, now: usize, wanted: usize) -> usize {
        let family = |level: usize| match self.levels[level].codec {
            Codec::Lz4 { .. } => 0,
            Codec::Zstd { .. } => 1,
            _ => 2,
        };
        if family(wanted) == family(now) {
            return wanted;
        }
        let up = wanted > now;
        let next = |level: usize| if up { level + 1 } else { level - 1 };
        let mut last = now;
        while family(next(last)) == family(now) {
            last = next(last);
        }
        if last == now { next(now) } else { last }
    }
}

impl Rule for Stepping {
    fn methods(&self) -> &[Method] {
        &self.levels
    }

    fn choose(&self, _: &[u8], _: &mut Compressor) -> breakeven::Result<Method> {
        Ok(self.levels[*locked(&self.level)])
    }

    fn encoded(&self, outcome: &Outcome) {
        let mut level = locked(&self.level);
        *level = self.step(*level, outcome);
    }
}

/// ACE's yes or no (Sucu and Krintz 2003). It compresses a block if the forecast of compressing, sending and
/// decompressing it one after the other is shorter than sending it as it is.
///
/// Differences: blocks of 1 MiB, not 32 KiB; zstd 1 in the place of zlib 1, and decompression taken to be three times
/// as fast. All threads count. The forecast is the last block's, as is its factor. While the answer is no, each 16th
/// block is compressed all the same, since nothing would ever change it.
#[derive(Debug)]
pub struct Ace {
    methods: Vec<Method>,
    link: f64,
    state: Mutex<AceState>,
}

#[derive(Debug, Default)]
struct AceState {
    /// Seconds and stored bytes of a raw byte, from the last block compressed.
    last: Option<(f64, f64)>,
    skipped: usize,
}

impl Ace {
    const RETRY: usize = 16;

    pub fn new(regime: &Regime) -> Ace {
        Ace {
            methods: methods(&["store", "zstd:1"]),
            link: regime.link.0,
            state: Mutex::default(),
        }
    }
}

impl Rule for Ace {
    fn methods(&self) -> &[Method] {
        &self.methods
    }

    fn choose(&self, _: &[u8], _: &mut Compressor) -> breakeven::Result<Method> {
        let mut state = locked(&self.state);
        let pays = state.last.is_none_or(|(seconds, stored)| {
            let codec = seconds * (1.0 + 1.0 / 3.0) / WORKERS as f64;
            codec + stored / self.link < 1.0 / self.link
        });
        state.skipped = if pays { 0 } else { state.skipped + 1 };
        let tries = pays || state.skipped.is_multiple_of(Ace::RETRY);
        Ok(self.methods[usize::from(tries)])
    }

    fn encoded(&self, outcome: &Outcome) {
        if outcome.method != Method::STORE {
            let raw = outcome.raw_bytes as f64;
            let last = (outcome.wall.0 / raw, outcome.stored_bytes as f64 / raw);
            locked(&self.state).last = Some(last);
        }
    }
}

/// Datacomp's table (Peterson and Reiher 2016). For each quantised state it has the method of the highest throughput
/// before, each tried twice first. The data's part of the state is the number of different byte values.
///
/// Differences: blocks of 1 MiB, not 32 to 512 KiB; lz4, zstd 3, zstd 9 and xz 6 in the places of LZO, zlib, bzip2 and
/// XZ; eight bins of byte values. The load, frequency and link of a run are one state, since they do not change. The
/// throughput of a block is that of the slower of codec and link.
#[derive(Debug)]
pub struct Datacomp {
    methods: Vec<Method>,
    link: f64,
    /// By bin and method: tries begun, and sum and number of throughputs.
    table: Mutex<[[(usize, f64, f64); 5]; BINS]>,
    /// The bin of each worker's block.
    bins: Mutex<HashMap<ThreadId, usize>>,
}

/// Bins of the number of different byte values.
const BINS: usize = 8;

impl Datacomp {
    const TRIES: usize = 2;

    pub fn new(regime: &Regime) -> Datacomp {
        Datacomp {
            methods: methods(&["store", "lz4:1", "zstd:3", "zstd:9", "xz:6"]),
            link: regime.link.0,
            table: Mutex::default(),
            bins: Mutex::default(),
        }
    }

    fn bin(block: &[u8]) -> usize {
        let mut seen = [false; 256];
        for byte in block {
            seen[usize::from(*byte)] = true;
        }
        let count = seen.iter().filter(|seen| **seen).count();
        count.saturating_sub(1) * BINS / 256
    }
}

impl Rule for Datacomp {
    fn methods(&self) -> &[Method] {
        &self.methods
    }

    fn choose(&self, block: &[u8], _: &mut Compressor) -> breakeven::Result<Method> {
        let bin = Datacomp::bin(block);
        locked(&self.bins).insert(worker(), bin);
        let cells = &mut locked(&self.table)[bin];
        let untried = cells.iter().position(|cell| cell.0 < Datacomp::TRIES);
        let mean = |cell: &(usize, f64, f64)| cell.1 / cell.2.max(1.0);
        let best = || {
            let means = cells.iter().map(mean).enumerate();
            means
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .map_or(0, |it| it.0)
        };
        let chosen = untried.unwrap_or_else(best);
        cells[chosen].0 += 1;
        Ok(self.methods[chosen])
    }

    fn encoded(&self, outcome: &Outcome) {
        let bin = locked(&self.bins).get(&worker()).copied().unwrap_or(0);
        let codec = outcome.wall.0 / WORKERS as f64;
        let link = outcome.stored_bytes as f64 / self.link;
        let method = self.methods.iter().position(|it| *it == outcome.method);
        if let Some(method) = method {
            let cell = &mut locked(&self.table)[bin][method];
            cell.1 += outcome.raw_bytes as f64 / codec.max(link);
            cell.2 += 1.0;
        }
    }
}

/// OpenZFS's early abort before zstd 3 (pull request 13244): LZ4 must save an eighth, or else zstd 1 must,
/// or the block is stored.
///
/// Differences: blocks of 1 MiB (the largest usual record); C lz4 and zstd 1.5.7 in the place of the
/// kernel's. It knows no link.
#[derive(Debug)]
pub struct ZfsGate {
    methods: Vec<Method>,
}

impl ZfsGate {
    pub fn new() -> ZfsGate {
        ZfsGate {
            methods: methods(&["store", "zstd:3", "lz4:1", "zstd:1"]),
        }
    }
}

impl Rule for ZfsGate {
    fn methods(&self) -> &[Method] {
        &self.methods
    }

    fn choose(&self, block: &[u8], compressor: &mut Compressor) -> breakeven::Result<Method> {
        let mut room = vec![0; block.len() - block.len() / 8];
        for probe in &self.methods[2..] {
            if compressor.compress(*probe, block, &mut room)?.is_some() {
                return Ok(self.methods[1]);
            }
        }
        Ok(Method::STORE)
    }

    fn encoded(&self, _: &Outcome) {}
}

/// Pebble's adaptive compressor. It takes the slow codec as long as that makes the fast one's output smaller by 30 %,
/// found by trying both on one of ten blocks, with a half-life of 256 KiB.
///
/// Differences: lz4 in the place of MinLZ or Snappy. Blocks of 1 MiB, not 32 KiB, so that the last block tried decides
/// nearly alone. Each tenth block is tried, not one of ten at random. The output of the fast codec's trial is not kept.
/// It knows no link.
#[derive(Debug)]
pub struct Pebble {
    methods: Vec<Method>,
    state: Mutex<PebbleState>,
}

#[derive(Debug, Default)]
struct PebbleState {
    blocks: usize,
    /// How much smaller the slow codec makes it, 0 to 1.
    reduction: Option<f64>,
    /// Bytes by the fast codec of blocks that are tried, by worker.
    tried: HashMap<ThreadId, f64>,
}

impl Pebble {
    const EVERY: usize = 10;
    const CUTOFF: f64 = 0.3;
    const HALF_LIFE_BYTES: f64 = (256 << 10) as f64;

    pub fn new() -> Pebble {
        Pebble {
            methods: methods(&["lz4:1", "zstd:1"]),
            state: Mutex::default(),
        }
    }
}

impl Rule for Pebble {
    fn methods(&self) -> &[Method] {
        &self.methods
    }

    fn choose(&self, block: &[u8], compressor: &mut Compressor) -> breakeven::Result<Method> {
        let (fast, slow) = (self.methods[0], self.methods[1]);
        let tries = {
            let mut state = locked(&self.state);
            state.blocks += 1;
            (state.blocks - 1).is_multiple_of(Pebble::EVERY)
        };
        if tries {
            let mut room = vec![0; fast.bound(block.len())];
            let size = compressor.compress(fast, block, &mut room)?;
            let size = size.unwrap_or(block.len()) as f64;
            locked(&self.state).tried.insert(worker(), size);
            return Ok(slow);
        }
        let reduction = locked(&self.state).reduction.unwrap_or(0.0);
        Ok(self.methods[usize::from(reduction >= Pebble::CUTOFF)])
    }

    fn encoded(&self, outcome: &Outcome) {
        let mut state = locked(&self.state);
        if let Some(fast) = state.tried.remove(&worker()) {
            let found = 1.0 - outcome.stored_bytes as f64 / fast.max(1.0);
            let kept = f64::exp2(-(outcome.raw_bytes as f64) / Pebble::HALF_LIFE_BYTES);
            let before = state.reduction.unwrap_or(found);
            state.reduction = Some(kept * before + (1.0 - kept) * found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use breakeven::units::{BytesPerSecond, Seconds};

    const BLOCK: usize = 1 << 16;

    fn regime(link: f64) -> Regime {
        Regime {
            link: BytesPerSecond(link),
            lz4: BytesPerSecond(1e9),
            block_seconds: 0.0,
        }
    }

    /// An outcome of a block that all workers together compress at a speed, by a factor.
    fn outcome(method: Method, speed: f64, factor: f64) -> Outcome {
        Outcome {
            method,
            raw_bytes: BLOCK as u64,
            stored_bytes: (BLOCK as f64 / factor) as u64,
            wall: Seconds(WORKERS as f64 * BLOCK as f64 / speed),
        }
    }

    fn chosen(rule: &dyn Rule, block: &[u8]) -> String {
        let method = rule.choose(block, &mut Compressor::new()).unwrap();
        assert!(rule.methods().contains(&method));
        method.to_string()
    }

    #[test]
    fn levels_step_towards_the_target() {
        let check = |strategy, link: f64, speeds: &[f64], expected: &[&str]| {
            let rule = Stepping::new(strategy, &regime(link));
            let mut found = vec![chosen(&rule, &[])];
            for speed in speeds {
                let method = found.last().unwrap().parse().unwrap();
                rule.encoded(&outcome(method, *speed, 2.0));
                found.push(chosen(&rule, &[]));
            }
            assert_eq!(found, expected, "{strategy:?}");
        };
        // S1 wants 2e8: a little faster stays, faster goes up, 1e8 too fast is four levels.
        let s1 = [2.1e8, 2.3e8, 3e8, 1.9e8, 0.9e8];
        let levels = ["zstd:1", "zstd:1", "zstd:2", "zstd:6", "zstd:5", "zstd:1"];
        check(Strategy::S1, 1e8, &s1, &levels);
        // From the lowest level of zstd on to LZ4, and back.
        let levels = ["zstd:1", "lz4:1", "zstd:1"];
        check(Strategy::S1, 1e8, &[1e8, 9e9], &levels);
        check(Strategy::Within(1.0), 1e8, &[0.9e8], &["zstd:1", "lz4:1"]);
        check(Strategy::Within(1.5), 1e8, &[0.9e8], &["zstd:1", "zstd:2"]);
        // A jump ends where its algorithm does.
        check(
            Strategy::S1,
            1e8,
            &[5e10, 5e10],
            &["zstd:1", "zstd:22", "xz:1"],
        );
        check(Strategy::S1, 9e8, &[5e10], &["lz4:1", "zstd:1"]);
        check(Strategy::S1, 9e8, &[1.0], &["lz4:1", "lz4:a40"]);
    }

    #[test]
    fn ace_says_yes_or_no_and_asks_again() {
        let rule = Ace::new(&regime(1e8));
        let zstd: Method = "zstd:1".parse().unwrap();
        assert_eq!(chosen(&rule, &[]), "zstd:1");
        rule.encoded(&outcome(zstd, 1e9, 2.0));
        assert_eq!(chosen(&rule, &[]), "zstd:1");
        // Slower than the link: no, and one of sixteen is tried.
        rule.encoded(&outcome(zstd, 1e8, 2.0));
        let tried = (0..32).filter(|_| chosen(&rule, &[]) == "zstd:1");
        assert_eq!(tried.count(), 2);
    }

    #[test]
    fn datacomp_tries_all_twice_and_takes_the_best() {
        let rule = Datacomp::new(&regime(1e8));
        let speeds = [
            ("store", 9e9, 1.0),
            ("lz4:1", 1e9, 2.0),
            ("zstd:3", 3e8, 3.0),
        ];
        for _ in 0..10 {
            let method = chosen(&rule, &[0; BLOCK]);
            let known = speeds.iter().find(|it| it.0 == method);
            let (_, speed, factor) = known.copied().unwrap_or(("", 1e7, 4.0));
            rule.encoded(&outcome(method.parse().unwrap(), speed, factor));
        }
        assert_eq!(chosen(&rule, &[0; BLOCK]), "zstd:3");
        // Other data are another line of the table.
        let other: Vec<u8> = (0..BLOCK).map(|index| index as u8).collect();
        assert_eq!(chosen(&rule, &other), "store");
    }

    #[test]
    fn gates_look_at_the_bytes() {
        let noise = crate::data::Kind::Noise.generate(BLOCK, 1);
        let text = crate::data::Kind::Text.generate(BLOCK, 1);
        assert_eq!(chosen(&ZfsGate::new(), &noise), "store");
        assert_eq!(chosen(&ZfsGate::new(), &text), "zstd:3");
        let pebble = Pebble::new();
        let zstd: Method = "zstd:1".parse().unwrap();
        // The first is tried by both; noise by the fast one is no smaller than by the slow one.
        assert_eq!(chosen(&pebble, &noise), "zstd:1");
        pebble.encoded(&outcome(zstd, 1e9, 1.0));
        assert_eq!(chosen(&pebble, &noise), "lz4:1");
        for _ in 0..8 {
            chosen(&pebble, &noise);
        }
        assert_eq!(chosen(&pebble, &noise), "zstd:1");
        // Half of the bytes, but in a quarter of the half-life: 0.08 is known, 0.3 is wanted.
        pebble.encoded(&outcome(zstd, 1e9, 2.0));
        assert_eq!(chosen(&pebble, &noise), "lz4:1");
    }
}
