//! This project's claims about itself.

mod advise_accuracy;
mod advise_compare;
mod block_race;
mod busy;
mod classes;
mod codec_overhead;
mod decide;
mod direct;
mod pack_before;
mod pack_programs;
mod pack_strategies;
mod peer_start;
mod stored_sizes;

use super::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[
    codec_overhead::EXPERIMENT,
    stored_sizes::EXPERIMENT,
    advise_accuracy::EXPERIMENT,
    advise_compare::EXPERIMENT,
    decide::EXPERIMENT,
    classes::EXPERIMENT,
    pack_programs::FILE,
    pack_programs::LINK,
    pack_programs::SMALLEST,
    pack_strategies::AUTO,
    pack_strategies::STRATEGIES,
    pack_before::EXPERIMENT,
    busy::ADVISE,
    busy::LINK,
    busy::FILE,
    peer_start::EXPERIMENT,
];
