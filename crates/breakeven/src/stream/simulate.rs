//! The pipeline as arithmetic: workers, frame buffers and one link, block by block.
//!
//! Blocks start in order, each when a worker and a frame buffer are free; frames are written in
//! order, each when it is compressed and the link is free; a buffer is free again when its frame is
//! written. That is the writer's pipeline (`writer.rs`) with times instead of bytes, so that choices
//! can be tried on recorded costs without a clock.
//!
//! Source: Hirsch 2017, sections 3.2 and 4.1.

use crate::units::Seconds;

/// What one block takes under one choice.
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

/// What the blocks go through.
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
}

impl Pipeline {
    /// Returns the seconds of the link that a frame takes.
    pub fn write_seconds(&self, stored_bytes: f64) -> f64 {
        self.write_overhead + stored_bytes / self.link_bytes_per_second
    }
}

/// What can be seen when a block is about to start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Since the first block started.
    pub now: f64,
    /// Frames that are compressed and not yet written, the one being written included.
    pub waiting_frames: usize,
    /// Blocks that were completed since the last call, in the order of completion, begin in
    /// [`Run::completed`] here.
    pub completed: usize,
}

/// How a row of blocks went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The arm of each block.
    pub arms: Vec<usize>,
    /// When the last block was compressed.
    pub compressed_after: Seconds,
    /// When the last frame was written.
    pub drained_after: Seconds,
    /// Bytes of all frames.
    pub stored_bytes: f64,
}

/// A block on its way, as the simulation knows it.
#[derive(Clone, Copy, Debug)]
struct Sent {
    compressed_at: f64,
    written_at: f64,
}

/// Sends the blocks through the pipeline. `choose` is asked for each block's arm when it starts, and
/// `tell` is told of each block that was completed before that, once, in the order of completion.
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
    choose: &mut dyn FnMut(usize, Seen) -> usize,
    tell: &mut dyn FnMut(usize, usize),
) -> Run {
    assert!(pipeline.workers > 0 && pipeline.frames > 0 && pipeline.link_bytes_per_second > 0.0);
    let mut free_at = vec![0.0_f64; pipeline.workers];
    let mut sent: Vec<Sent> = Vec::with_capacity(matrix.costs.len());
    let mut run = Run::default();
    let mut untold: Vec<usize> = Vec::new();
    for (block, row) in matrix.costs.iter().enumerate() {
        let worker = earliest(&free_at);
        let buffer_at = match block.checked_sub(pipeline.frames) {
            Some(before) => sent[before].written_at,
            None => 0.0,
        };
        let now = free_at[worker].max(buffer_at);
        untold.sort_by(|&a, &b| sent[a].compressed_at.total_cmp(&sent[b].compressed_at));
        let done = untold.partition_point(|&it| sent[it].compressed_at <= now);
        for block in untold.drain(..done) {
            tell(block, run.arms[block]);
        }
        let recent = &sent[block.saturating_sub(pipeline.frames)..];
        let waiting_frames = (recent.iter())
            .filter(|it| it.compressed_at <= now && it.written_at > now)
            .count();
        let seen = Seen {
            now,
            waiting_frames,
            completed: done,
        };
        let arm = choose(block, seen);
        let cost = row[arm];
        let compressed_at = now + cost.work;
        free_at[worker] = compressed_at;
        let link_free_at = sent.last().map_or(0.0, |before| before.written_at);
        let written_at =
            compressed_at.max(link_free_at) + pipeline.write_seconds(cost.stored_bytes);
        sent.push(Sent {
            compressed_at,
            written_at,
        });
        untold.push(block);
        run.arms.push(arm);
        run.stored_bytes += cost.stored_bytes;
        run.compressed_after.0 = run.compressed_after.0.max(compressed_at);
        run.drained_after.0 = written_at;
    }
    run
}

/// Sends all blocks through by one arm.
pub fn simulate_static(pipeline: &Pipeline, matrix: &Matrix, arm: usize) -> Run {
    simulate(pipeline, matrix, &mut |_, _| arm, &mut |_, _| {})
}

/// Sends each block through by the arm that was chosen for it.
pub fn simulate_chosen(pipeline: &Pipeline, matrix: &Matrix, arms: &[usize]) -> Run {
    simulate(
        pipeline,
        matrix,
        &mut |block, _| arms[block],
        &mut |_, _| {},
    )
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
        }
    }

    #[test]
    fn small_pipelines_by_hand() {
        // One worker, one buffer: nothing overlaps.
        let blocks = matrix(&[&[(2.0, 3.0)], &[(2.0, 3.0)]]);
        let run = simulate_static(&pipeline(1, 1), &blocks, 0);
        assert_eq!((run.compressed_after.0, run.drained_after.0), (7.0, 10.0));
        // A second buffer lets the second block be compressed while the first is written.
        let run = simulate_static(&pipeline(1, 2), &blocks, 0);
        assert_eq!((run.compressed_after.0, run.drained_after.0), (4.0, 8.0));
        // Two workers, and a slow first block that holds back what comes behind it.
        let blocks = matrix(&[&[(9.0, 1.0)], &[(1.0, 1.0)], &[(1.0, 1.0)]]);
        let run = simulate_static(&pipeline(2, 3), &blocks, 0);
        assert_eq!((run.compressed_after.0, run.drained_after.0), (9.0, 12.0));
        assert_eq!(run.stored_bytes, 3.0);
    }

    #[test]
    fn blocks_are_told_when_they_are_complete() {
        let blocks = matrix(&[&[(5.0, 1.0)], &[(1.0, 1.0)], &[(1.0, 1.0)], &[(9.0, 1.0)]]);
        let told = std::cell::RefCell::new(Vec::new());
        let mut seen_frames = Vec::new();
        simulate(
            &pipeline(2, 4),
            &blocks,
            &mut |_, seen| {
                seen_frames.push((seen.now, seen.waiting_frames, told.borrow().clone()));
                0
            },
            &mut |block, _| told.borrow_mut().push(block),
        );
        assert_eq!(seen_frames[2], (1.0, 1, vec![1]));
        // The second is compressed and waits for the first.
        assert_eq!(seen_frames[3], (2.0, 2, vec![1, 2]));
    }
}
