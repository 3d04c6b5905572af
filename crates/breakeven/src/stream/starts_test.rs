//! Short streams on the simulated pipeline: the worth of an earlier run's profile at the start, and the time to detect
//! one of another machine.

use super::controlled_test::{Beginning, control_as, control_from};
use super::hint::Outlook;
use super::oracle::best_static;
use super::price::Goal;
use super::recorded_test::{ARMS, BLOCK_BYTES, Blocks, blocks, pipeline};
use super::regimes_test::BETAS;
use super::simulate::Pipeline;
use crate::codec::Method;
use crate::decide::learned::{self, Fingerprint};
use crate::decide::{Observation, Profile, ProfileOptions};
use crate::units::Seconds;

/// Kinds of blocks in the order of the record: text, source, numbers, redundant, noise.
const KINDS: [usize; 5] = [0, 1, 2, 3, 4];

/// A profile saved to the file of learned profiles and loaded again.
fn saved_and_loaded(profile: &Profile) -> Profile {
    let folder = tempfile::tempdir().unwrap();
    let fingerprint = Fingerprint {
        processor: "simulated".to_string(),
        libraries: "recorded".to_string(),
    };
    learned::save(profile, folder.path(), &fingerprint).unwrap();
    let learned = learned::load(folder.path(), &fingerprint, ProfileOptions::default());
    assert!(learned.found && learned.ignored.is_none());
    learned.profile
}

/// The profile that an earlier stream of all kinds learned, on a machine `slower` times as slow as the record's.
pub fn earlier(beta: f64, slower: f64) -> Profile {
    let mut profile = Profile::default();
    let mut row = blocks("earlier", &KINDS, 1, 400);
    row.slow_down(slower);
    let mut learn = |observation: &Observation| {
        profile.observe(observation);
    };
    control_from(
        Goal::Fastest,
        &Outlook::default(),
        &pipeline(beta, 2),
        &row,
        Profile::default(),
        &mut learn,
    );
    saved_and_loaded(&profile)
}

/// Short rows of every kind.
fn short_rows(count: usize) -> Vec<Blocks> {
    vec![
        blocks("text", &[0], 1, count),
        blocks("source", &[1], 1, count),
        blocks("numbers", &[2], 1, count),
        blocks("redundant", &[3], 1, count),
        blocks("noise", &[4], 1, count),
        blocks("all by 1 MiB", &KINDS, 1, count),
    ]
}

/// Returns by how much short streams take longer than the best method in hindsight: the mean over
/// all of them, and the worst.
fn regret(start: impl Fn(f64) -> Profile, count: usize) -> (f64, f64) {
    let (mut sum, mut worst, mut cells) = (0.0, f64::NEG_INFINITY, 0.0);
    for beta in BETAS {
        let profile = start(beta);
        for row in short_rows(count) {
            let pipeline = pipeline(beta, 2);
            let profile = profile.clone();
            let (run, _) = control_from(
                Goal::Fastest,
                &Outlook::default(),
                &pipeline,
                &row,
                profile,
                &mut |_| {},
            );
            let best = best_static(&pipeline, &row.matrix).run.drained_after.0;
            let regret = run.drained_after.0 / best - 1.0;
            sum += regret;
            worst = f64::max(worst, regret);
            cells += 1.0;
        }
    }
    (sum / cells, worst)
}

#[test]
fn a_short_stream_gains_by_what_an_earlier_one_learned() {
    for count in [8, 16, 64] {
        let cold = regret(|_| Profile::default(), count);
        let warm = regret(|beta| earlier(beta, 1.0), count);
        // Learned over another link: times belong to the machine, not to the sink.
        let elsewhere = regret(|_| earlier(4.2, 1.0), count);
        let wrong = regret(|beta| earlier(beta, 1.0 / 3.0), count);
        for (name, it) in [
            ("cold", cold),
            ("warm", warm),
            ("warm from another link", elsewhere),
            ("warm from a machine three times as fast", wrong),
        ] {
            println!(
                "{count} blocks, {name}: mean {:+.1} %, worst {:+.1} % to the best method",
                100.0 * it.0,
                100.0 * it.1
            );
        }
        // Later, a stream has learned more than it was given.
        let gain = if count <= 16 { 0.0 } else { 0.01 };
        let harm = if count <= 16 { 0.09 } else { 0.03 };
        assert!(wrong.0 < cold.0 + harm, "{count} blocks: {}", wrong.0);
        assert!(warm.0 < cold.0 + gain, "{count} blocks: {}", warm.0);
        assert!(
            elsewhere.0 < cold.0 + gain,
            "{count} blocks: {}",
            elsewhere.0
        );
    }
}

/// The most that a short stream may lose, beside 2 %, in seconds.
const UNNOTICED: f64 = 5e-3;

/// Packs one row once for each run, with the profile that the previous run kept. Returns by how much each took longer
/// than the best method in hindsight, in seconds, and the methods of the last.
fn regrets_of_runs(
    (pipeline, row): (&Pipeline, &Blocks),
    mut profile: Profile,
    runs: usize,
) -> (Vec<f64>, Vec<&'static str>) {
    let best = best_static(pipeline, &row.matrix).run.drained_after.0;
    let (mut regrets, mut names) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let beginning = Beginning {
            profile: profile.clone(),
            pledged_blocks: Some(row.classes.len()),
            splits: false,
            ..Beginning::default()
        };
        let (goal, outlook) = (Goal::Fastest, Outlook::default());
        let run = control_as(goal, &outlook, pipeline, row, beginning, &mut |_| {}).run;
        // The simulated controller learns of blocks when later ones begin: never of these.
        for (block, &arm) in run.arms.iter().enumerate() {
            let cost = &row.matrix.costs[block][arm];
            profile.observe(&Observation {
                class: row.classes[block],
                method: ARMS[arm].parse().unwrap(),
                raw_bytes: BLOCK_BYTES as u64,
                stored_bytes: cost.stored_bytes as u64,
                encode: Some(Seconds(cost.work)),
                decode: None,
            });
        }
        profile = saved_and_loaded(&profile);
        regrets.push(run.drained_after.0 - best);
        names = run.arms.iter().map(|&arm| ARMS[arm]).collect();
    }
    (regrets, names)
}

/// Codec times learned on a machine under load must not cost files of a block or two much time, nor pin them to
/// storing.
#[test]
fn files_of_a_block_correct_a_profile_learned_under_load() {
    const RUNS: usize = 16;
    let (mut first, mut last, mut dearest, mut pinned, mut cells) = (0.0, 0.0, 0.0_f64, 0, 0);
    for (beta, slower) in BETAS.iter().flat_map(|&beta| [(beta, 1.0), (beta, 3.0)]) {
        let (pipeline, loaded) = (pipeline(beta, 2), earlier(beta, slower));
        for row in [1, 2].into_iter().flat_map(short_rows) {
            let best = best_static(&pipeline, &row.matrix);
            let time = best.run.drained_after.0;
            let (regrets, names) = regrets_of_runs((&pipeline, &row), loaded.clone(), RUNS);
            println!(
                "beta {beta}, {slower} times as slow, {} of {}: {:+.4} s, {:+.4} s of {time:.4} s by {names:?} \
                 over {}",
                row.classes.len(),
                row.name(),
                regrets[0],
                regrets[RUNS - 1],
                ARMS[best.arm]
            );
            first += regrets[0];
            last += regrets[RUNS - 1];
            let beyond = regrets.iter().map(|it| it - 0.02 * time);
            dearest = beyond.fold(dearest, f64::max);
            pinned +=
                usize::from(ARMS[best.arm] != "store" && names.iter().all(|it| *it == "store"));
            cells += 1;
        }
    }
    println!(
        "{cells} cells: {first:+.4} s, later {last:+.4} s; dearest {dearest:.4} s, {pinned} pinned"
    );
    assert!(cells == 72 && last <= first, "{last} after {first}");
    assert!(dearest <= UNNOTICED, "{dearest}");
    // Data that shrinks to a fortieth, over a link as fast as the workers: it is unlike all earlier data.
    assert!(pinned <= 2, "{pinned}");
}

/// How much slower than the profile the machine is, with the blocks until that is detected: for the methods in use, and
/// for one that is not. On a machine three times as fast, the carried values err less than that, and nothing follows
/// for unused methods.
const FOUND_OUT_AFTER: [(f64, usize, Option<usize>); 2] =
    [(3.0, 6, Some(8)), (1.0 / 3.0, 12, None)];

#[test]
fn a_profile_of_a_faster_machine_is_found_out_within_eight_blocks() {
    let row = blocks("text", &[0], 1, 40);
    for (slower, used_max, unused_max) in FOUND_OUT_AFTER {
        let mut profile = earlier(4.2, 1.0);
        let class = row.classes[0];
        let method = |arm: usize| -> Method { ARMS[arm].parse().unwrap() };
        let place = |name: &str| ARMS.iter().position(|it| *it == name).unwrap();
        let (used, unused) = (["zstd:1", "zstd:3", "lz4:1"].map(place), place("zstd:5"));
        let expected = |profile: &Profile, arm: usize| {
            let estimate = profile.estimate(class, method(arm), BLOCK_BYTES as u64);
            estimate.encode_seconds_per_byte.value.mean * BLOCK_BYTES as f64
        };
        let unused_before = expected(&profile, unused);
        // The errors of the profile, as far as this machine is the cause, as logarithms of factors. The first is the
        // largest error over the methods in use, the second that of the unused one.
        let errors = |profile: &Profile, block: usize| {
            let cost = &row.matrix.costs[block];
            let of_used = used.map(|arm| expected(profile, arm) / (cost[arm].work * slower));
            let of_used = of_used.into_iter().map(|it| it.ln().abs());
            let of_unused = expected(profile, unused) / (unused_before * slower);
            [of_used.fold(0.0, f64::max), of_unused.ln().abs()]
        };
        let first = errors(&profile, 0);
        let mut found_out = [None, None];
        for (block, costs) in row.matrix.costs.iter().enumerate() {
            let arm = used[block % used.len()];
            profile.observe(&Observation {
                class,
                method: method(arm),
                raw_bytes: BLOCK_BYTES as u64,
                stored_bytes: costs[arm].stored_bytes as u64,
                encode: Some(Seconds(costs[arm].work * slower)),
                decode: None,
            });
            for (found, error) in found_out.iter_mut().zip(errors(&profile, block)) {
                // Half of a factor of three or less, and it stays so.
                if error > 1.5_f64.ln() {
                    *found = None;
                } else {
                    found.get_or_insert(block + 1);
                }
            }
        }
        println!("{slower}: wrong by {first:?} at first; found out after {found_out:?} blocks");
        assert!(first[0] > 1.5_f64.ln(), "it is wrong at first: {first:?}");
        let [used, unused] = found_out.map(|it| it.unwrap_or(usize::MAX));
        assert!(used <= used_max, "{found_out:?}");
        assert!(
            unused_max.is_none_or(|most| unused <= most),
            "{found_out:?}"
        );
    }
}
