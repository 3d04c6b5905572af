//! The method of each block: one for all, picked by fixed inputs, or picked by a controller that learns from every
//! block and every write.
//!
//! This is where the controller meets clocks: the processor time of encoding, the wall time of a write. A write that
//! began while more frames waited shows the speed of the link. A write without waiting frames shows the speed of the
//! workers, and counts only where none ever waited.
//!
//! Another [`Rule`] can stand in the controller's place, so that both are tried on the same pipeline.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::codec::{Codec, Compressor, Features, Method};
use crate::decide::{Class, Ledger, Observation, Profile, Written};
use crate::error::{Error, Result};
use crate::frame::Encoder;
use crate::meter::thread_cpu;
use crate::units::{BytesPerSecond, Joules, Seconds};

use super::books::{self, LinkBasis, Prospect, SeenLink, Sums};
use super::feed::Raw;
use super::frozen::{Fixed, Frozen};
use super::habit::{Glance, Habit};
use super::hint::Outlook;
#[cfg(test)]
use super::kill_test as kill;
use super::price::{Controller, Goal, HIDDEN_BYTES, Plant, Taken};
use super::split::{Frames, Spent, Splits, Workspace};

/// The choice of each block's method.
#[derive(Clone, Debug)]
pub enum Choice {
    /// One for all blocks.
    Fixed(Method),
    /// By prices and a profile that do not change: the same bytes every time.
    Frozen(Box<Frozen>),
    /// By a goal, block by block. The bytes then depend on the speed of workers and link.
    Priced(Box<Priced>),
    /// By a rule from outside this library. It learns, so it serves one stream.
    Rule(Arc<dyn Rule>),
}

/// A way to pick methods from outside this library. Workers call it, several at once.
pub trait Rule: fmt::Debug + Send + Sync {
    /// Returns every method that may be picked.
    fn methods(&self) -> &[Method];

    /// Picks the method of a block. Its trials with the compressor cost the worker's time.
    ///
    /// # Errors
    ///
    /// Errors of the compressor; they end the stream.
    fn choose(&self, block: &[u8], compressor: &mut Compressor) -> Result<Method>;

    /// Learns the outcome of the block that this worker last chose for.
    fn encoded(&self, outcome: &Outcome);
}

/// The result of encoding a block by a rule's method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The picked method; if it made nothing smaller, the block was stored.
    pub method: Method,
    /// Bytes of the block.
    pub raw_bytes: u64,
    /// Bytes of the frame.
    pub stored_bytes: u64,
    /// The worker's time, its waits for a core included.
    pub wall: Seconds,
}

/// The means to pursue a goal.
#[derive(Clone, Debug)]
pub struct Priced {
    /// The goal of the stream.
    pub goal: Goal,
    /// The methods to pick from.
    pub arms: Vec<Method>,
    /// The speed of the link. None: measured from the writes.
    pub link: Option<BytesPerSecond>,
    /// The profile of the methods on this machine at the start.
    pub profile: Profile,
}

impl Choice {
    /// Returns every method that may be used.
    pub fn methods(&self) -> &[Method] {
        match self {
            Choice::Fixed(method) => std::slice::from_ref(method),
            Choice::Frozen(frozen) => &frozen.arms,
            Choice::Priced(priced) => &priced.arms,
            Choice::Rule(rule) => rule.methods(),
        }
    }

    /// Returns the most memory of one worker: the hungriest method of each codec.
    pub(super) fn compressor_bytes(&self, block_bytes: usize) -> usize {
        let family = |method: &Method| match method.codec {
            Codec::Store => 0,
            Codec::Lz4 { .. } => 1,
            Codec::Lz4Hc { .. } => 2,
            Codec::Zstd { .. } => 3,
            Codec::Deflate { .. } => 4,
            Codec::Xz { .. } => 5,
            Codec::Bzip2 { .. } => 6,
            Codec::Fsst => 0,
        };
        let mut most = [0; 7];
        for method in self.methods() {
            let most = &mut most[family(method)];
            *most = method.compressor_bytes(block_bytes).max(*most);
        }
        most.iter().sum()
    }
}

/// The assumed speed of a link before it is measured. A block stored badly on a slow link costs more than a block
/// compressed well on a fast one.
pub(super) const LINK_UNKNOWN: BytesPerSecond = BytesPerSecond(2e8);

/// Picks methods for the workers of one stream, and learns the results.
pub struct Picker {
    policy: Policy,
    splits: Splits,
    /// Frames that are compressed and not yet written.
    waiting_frames: AtomicUsize,
}

#[expect(clippy::large_enum_variant, reason = "there is one a stream")]
enum Policy {
    Fixed(Method),
    Frozen(Box<Fixed>),
    Priced(Mutex<Live>),
    Rule(Arc<dyn Rule>),
}

struct Live {
    controller: Controller,
    ledger: Ledger,
    habit: Habit,
    /// Set by the first block.
    begun: Option<Instant>,
    /// None where the speed of the link is given.
    link: Option<LinkMeters>,
}

impl Picker {
    pub fn new(choice: Choice, workers: usize, frames: usize) -> Picker {
        let policy = match choice {
            Choice::Fixed(method) => Policy::Fixed(method),
            Choice::Frozen(frozen) => Policy::Frozen(Box::new(frozen.fixed())),
            Choice::Rule(rule) => Policy::Rule(rule),
            Choice::Priced(priced) => {
                let plant = Plant {
                    workers,
                    frames,
                    link: priced.link.unwrap_or(LINK_UNKNOWN),
                    write_overhead: Seconds(0.0),
                };
                let live = Live {
                    controller: Controller::new(priced.goal, priced.arms, plant, priced.profile),
                    ledger: Ledger::default(),
                    habit: Habit::default(),
                    begun: None,
                    link: priced.link.is_none().then(LinkMeters::default),
                };
                Policy::Priced(Mutex::new(live))
            }
        };
        Picker {
            policy,
            splits: Splits::default(),
            waiting_frames: AtomicUsize::new(0),
        }
    }

    /// Takes a hint on the total number of bytes.
    pub fn pledge(&self, bytes: u64) {
        if let Policy::Priced(live) = &self.policy {
            lock(live).controller.pledge(bytes);
        }
    }

    /// Assumes that a link is as fast as before. A speed that the caller gave stays.
    pub fn expect_link(&self, speed: BytesPerSecond) {
        let Policy::Priced(live) = &self.policy else {
            return;
        };
        let mut live = lock(live);
        if let Some(link) = &mut live.link {
            *link = LinkMeters::seen_before();
            live.controller.set_link(speed, Seconds(0.0));
        }
    }

    /// Encodes parts of earlier blocks that are split.
    pub fn help(&self, workspace: &mut Workspace) {
        self.splits.help(workspace);
    }

    /// Encodes a block by the method picked for it, in parts if it is split. Raw bytes and frame buffer are back in
    /// their places when it returns.
    pub fn encode(
        &self,
        workspace: &mut Workspace,
        (raw, frame): (&mut Raw, &mut Vec<u8>),
        outlook: &Outlook,
    ) -> Result<Frames> {
        if let (Policy::Priced(live), false) = (&self.policy, outlook.is_stored) {
            return encode_priced(live, &self.splits, workspace, (raw, frame), outlook);
        }
        let encoder = &mut workspace.encoder;
        let method = match &self.policy {
            Policy::Priced(live) => return store(live, encoder, raw, outlook, frame),
            _ if outlook.is_stored => Method::STORE,
            Policy::Fixed(method) => *method,
            Policy::Frozen(frozen) => frozen.pick(encoder, raw.bytes(), outlook)?,
            Policy::Rule(rule) => return encode_by(&**rule, encoder, raw, frame),
        };
        Frames::of_block(encoder, method, raw, frame)
    }

    /// Notes that a frame is ready to be written.
    pub fn frame_waits(&self) {
        self.waiting_frames.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes a frame by `write` and learns the time of the link.
    pub fn write(&self, stored_bytes: usize, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let waiting = self.waiting_frames.fetch_sub(1, Ordering::Relaxed);
        let Policy::Priced(live) = &self.policy else {
            return write();
        };
        let begun = Instant::now();
        write()?;
        let mut live = lock(live);
        let live = &mut *live;
        if let Some(link) = &mut live.link {
            let seconds = begun.elapsed().as_secs_f64();
            link.wrote(stored_bytes as f64, seconds, waiting > 1);
            if let Some(seen) = link.seen() {
                live.controller.set_link(seen.speed, Seconds(0.0));
            }
        }
        let now = live.now();
        live.controller.written(now);
        Ok(())
    }
}

/// The questions of the books.
impl Picker {
    fn live(&self) -> Option<&Mutex<Live>> {
        match &self.policy {
            Policy::Priced(live) => Some(live),
            Policy::Fixed(_) | Policy::Frozen(_) | Policy::Rule(_) => None,
        }
    }

    pub fn keeps_books(&self) -> bool {
        self.live().is_some()
    }

    pub fn ledger(&self) -> Ledger {
        let live = self.live().map(lock);
        live.map_or_else(Ledger::default, |live| live.ledger.clone())
    }

    pub fn link(&self) -> Option<SeenLink> {
        self.live().and_then(|live| lock(live).seen_link())
    }

    pub fn profile(&self) -> Option<Profile> {
        let live = self.live().map(lock)?;
        Some(live.controller.profile().clone())
    }

    pub fn within(&self, factor: f64) -> Option<Prospect> {
        let live = self.live().map(lock)?;
        live.seen_link()?;
        Some(books::within(&live.ledger, &live.controller, factor))
    }

    pub fn last_percent(&self) -> Option<Seconds> {
        let live = self.live().map(lock)?;
        live.seen_link()?;
        let is_fast = live.controller.goal() == Goal::Fastest;
        is_fast.then(|| books::last_percent(&live.ledger, &live.controller))
    }
}

/// Encodes a block as its class and the prices say, and learns from it.
fn encode_priced(
    live: &Mutex<Live>,
    splits: &Splits,
    workspace: &mut Workspace,
    (raw, frame): (&mut Raw, &mut Vec<u8>),
    outlook: &Outlook,
) -> Result<Frames> {
    let taken_at = Instant::now();
    let raw_bytes = raw.bytes().len() as u64;
    let (method, class, ticket, parts, entry) = {
        let (mut live, class) = class_of(live, &mut workspace.encoder, raw.bytes())?;
        let now = live.now();
        #[cfg(test)]
        kill::at(kill::Step::Picking);
        let controller = &mut live.controller;
        let (arm, ticket) = controller.choose_for(class, raw_bytes, outlook, now);
        let parts = controller.parts_of(ticket);
        let entry = controller.entry_for(class, raw_bytes, outlook, (arm, parts));
        (controller.arms()[arm], class, ticket, parts, entry)
    };
    #[cfg(test)]
    kill::at(kill::Step::Picked);
    #[cfg(test)]
    let parts = kill::parts_of(raw.bytes()).unwrap_or(parts);
    let begun_wall = Instant::now();
    let (frames, spent) = match parts {
        1 => {
            let begun = thread_cpu();
            let frames = Frames::of_block(&mut workspace.encoder, method, raw, frame)?;
            let spent = Spent {
                core: thread_cpu() - begun,
                wall: Seconds(begun_wall.elapsed().as_secs_f64()),
            };
            (frames, spent)
        }
        parts => splits.encode(workspace, (raw, frame), method, parts)?,
    };
    let taken = Taken {
        observation: Observation {
            class,
            method,
            raw_bytes,
            stored_bytes: frames.stored_bytes() as u64,
            encode: Some(spent.core),
            decode: None,
        },
        wall: Seconds(spent.wall.0 + (begun_wall - taken_at).as_secs_f64()),
    };
    #[cfg(test)]
    kill::at(kill::Step::Encoded);
    let mut live = lock(live);
    #[cfg(test)]
    kill::at(kill::Step::Learning);
    let now = live.now();
    live.controller.encoded(ticket, &taken, now);
    books::book(&mut live.ledger, &entry, &taken);
    Ok(frames)
}

/// Returns the class of a block, by that of an earlier one where the two are alike.
fn class_of<'l>(
    live: &'l Mutex<Live>,
    encoder: &mut Encoder,
    block: &[u8],
) -> Result<(MutexGuard<'l, Live>, Class)> {
    let glance = Glance::of(block);
    let mut guard = lock(live);
    let of_block = guard.controller.worker_seconds();
    if let Some(class) = guard.habit.class_of(&glance, of_block) {
        return Ok((guard, class));
    }
    drop(guard);
    let begun = thread_cpu();
    let class = Class::content(&Features::as_needed(
        block,
        encoder.compressor(),
        Class::needs_probe,
    )?);
    let taken = thread_cpu() - begun;
    let mut guard = lock(live);
    let of_block = guard.controller.worker_seconds();
    guard.habit.learn(glance, class, taken, of_block);
    Ok((guard, class))
}

/// Stores a block that must not be compressed, so that the controller knows of its time on the link.
fn store(
    live: &Mutex<Live>,
    encoder: &mut Encoder,
    raw: &Raw,
    outlook: &Outlook,
    frame: &mut [u8],
) -> Result<Frames> {
    let raw_bytes = raw.bytes().len() as u64;
    let ticket = {
        let mut live = lock(live);
        let now = live.now();
        live.controller.pass(raw_bytes, outlook, now)
    };
    let begun = thread_cpu();
    let frames = Frames::of_block(encoder, Method::STORE, raw, frame)?;
    let stored = Written {
        stored_bytes: frames.stored_bytes() as u64,
        encode: thread_cpu() - begun,
        energy: Joules(0.0),
    };
    let mut live = lock(live);
    let now = live.now();
    (live.controller).stored(ticket, stored.stored_bytes, now);
    let entry = live.controller.entry_of_passed(raw_bytes, outlook);
    live.ledger.wrote(&entry.decision, &stored);
    Ok(frames)
}

/// Encodes a block by the method that a rule picks.
fn encode_by(
    rule: &dyn Rule,
    encoder: &mut Encoder,
    raw: &Raw,
    frame: &mut [u8],
) -> Result<Frames> {
    let block = raw.bytes();
    let method = rule.choose(block, encoder.compressor())?;
    if !rule.methods().contains(&method) {
        let reason = format!("{method} is none of those it named");
        return Err(Error::invalid("method of a rule", reason));
    }
    let begun = Instant::now();
    let frames = Frames::of_block(encoder, method, raw, frame)?;
    rule.encoded(&Outcome {
        method,
        raw_bytes: block.len() as u64,
        stored_bytes: frames.stored_bytes() as u64,
        wall: Seconds(begun.elapsed().as_secs_f64()),
    });
    Ok(frames)
}

impl Live {
    fn seen_link(&self) -> Option<SeenLink> {
        match &self.link {
            Some(link) => link.seen(),
            None => Some(SeenLink::given(self.controller.plant().link)),
        }
    }

    /// Returns the time since the first block.
    fn now(&mut self) -> Seconds {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        Seconds(begun.elapsed().as_secs_f64())
    }
}

fn lock(live: &Mutex<Live>) -> MutexGuard<'_, Live> {
    // A panic under the lock is a bug that its worker reports; the others may go on with the same state.
    live.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The evidence of the writes about a link: the writes behind which more waited, and all.
///
/// A sink may hold some MiB and send them later. It takes them as fast as memory does, and is then behind by as much
/// for good. So writes count once one was held up, or once the sink has taken more than it can hold. From then on the
/// sink takes the link's speed on the whole, though not write by write. A full TCP socket takes nothing until a third
/// of it is empty.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkMeters {
    waited: Sums,
    all: Sums,
    /// The writes before one was held up.
    early: Sums,
    is_full: bool,
    /// Bytes of all writes so far.
    bytes: f64,
    /// Writes beyond the bytes that a sink can hold.
    writes: usize,
}

/// Writes whose times are believed if no frame ever waited for one: a slow link makes frames wait sooner than this.
const WRITES_UNWAITED: usize = 16;
/// A longer write was held up: memory is faster, and no wait for a core exceeds a slice of the scheduler.
const HELD_UP_SECONDS: f64 = 4e-3;
const HELD_UP_BYTES_PER_SECOND: f64 = 5e8;

impl LinkMeters {
    /// Begins on a sink whose speed an earlier stream showed, so that its buffers are already full.
    fn seen_before() -> LinkMeters {
        LinkMeters {
            is_full: true,
            bytes: HIDDEN_BYTES,
            ..LinkMeters::default()
        }
    }

    pub(super) fn wrote(&mut self, bytes: f64, seconds: f64, has_waiting: bool) {
        let may_hide = self.bytes < HIDDEN_BYTES;
        self.bytes += bytes;
        if may_hide && !self.is_full {
            add(&mut self.early, bytes, seconds);
            let by_memory = self.early.bytes / HELD_UP_BYTES_PER_SECOND;
            self.is_full = self.early.seconds > HELD_UP_SECONDS + by_memory;
            return;
        }
        if has_waiting {
            add(&mut self.waited, bytes, seconds);
        }
        if !may_hide {
            add(&mut self.all, bytes, seconds);
            self.writes += 1;
        }
    }

    /// Returns the link by the writes behind which more waited. A sink that is never behind is assumed to be as fast as
    /// it takes writes. If that is too fast, the methods picked will make the sink fall behind, and then its speed is
    /// measured.
    pub(super) fn seen(&self) -> Option<SeenLink> {
        let (sums, basis) = match is_known(&self.waited) {
            true => (&self.waited, LinkBasis::Measured),
            false => (&self.all, LinkBasis::NeverWaited),
        };
        let is_seen =
            basis == LinkBasis::Measured || (self.writes >= WRITES_UNWAITED && is_known(&self.all));
        is_seen.then(|| SeenLink {
            speed: sums.speed(),
            seconds_per_byte: sums.seconds_per_byte(),
            basis,
        })
    }
}

/// Writes after which an older one counts half.
const HALF_LIFE_WRITES: f64 = 64.0;
/// Writes after which their speed is believed.
const WRITES_MIN: f64 = 3.0;

fn add(sums: &mut Sums, bytes: f64, seconds: f64) {
    sums.fade(f64::exp2(-1.0 / HALF_LIFE_WRITES));
    sums.add(bytes, seconds);
}

fn is_known(sums: &Sums) -> bool {
    sums.weight >= WRITES_MIN * 0.9 && sums.seconds > 0.0 && sums.bytes > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Alternates between two methods and counts the reports.
    #[derive(Debug, Default)]
    struct Turns {
        methods: Vec<Method>,
        chosen: AtomicUsize,
        stored_bytes: AtomicUsize,
        names_no_method: bool,
    }

    impl Rule for Turns {
        fn methods(&self) -> &[Method] {
            match self.names_no_method {
                true => &[],
                false => &self.methods,
            }
        }

        fn choose(&self, _: &[u8], _: &mut Compressor) -> Result<Method> {
            let turn = self.chosen.fetch_add(1, Ordering::Relaxed);
            Ok(self.methods[turn % 2])
        }

        fn encoded(&self, outcome: &Outcome) {
            let bytes = outcome.stored_bytes as usize;
            self.stored_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_rule_picks_what_it_named() {
        for names_no_method in [false, true] {
            let rule = Arc::new(Turns {
                methods: ["store", "zstd:1"].map(|it| it.parse().unwrap()).into(),
                names_no_method,
                ..Turns::default()
            });
            let picker = Picker::new(Choice::Rule(rule.clone()), 1, 6);
            let (mut workspace, block) = (Workspace::default(), b"abcd".repeat(500));
            let mut frame = vec![0; crate::frame::frame_bytes_max(block.len())];
            let mut raw = Raw::Own(block);
            let (outlook, mut stored) = (Outlook::default(), 0);
            for turn in 0..4 {
                let encoded = picker.encode(&mut workspace, (&mut raw, &mut frame), &outlook);
                if names_no_method {
                    assert!(matches!(encoded, Err(Error::Invalid { .. })));
                    continue;
                }
                let bytes = encoded.unwrap().stored_bytes();
                assert_eq!(bytes < 200, turn % 2 == 1, "{bytes} bytes");
                stored += bytes;
                assert_eq!(rule.stored_bytes.load(Ordering::Relaxed), stored);
            }
        }
    }

    #[test]
    fn a_link_is_told_from_its_writes() {
        let is_near = |seen: Option<SeenLink>, speed: f64, basis: LinkBasis| {
            let seen = seen.expect("enough writes");
            assert_eq!(seen.basis, basis);
            assert!((seen.speed.0 / speed - 1.0).abs() < 1e-6, "{seen:?}");
            let per_byte = seen.seconds_per_byte;
            let width = per_byte.high - per_byte.low;
            assert!(width < 1e-5 * per_byte.mean, "{seen:?}");
        };
        // Nothing waits for a fast sink. After more bytes than it can hold, and some further writes, its speed is
        // believed until a frame waits.
        let mut meters = LinkMeters::default();
        let hidden = (HIDDEN_BYTES / 1e6).ceil() as usize;
        for write in 0..hidden + 20 {
            let seen = meters.seen();
            let is_seen = write >= hidden + WRITES_UNWAITED;
            assert_eq!(seen.is_some(), is_seen, "{write}: {seen:?}");
            meters.wrote(1e6, 1e-3, false);
        }
        is_near(meters.seen(), 1e9, LinkBasis::NeverWaited);
        (0..4).for_each(|_| meters.wrote(1e6, 1e-2, true));
        is_near(meters.seen(), 1e8, LinkBasis::Measured);
        // A sink that holds 3 MB, then sends 1e8 a second, and takes them in gulps.
        let mut meters = LinkMeters::default();
        (0..3).for_each(|_| meters.wrote(1e6, 1e-3, true));
        assert!(meters.seen().is_none());
        (0..200).for_each(|_| {
            (0..3).for_each(|_| meters.wrote(1e6, 1e-3, true));
            meters.wrote(1e6, 37e-3, true);
        });
        let seen = meters.seen().expect("enough writes");
        assert!((seen.speed.0 / 1e8 - 1.0).abs() < 0.05, "{seen:?}");
        let per_byte = seen.seconds_per_byte;
        assert!(
            per_byte.low < 0.95e-8 && per_byte.high > 1.05e-8,
            "{seen:?}"
        );
        // A sink that another stream filled before.
        let mut meters = LinkMeters::seen_before();
        (0..3).for_each(|_| meters.wrote(1e6, 1e-3, true));
        is_near(meters.seen(), 1e9, LinkBasis::Measured);
    }

    #[test]
    fn a_link_that_was_seen_before_is_where_a_stream_begins() {
        let seen = BytesPerSecond(7e8);
        let told = BytesPerSecond(1e7);
        for (link, expected) in [(None, seen), (Some(told), told)] {
            let choice = Choice::Priced(Box::new(Priced {
                goal: Goal::Fastest,
                arms: vec![Method::STORE],
                link,
                profile: Profile::default(),
            }));
            let picker = Picker::new(choice, 1, 6);
            picker.expect_link(seen);
            let live = lock(picker.live().unwrap());
            assert_eq!(live.controller.plant().link, expected);
        }
    }
}
