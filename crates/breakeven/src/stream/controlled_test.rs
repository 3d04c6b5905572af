//! Rows of recorded blocks sent through the simulated pipeline under a controller.

use std::ops::Range;

use super::hint::Outlook;
use super::pick::{LINK_UNKNOWN, LinkMeters};
use super::price::{Controller, Goal, Plant, Taken};
use super::recorded_test::{BLOCK_BYTES, Blocks};
use super::simulate::{Cost, Encoded, Event, Pipeline, Run, simulate_encoding};
use crate::codec::Method;
use crate::decide::{Class, Observation, Profile};
use crate::units::{BytesPerSecond, Seconds};

pub fn control(goal: Goal, pipeline: &Pipeline, blocks: &Blocks) -> (Run, f64) {
    control_for(goal, &Outlook::default(), pipeline, blocks)
}

pub fn control_for(
    goal: Goal,
    outlook: &Outlook,
    pipeline: &Pipeline,
    blocks: &Blocks,
) -> (Run, f64) {
    control_from(
        goal,
        outlook,
        pipeline,
        blocks,
        Profile::default(),
        &mut |_| {},
    )
}

/// Sends blocks through under a controller that begins with a profile; `observed` gets the observations. Returns the
/// run and the share of all cost that trials took.
pub fn control_from(
    goal: Goal,
    outlook: &Outlook,
    pipeline: &Pipeline,
    blocks: &Blocks,
    profile: Profile,
    observed: &mut dyn FnMut(&Observation),
) -> (Run, f64) {
    let beginning = Beginning {
        profile,
        ..Beginning::default()
    };
    let found = control_as(goal, outlook, pipeline, blocks, beginning, observed);
    (found.run, found.tried_share)
}

/// How a controller begins.
pub struct Beginning {
    pub profile: Profile,
    pub splits: bool,
    /// Whether it knows the speed of the link.
    pub is_told: bool,
    /// The pledged number of blocks.
    pub pledged_blocks: Option<usize>,
    /// Blocks during which another program uses the cores too, so that all takes `stretch` times as long by the clock.
    pub neighbour: Range<usize>,
    /// Default [`STRETCH`].
    pub stretch: f64,
}

pub const STRETCH: f64 = 1.5;

impl Default for Beginning {
    fn default() -> Beginning {
        Beginning {
            profile: Profile::default(),
            splits: true,
            is_told: true,
            pledged_blocks: None,
            neighbour: 0..0,
            stretch: STRETCH,
        }
    }
}

impl Beginning {
    fn controller(self, goal: Goal, pipeline: &Pipeline, arms: Vec<Method>) -> Controller {
        let mut plant = Plant {
            workers: pipeline.workers,
            frames: pipeline.frames,
            link: LINK_UNKNOWN,
            write_overhead: Seconds(0.0),
        };
        if self.is_told {
            plant.link = BytesPerSecond(pipeline.link_bytes_per_second);
            plant.write_overhead = Seconds(pipeline.write_overhead);
        }
        let mut controller = Controller::new(goal, arms, plant, self.profile);
        if !self.splits {
            controller.split_workers = 1;
        }
        if let Some(count) = self.pledged_blocks {
            controller.pledge((count * BLOCK_BYTES) as u64);
        }
        controller
    }
}

/// Returns the cost of encoding a block of a class.
fn taken(class: Class, method: Method, cost: &Cost, stretch: f64) -> Taken {
    Taken {
        observation: Observation {
            class,
            method,
            raw_bytes: BLOCK_BYTES as u64,
            stored_bytes: cost.stored_bytes as u64,
            encode: Some(Seconds(cost.work)),
            decode: None,
        },
        wall: Seconds(cost.work * stretch),
    }
}

/// A controller's result on a row of blocks.
pub struct Controlled {
    pub run: Run,
    /// The share of all cost that trials took.
    pub tried_share: f64,
    /// The share by which they exceeded their feared cost.
    pub surprise_share: f64,
    /// Blocks that were split.
    pub split_blocks: usize,
    /// The profile that it learned.
    pub profile: Profile,
}

/// As [`control_from`], with or without splitting blocks, and with or without a known link.
pub fn control_as(
    goal: Goal,
    outlook: &Outlook,
    pipeline: &Pipeline,
    blocks: &Blocks,
    beginning: Beginning,
    observed: &mut dyn FnMut(&Observation),
) -> Controlled {
    let arms: Vec<Method> = blocks.arms.iter().map(|it| it.parse().unwrap()).collect();
    let mut meters = (!beginning.is_told).then(LinkMeters::default);
    let (mut compressed, mut written, mut split_blocks) = (0, 0, 0);
    let (neighbour, longer) = (beginning.neighbour.clone(), beginning.stretch);
    let stretch_of = |block| match neighbour.contains(&block) {
        true => longer,
        false => 1.0,
    };
    let controller = beginning.controller(goal, pipeline, arms.clone());
    let controller = std::cell::RefCell::new(controller);
    let costs = std::cell::RefCell::new(Vec::new());
    let run = simulate_encoding(
        pipeline,
        blocks.classes.len(),
        &mut |block, now| {
            let mut controller = controller.borrow_mut();
            let (class, now) = (blocks.classes[block], Seconds(now));
            let (arm, ticket) = controller.choose_for(class, BLOCK_BYTES as u64, outlook, now);
            let parts = controller.parts_of(ticket);
            let cost = blocks.cost(block, arm, parts);
            costs.borrow_mut().push(cost);
            split_blocks += usize::from(parts > 1);
            let cost = Cost {
                work: cost.work * stretch_of(block),
                ..cost
            };
            Encoded { arm, cost, parts }
        },
        &mut |event| match event {
            Event::Compressed { block, arm, at } => {
                let cost = costs.borrow()[block];
                let taken = taken(blocks.classes[block], arms[arm], &cost, stretch_of(block));
                compressed += 1;
                observed(&taken.observation);
                let mut controller = controller.borrow_mut();
                controller.encoded(block as u64, &taken, Seconds(at));
            }
            Event::Written { block, from, at } => {
                let mut controller = controller.borrow_mut();
                written += 1;
                if let Some(meters) = &mut meters {
                    // The time of memory for it, if the sink does not hold it up.
                    let stored_bytes = costs.borrow()[block].stored_bytes;
                    let seconds = (at - from).max(stored_bytes / 2e9);
                    meters.wrote(stored_bytes, seconds, compressed > written);
                    if let Some(seen) = meters.seen() {
                        controller.set_link(seen.speed, Seconds(0.0));
                    }
                }
                controller.written(Seconds(at));
            }
        },
    );
    let controller = controller.into_inner();
    Controlled {
        run,
        tried_share: controller.trial_share(),
        surprise_share: controller.trial_surprise_share(),
        profile: controller.profile().clone(),
        split_blocks,
    }
}
