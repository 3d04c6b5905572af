//! The pipeline as arithmetic: workers, frame buffers and one link, block by block.
//!
//! Blocks start in order, each when a worker and a frame buffer are free. Frames are written in order, each when it is
//! compressed and the link is free. A buffer is free again when its frame is written. That is the writer's pipeline
//! (`writer.rs`) with times instead of bytes. So choices can be tried on recorded costs without a clock.
//!
//! A block may be split into parts (`split.rs`). The workers that come for the blocks behind it first take its parts,
//! and its frames are written together.
//!
//! Source: Hirsch 2017, sections 3.2 and 4.1.

use crate::units::Seconds;

/// The cost of one block under one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Seconds of one worker.
    pub work: f64,
    /// Bytes of the frame.
    pub stored_bytes: f64,
}

/// Costs of a row of blocks under each of some methods: `costs[block][arm]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    pub costs: Vec<Vec<Cost>>,
}

impl Matrix {
    /// Returns the number of arms, the same for each block.
    ///
    /// # Panics
    ///
    /// If the rows differ in length.
    pub fn arm_count(&self) -> usize {
        let count = self.costs.first().map_or(0, Vec::len);
        assert!(self.costs.iter().all(|row| row.len() == count), "ragged");
        count
    }
}

/// The pipeline of the blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipeline {
    /// Workers, at least 1.
    pub workers: usize,
    /// Frame buffers, at least 1.
    pub frames: usize,
    /// Bytes the link takes in a second.
    pub link_bytes_per_second: f64,
    /// Seconds that each write takes beside its bytes.
    pub write_overhead: f64,
    /// Seconds of a worker that each block takes beside its encoding.
    pub work_overhead: f64,
    /// Bytes that the sink holds and sends later, as a socket's buffer does. A frame is written, and its buffer free,
    /// when that much or less is still to be sent.
    pub hidden_bytes: f64,
}

impl Pipeline {
    /// Returns the seconds of the link that a frame takes.
    pub fn write_seconds(&self, stored_bytes: f64) -> f64 {
        self.write_overhead + stored_bytes / self.link_bytes_per_second
    }

    /// Returns the seconds of all workers together for a block, from those of encoding it.
    pub fn work_share(&self, work: f64) -> f64 {
        (self.work_overhead + work) / self.workers as f64
    }
}

/// Something that happened before a block starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A worker compressed a block, by an arm, at a time.
    Compressed { block: usize, arm: usize, at: f64 },
    /// The link took a frame, from one time to another.
    Written { block: usize, from: f64, at: f64 },
}

impl Event {
    fn at(&self) -> f64 {
        match *self {
            Event::Compressed { at, .. } | Event::Written { at, .. } => at,
        }
    }
}

/// The course of a row of blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The arm of each block.
    pub arms: Vec<usize>,
    /// When the last block was compressed.
    pub compressed_after: Seconds,
    /// When the last frame was sent.
    pub drained_after: Seconds,
    /// Bytes of all frames.
    pub stored_bytes: f64,
    /// Seconds of workers that encoding all blocks took.
    pub work: Seconds,
}

/// Sends the blocks through the pipeline. `choose` returns a block's arm at its start, at the given time. `tell` gets
/// the earlier events, each once, in the order of time.
///
/// # Panics
///
/// If the pipeline has no worker, no buffer or no speed.
///
/// # Cost
///
/// For each block, the workers and the frames on their way.
pub fn simulate(
    pipeline: &Pipeline,
    matrix: &Matrix,
    choose: &mut dyn FnMut(usize, f64) -> usize,
    tell: &mut dyn FnMut(Event),
) -> Run {
    let encode = &mut |block: usize, now| {
        let arm = choose(block, now);
        Encoded {
            arm,
            cost: matrix.costs[block][arm],
            parts: 1,
        }
    };
    simulate_encoding(pipeline, matrix.costs.len(), encode, tell)
}

/// The outcome of encoding a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Encoded {
    /// Its arm.
    pub arm: usize,
    /// The cost of all of it.
    pub cost: Cost,
    /// The number of equal parts, at least 1.
    pub parts: usize,
}

/// Sends `block_count` blocks through the pipeline; `encode` finds the arm, the parts and the cost of each. Otherwise
/// as [`simulate`].
///
/// # Panics
///
/// As [`simulate`].
pub fn simulate_encoding(
    pipeline: &Pipeline,
    block_count: usize,
    encode: &mut dyn FnMut(usize, f64) -> Encoded,
    tell: &mut dyn FnMut(Event),
) -> Run {
    assert!(pipeline.workers > 0 && pipeline.frames > 0 && pipeline.link_bytes_per_second > 0.0);
    let mut free_at = vec![0.0_f64; pipeline.workers];
    let mut written_at: Vec<f64> = Vec::with_capacity(block_count);
    let mut run = Run::default();
    let mut untold: Vec<Event> = Vec::new();
    let mut sent_at = 0.0_f64;
    for block in 0..block_count {
        let worker = earliest(&free_at);
        let buffer_at = match block.checked_sub(pipeline.frames) {
            Some(before) => written_at[before],
            None => 0.0,
        };
        let now = free_at[worker].max(buffer_at);
        untold.sort_by(|a, b| a.at().total_cmp(&b.at()));
        let done = untold.partition_point(|it| it.at() <= now);
        untold.drain(..done).for_each(&mut *tell);
        let Encoded { arm, cost, parts } = encode(block, now);
        free_at[worker] = now + pipeline.work_overhead;
        let comes_at = |ahead: usize| match (block + ahead).checked_sub(pipeline.frames) {
            _ if block + ahead >= block_count => f64::INFINITY,
            // Its own frame, or a later one, must be written before there is a block for that worker.
            Some(before) => written_at.get(before).copied().unwrap_or(f64::INFINITY),
            None => 0.0,
        };
        let compressed_at = match parts {
            1 => free_at[worker] + cost.work,
            _ => encode_parts(&mut free_at, worker, (parts, cost.work), comes_at),
        };
        free_at[worker] = free_at[worker].max(compressed_at);
        let from = compressed_at.max(written_at.last().copied().unwrap_or(0.0));
        sent_at = from.max(sent_at) + pipeline.write_seconds(cost.stored_bytes);
        let at = from.max(sent_at - pipeline.hidden_bytes / pipeline.link_bytes_per_second);
        written_at.push(at);
        untold.push(Event::Compressed {
            block,
            arm,
            at: compressed_at,
        });
        untold.push(Event::Written { block, from, at });
        run.arms.push(arm);
        run.stored_bytes += cost.stored_bytes;
        run.work.0 += cost.work;
        run.compressed_after.0 = run.compressed_after.0.max(compressed_at);
        run.drained_after.0 = sent_at;
    }
    run
}

/// Sends all blocks through by one arm.
pub fn simulate_static(pipeline: &Pipeline, matrix: &Matrix, arm: usize) -> Run {
    simulate(pipeline, matrix, &mut |_, _| arm, &mut |_| {})
}

/// Sends each block through by the arm that was chosen for it.
pub fn simulate_chosen(pipeline: &Pipeline, matrix: &Matrix, arms: &[usize]) -> Run {
    simulate(pipeline, matrix, &mut |block, _| arms[block], &mut |_| {})
}

/// Lets workers encode the parts of a block that one of them took, each part as soon as a worker is free. The first
/// helper is the worker for the next block, and so on. `comes_at` returns when a block, by its distance behind this
/// one, has a buffer. Returns when the last part is done.
fn encode_parts(
    free_at: &mut [f64],
    owner: usize,
    (parts, work): (usize, f64),
    comes_at: impl Fn(usize) -> f64,
) -> f64 {
    let begun = free_at[owner];
    let mut is_here = vec![false; free_at.len()];
    is_here[owner] = true;
    let (mut here, mut done_at) = (1, begun);
    for _ in 0..parts {
        let next_at = comes_at(here).max(begun);
        let can_at = |worker: usize| match is_here[worker] {
            true => free_at[worker],
            false => free_at[worker].max(next_at),
        };
        let workers = 0..free_at.len();
        let first = workers.min_by(|&a, &b| can_at(a).total_cmp(&can_at(b)));
        let worker = first.expect("at least one worker");
        free_at[worker] = can_at(worker) + work / parts as f64;
        done_at = done_at.max(free_at[worker]);
        here += usize::from(!std::mem::replace(&mut is_here[worker], true));
    }
    done_at
}

fn earliest(free_at: &[f64]) -> usize {
    let indices = 0..free_at.len();
    let first = indices.min_by(|&a, &b| free_at[a].total_cmp(&free_at[b]));
    first.expect("at least one worker")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: &[&[(f64, f64)]]) -> Matrix {
        let cost = |&(work, stored_bytes): &(f64, f64)| Cost { work, stored_bytes };
        Matrix {
            costs: rows
                .iter()
                .map(|row| row.iter().map(cost).collect())
                .collect(),
        }
    }

    fn pipeline(workers: usize, frames: usize) -> Pipeline {
        Pipeline {
            workers,
            frames,
            link_bytes_per_second: 1.0,
            write_overhead: 0.0,
            work_overhead: 0.0,
            hidden_bytes: 0.0,
        }
    }

    #[test]
    fn small_pipelines_by_hand() {
        // One worker, one buffer: nothing overlaps.
        let blocks = matrix(&[&[(2.0, 3.0)], &[(2.0, 3.0)]]);
        let run = simulate_static(&pipeline(1, 1), &blocks, 0);
        assert_eq!((run.compressed_after.0, run.drained_after.0), (7.0, 10.0));
        let slowed = Pipeline {
            work_overhead: 0.5,
            ..pipeline(1, 1)
        };
        let run = simulate_static(&slowed, &blocks, 0);
        assert_eq!((run.compressed_after.0, run.drained_after.0), (8.0, 11.0));
        // A sink that holds a frame gives its buffer back at once.
        let hiding = Pipeline {
            hidden_bytes: 3.0,
            ..pipeline(1, 1)
        };
        let run = simulate_static(&hiding, &blocks, 0);
        assert_eq!((run.compressed_after.0, run.drained_after.0), (4.0, 8.0));
        // A second buffer lets the second block be compressed while the first is written.
        let run = simulate_static(&pipeline(1, 2), &blocks, 0);
        assert_eq!((run.compressed_after.0, run.drained_after.0), (4.0, 8.0));
        // Two workers, and a slow first block that holds back the blocks behind it.
        let blocks = matrix(&[&[(9.0, 1.0)], &[(1.0, 1.0)], &[(1.0, 1.0)]]);
        let run = simulate_static(&pipeline(2, 3), &blocks, 0);
        assert_eq!((run.compressed_after.0, run.drained_after.0), (9.0, 12.0));
        assert_eq!(run.stored_bytes, 3.0);
    }

    #[test]
    fn workers_who_come_for_blocks_behind_help_with_one_in_parts() {
        let check = |frames: usize, parts: usize, expected: (f64, f64)| {
            let works = [9.0, 1.0, 1.0];
            let encode = &mut |block: usize, _| Encoded {
                arm: 0,
                cost: Cost {
                    work: works[block],
                    stored_bytes: 1.0,
                },
                parts: if block == 0 { parts } else { 1 },
            };
            let run = simulate_encoding(&pipeline(2, frames), 3, encode, &mut |_| {});
            assert_eq!((run.compressed_after.0, run.drained_after.0), expected);
        };
        check(3, 1, (9.0, 12.0));
        check(3, 2, (5.5, 7.5));
        // Of three parts one worker does two.
        check(3, 3, (6.0, 9.0));
        // Nobody comes for a block that has no buffer, nor for one that does not exist.
        check(1, 2, (13.0, 14.0));
        let alone = &mut |_: usize, _| Encoded {
            arm: 0,
            cost: Cost {
                work: 8.0,
                stored_bytes: 1.0,
            },
            parts: 4,
        };
        let run = simulate_encoding(&pipeline(2, 3), 1, alone, &mut |_| {});
        assert_eq!(run.compressed_after.0, 8.0);
    }

    #[test]
    fn what_happened_is_told_in_the_order_of_time() {
        let blocks = matrix(&[&[(5.0, 1.0)], &[(1.0, 1.0)], &[(1.0, 1.0)], &[(9.0, 1.0)]]);
        let told = std::cell::RefCell::new(Vec::new());
        let mut asked = Vec::new();
        simulate(
            &pipeline(2, 3),
            &blocks,
            &mut |block, now| {
                asked.push((block, now, told.borrow().len()));
                0
            },
            &mut |event| told.borrow_mut().push(event),
        );
        // The last block waits for a buffer: until the slow first one is written.
        assert_eq!(asked, [(0, 0.0, 0), (1, 0.0, 0), (2, 1.0, 1), (3, 6.0, 4)]);
        let compressed = |block, at| Event::Compressed { block, arm: 0, at };
        let first_written = Event::Written {
            block: 0,
            from: 5.0,
            at: 6.0,
        };
        let expected = [
            compressed(1, 1.0),
            compressed(2, 2.0),
            compressed(0, 5.0),
            first_written,
        ];
        assert_eq!(told.borrow()[..], expected);
    }
}
