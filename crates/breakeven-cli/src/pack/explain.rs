//! `breakeven explain`: the reason for each block's method in a file, and the outcome for the blocks of a stream.
//!
//! The controller of `pack` encodes the blocks of a file one by one. Workers and link are simulated, so nothing is
//! written and one core is enough. Each frame of a stream is decoded and its class found again. Every method encodes
//! some blocks of each class.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Seek};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use breakeven::codec::{Features, Method};
use breakeven::decide::{Class, Decision, Observation};
use breakeven::frame::{Encoder, Kind, MAGIC_BYTES, frame_bytes_max};
use breakeven::meter::thread_cpu;
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::price::{Controller, Explained, Plant, Taken};
use breakeven::stream::simulate::{Cost, Encoded, Event, Pipeline, Run, simulate_encoding};
use breakeven::stream::{FoundFrame, Goal, Outlook, ReaderOptions, visit};
use breakeven::units::{BytesPerSecond, Seconds};
use breakeven_cli::text::{days as days_text, figures, percent, size};
use serde_json::{Value, json};

use super::choice::Setting;
use super::container;
use super::content::{Content, unreadable};
use super::explain_long;
use super::form::Aim;
use super::place::Source;
use crate::options::{ExplainOptions, Link, Strategy, Usage};

/// The names and versions of the JSON forms. Fields are only added under the same one.
const FILE_SCHEMA: &str = "breakeven.explain-file/1";
const STREAM_SCHEMA: &str = "breakeven.explain-stream/1";

/// Bytes of a piece of a stream that is tried by every method.
const BLOCK_BYTES: usize = 1 << 20;
/// Rows that are printed unless all are asked for.
const ROWS: usize = 20;
/// A longer frame is looked at in pieces.
const FRAME_BYTES_MAX: u64 = 64 << 20;

/// The most frames of a stream, a terabyte's: all are held in memory until they are shown.
const FRAMES_MAX: usize = 1 << 20;

/// Runs `explain`.
pub fn run(typed: &ExplainOptions) -> Result<ExitCode> {
    let mut source = Source::open_file(&typed.path)?;
    if source.metadata.is_none() {
        bail!("{} is no regular file", source.name);
    }
    let mut magic = [0; MAGIC_BYTES];
    let count = source.file.read(&mut magic)?;
    source.file.rewind()?;
    let setting = Setting::new(&typed.money, typed.days, typed.link.and_then(|link| link.0));
    let shown = match Kind::of(&magic[..count]) {
        Some(_) => explain_stream(typed, &setting, &mut source)?,
        None => explain_file(typed, &setting, &mut source)?,
    };
    let text = match typed.json {
        true => serde_json::to_string_pretty(&shown.json)? + "\n",
        false => shown.text(typed.all),
    };
    crate::standard::print(&text);
    Ok(ExitCode::SUCCESS)
}

/// The printed parts.
pub struct Shown {
    pub summary: String,
    pub header: String,
    pub rows: Vec<String>,
    /// Follows the rows.
    pub tail: String,
    pub json: Value,
}

impl Shown {
    fn text(&self, all: bool) -> String {
        let count = if all { self.rows.len() } else { ROWS };
        let mut text = format!("{}\n{}", self.summary, self.header);
        self.rows.iter().take(count).for_each(|row| text += row);
        let more = self.rows.len().saturating_sub(count);
        if more > 0 {
            let _ = writeln!(text, "and {more} more; --all shows them");
        }
        text + &self.tail
    }
}

/// A decision on a block, and its outcome.
struct Decided {
    class: Class,
    method: Method,
    /// The number of parts of the block.
    parts: usize,
    raw_bytes: u64,
    stored_bytes: u64,
    core: Seconds,
    price: f64,
    /// The expected costs, and the reasons.
    decision: Decision,
    is_trial: bool,
}

/// The default link in the explanation of a strategy.
const LINK: BytesPerSecond = BytesPerSecond(117e6);

fn explain_file(typed: &ExplainOptions, setting: &Setting, source: &mut Source) -> Result<Shown> {
    let told = match typed.link {
        Some(Link(None)) => {
            let reason =
                "--link auto: explain writes nothing, so no link can be measured; name a speed";
            bail!(Usage(reason.to_string()));
        }
        Some(Link(told)) => told,
        None => typed.strategy.map(|_| LINK),
    };
    let workers = typed.threads.unwrap_or_else(|| setting.threads()).max(1);
    if let Some(aim) = Aim::of_strategy(typed.strategy, told, (typed.mixed, true), workers) {
        return explain_long::explain(setting, source, aim, workers);
    }
    explain_row(
        typed,
        setting,
        source,
        (told.unwrap_or(LINK), workers as usize),
    )
}

/// Explains a file that is packed into a row of frames.
fn explain_row(
    typed: &ExplainOptions,
    setting: &Setting,
    source: &mut Source,
    (link, workers): (BytesPerSecond, usize),
) -> Result<Shown> {
    let pipeline = Pipeline {
        workers,
        frames: 2 * workers + 4,
        link_bytes_per_second: link.0,
        write_overhead: 0.0,
        work_overhead: 0.0,
        hidden_bytes: 0.0,
    };
    let goal = setting.goal(typed.strategy.unwrap_or(Strategy::Fastest))?;
    let (run, decided) = decide(source, setting, typed, &pipeline, goal)?;
    let sum = |of: &dyn Fn(&Decided) -> f64| decided.iter().map(of).sum::<f64>();
    let raw = sum(&|it| it.raw_bytes as f64);
    let raw_seconds = raw / link.0;
    let mut summary = format!(
        "{}: {} blocks, {} to {}, ratio {}, in {} s over {} MB/s with {workers} workers \
         (uncompressed {} s)\n",
        source.name,
        decided.len(),
        size(raw),
        size(run.stored_bytes),
        figures(raw / run.stored_bytes.max(1.0)),
        figures(run.drained_after.0),
        figures(link.mb_per_second()),
        figures(raw_seconds)
    );
    let (core, expected_core) = (sum(&|it| it.core.0), sum(&|it| it.expected_core().0));
    let _ = writeln!(
        summary,
        "{} of core time, {} expected; {} stored, {} expected",
        milliseconds(Seconds(core)),
        milliseconds(Seconds(expected_core)),
        size(run.stored_bytes),
        size(sum(&|it| it.expected_stored_bytes()))
    );
    let _ = writeln!(summary, "{}", methods_used(&decided));
    let _ = writeln!(summary, "{}", meaning_of_price(goal));
    let header = format!(
        "{:>7} {:<18} {:<11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        "block", "class", "method", "raw", "stored", "expected", "core", "expected", "price"
    );
    let rows = decided.iter().enumerate();
    let json = json!({
        "schema": FILE_SCHEMA,
        "file": source.data_name(),
        "link_mb_s": link.mb_per_second(),
        "workers": workers,
        "raw_bytes": raw,
        "stored_bytes": run.stored_bytes,
        "seconds": run.drained_after.0,
        "seconds_raw": raw_seconds,
        "blocks": decided.iter().map(Decided::json).collect::<Vec<_>>(),
    });
    Ok(Shown {
        summary,
        header,
        rows: rows.map(|(index, it)| it.row(index)).collect(),
        tail: reasons(&decided),
        json,
    })
}

/// Kinds of decisions with printed reasons.
const REASONS: usize = 12;

/// Renders the reasons for methods, those of most blocks first.
fn reasons(decided: &[Decided]) -> String {
    let mut blocks: BTreeMap<String, usize> = BTreeMap::new();
    for it in decided {
        *blocks.entry(it.why()).or_default() += 1;
    }
    let mut blocks: Vec<_> = blocks.into_iter().collect();
    blocks.sort_by_key(|it| std::cmp::Reverse(it.1));
    let mut text = String::from("why:\n");
    for (why, count) in blocks.iter().take(REASONS) {
        let _ = writeln!(text, "{count:>7} {why}");
    }
    let rest: usize = blocks.iter().skip(REASONS).map(|it| it.1).sum();
    if rest > 0 {
        let _ = writeln!(text, "{rest:>7} for other reasons; --json lists them");
    }
    text
}

fn milliseconds(time: Seconds) -> String {
    match time.0 < 1.0 {
        true => format!("{} ms", figures(1e3 * time.0)),
        false => format!("{} s", figures(time.0)),
    }
}

fn methods_used(decided: &[Decided]) -> String {
    let mut blocks: BTreeMap<Method, usize> = BTreeMap::new();
    for it in decided {
        *blocks.entry(it.method).or_default() += 1;
    }
    let mut blocks: Vec<_> = blocks.into_iter().collect();
    blocks.sort_by_key(|it| std::cmp::Reverse(it.1));
    let share = |count: usize| percent(count as f64 / decided.len().max(1) as f64);
    let named = blocks.iter();
    let named: Vec<String> = named
        .map(|(method, count)| format!("{method} {}", share(*count)))
        .collect();
    format!("methods by blocks: {}", named.join(", "))
}

fn meaning_of_price(goal: Goal) -> &'static str {
    match goal {
        Goal::Fastest => "price: of a worker's second, the link's being the rest to 1",
        Goal::Within(_) => "price: bytes that a second of a core must save, in MB",
        Goal::Smallest => "price: of a core's second, nothing",
        Goal::Money { .. } => "price: of a core's hour, in EUR",
        Goal::Energy { .. } => "price: of a core's second, in joules",
    }
}

/// Returns the current price of a goal, in the sense of [`meaning_of_price`].
fn price(controller: &Controller, goal: Goal) -> f64 {
    let core_second = controller.balance_prices().per_core_second.mean;
    match goal {
        Goal::Fastest => core_second * controller.plant().workers as f64,
        Goal::Within(_) => core_second / 1e6,
        Goal::Smallest => 0.0,
        Goal::Money { .. } => core_second * 3600.0,
        Goal::Energy { .. } => core_second,
    }
}

impl Decided {
    fn expected_stored_bytes(&self) -> f64 {
        self.decision.quantities.stored_bytes.mean
    }

    fn expected_core(&self) -> Seconds {
        Seconds(self.decision.quantities.encode_core_seconds.mean)
    }

    /// Names the reason: the decision's, or a trial of a method that is not the best known.
    fn why(&self) -> String {
        match self.is_trial {
            true => format!(
                "{} for {}, tried: it may be better than is known",
                self.method, self.class
            ),
            false => self.decision.to_string(),
        }
    }

    fn method_and_parts(&self) -> String {
        match self.parts {
            1 => self.method.to_string(),
            parts => format!("{} x{parts}", self.method),
        }
    }

    fn row(&self, index: usize) -> String {
        format!(
            "{index:>7} {:<18} {:<11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
            self.class.to_string(),
            self.method_and_parts(),
            size(self.raw_bytes as f64),
            size(self.stored_bytes as f64),
            size(self.expected_stored_bytes()),
            milliseconds(self.core),
            milliseconds(self.expected_core()),
            figures(self.price)
        )
    }

    fn json(&self) -> Value {
        json!({
            "class": self.class.to_string(),
            "method": self.method.to_string(),
            "parts": self.parts,
            "raw_bytes": self.raw_bytes,
            "stored_bytes": self.stored_bytes,
            "expected_stored_bytes": self.expected_stored_bytes(),
            "core_seconds": self.core.0,
            "expected_core_seconds": self.expected_core().0,
            "price": self.price,
            "runner_up": self.decision.runner_up.map(|it| it.to_string()),
            "undecided": self.decision.undecided,
            "is_trial": self.is_trial,
            "reason": self.decision.reason.to_string(),
        })
    }
}

/// Sends the blocks of a file through a simulated pipeline; only the encoding is real.
fn decide(
    source: &mut Source,
    setting: &Setting,
    typed: &ExplainOptions,
    pipeline: &Pipeline,
    goal: Goal,
) -> Result<(Run, Vec<Decided>)> {
    let arms = container(typed.mixed).arms();
    let plant = Plant {
        workers: pipeline.workers,
        frames: pipeline.frames,
        link: BytesPerSecond(pipeline.link_bytes_per_second),
        write_overhead: Seconds(pipeline.write_overhead),
    };
    let length = source.metadata.as_ref().map_or(0, std::fs::Metadata::len);
    let mut controller = Controller::new(goal, arms, plant, setting.profile());
    controller.pledge(length);
    let controller = RefCell::new(controller);
    let block_bytes = super::block_bytes(goal, typed.mixed, Some(length));
    let mut encoding = Encoding::of_blocks(block_bytes);
    let decided = RefCell::new(Vec::new());
    let mut failure = None;
    let count = length.div_ceil(block_bytes as u64) as usize;
    let run = simulate_encoding(
        pipeline,
        count,
        &mut |_, now| {
            let mut controller = controller.borrow_mut();
            match encoding.block(source, &mut controller, goal, Seconds(now)) {
                Ok((arm, it)) => {
                    let cost = Cost {
                        work: it.core.0,
                        stored_bytes: it.stored_bytes as f64,
                    };
                    let parts = it.parts;
                    decided.borrow_mut().push(it);
                    Encoded { arm, cost, parts }
                }
                Err(error) => {
                    failure.get_or_insert(error);
                    Encoded {
                        arm: 0,
                        cost: Cost::default(),
                        parts: 1,
                    }
                }
            }
        },
        &mut |event| match event {
            Event::Compressed { block, at, .. } => {
                if let Some(it) = decided.borrow().get(block) {
                    let taken = it.taken();
                    (controller.borrow_mut()).encoded(block as u64, &taken, Seconds(at));
                }
            }
            Event::Written { at, .. } => controller.borrow_mut().written(Seconds(at)),
        },
    );
    match failure {
        Some(error) => Err(error),
        None => Ok((run, decided.into_inner())),
    }
}

impl Decided {
    fn taken(&self) -> Taken {
        Taken {
            observation: Observation {
                class: self.class,
                method: self.method,
                raw_bytes: self.raw_bytes,
                stored_bytes: self.stored_bytes,
                encode: Some(self.core),
                decode: None,
            },
            wall: self.core,
        }
    }
}

/// Working memory for encoding blocks.
struct Encoding {
    encoder: Encoder,
    block: Vec<u8>,
    frame: Vec<u8>,
}

impl Encoding {
    fn of_blocks(block_bytes: usize) -> Encoding {
        Encoding {
            encoder: Encoder::new(),
            block: vec![0; block_bytes],
            frame: Vec::new(),
        }
    }

    /// Reads the next block, and encodes it by the picked arm.
    fn block(
        &mut self,
        source: &mut Source,
        controller: &mut Controller,
        goal: Goal,
        now: Seconds,
    ) -> Result<(usize, Decided)> {
        let mut filled = 0;
        while filled < self.block.len() {
            let count = source.read(&mut self.block[filled..])?;
            if count == 0 {
                break;
            }
            filled += count;
        }
        let class = self.class_of(filled)?;
        let raw_bytes = filled as u64;
        let outlook = Outlook::default();
        let Explained {
            arm,
            ticket,
            decision,
            is_trial,
        } = controller.explain_for(class, raw_bytes, &outlook, now);
        let parts = controller.parts_of(ticket);
        let method = controller.arms()[arm];
        let price = price(controller, goal);
        let (core, stored_bytes) = self.encode(method, filled, parts)?;
        let decided = Decided {
            class,
            method,
            parts,
            raw_bytes,
            stored_bytes,
            core,
            price,
            decision,
            is_trial,
        };
        Ok((arm, decided))
    }

    fn class_of(&mut self, length: usize) -> Result<Class> {
        let block = &self.block[..length];
        Ok(Class::content(&Features::as_needed(
            block,
            self.encoder.compressor(),
            Class::needs_probe,
        )?))
    }

    /// Encodes the front of the block in parts: core time and bytes of the frames.
    fn encode(&mut self, method: Method, length: usize, parts: usize) -> Result<(Seconds, u64)> {
        let block = &self.block[..length];
        self.frame.resize(frame_bytes_max(length), 0);
        let begun = thread_cpu();
        let mut stored_bytes = 0;
        for part in block.chunks(length.div_ceil(parts).max(1)) {
            let encoded = self.encoder.encode(method, part, &mut self.frame)?;
            stored_bytes += encoded.frame_bytes as u64;
        }
        Ok((thread_cpu() - begun, stored_bytes))
    }
}

/// A frame in a stream, or a piece of a long one.
struct Found {
    at: u64,
    kind: &'static str,
    class: Class,
    raw_bytes: u64,
    stored_bytes: f64,
}

/// The facts about a class's blocks in a stream.
#[derive(Default)]
struct OfClass {
    blocks: u64,
    raw_bytes: u64,
    stored_bytes: f64,
    /// Some of its blocks.
    samples: Vec<Vec<u8>>,
    /// Their cost by each method: raw bytes, stored bytes, core time.
    tried: Vec<(Method, u64, u64, Seconds)>,
}

/// Blocks of a class that are tried.
const SAMPLES: usize = 3;

fn explain_stream(typed: &ExplainOptions, setting: &Setting, source: &mut Source) -> Result<Shown> {
    let options = ReaderOptions {
        window_bytes_max: typed.window_max,
        ..ReaderOptions::default()
    };
    let frames = frames_of(source, &options)?;
    let mut encoding = Encoding::of_blocks(BLOCK_BYTES);
    let (found, mut classes) = look(source, &options, &frames, &mut encoding)?;
    let deadline = Instant::now() + Duration::from_secs_f64(typed.time.min(86_400.0));
    let arms = container(typed.mixed).arms();
    let tried_all = try_methods(&mut classes, &arms, setting, deadline, &mut encoding)?;
    let raw: u64 = found.iter().map(|it| it.raw_bytes).sum();
    let stored: u64 = frames.iter().map(|it| it.stored_bytes).sum();
    let stored = stored as f64;
    let summary = format!(
        "{}: {} blocks, {} to {}, ratio {}\n",
        source.name,
        found.len(),
        size(raw as f64),
        size(stored),
        figures(raw as f64 / stored.max(1.0))
    );
    let header = format!(
        "{:>12} {:<7} {:<18} {:>9} {:>9} {:>7}\n",
        "byte", "kind", "class", "raw", "stored", "ratio"
    );
    let mut tail = alternatives(&classes, setting)?;
    if !tried_all {
        let _ = writeln!(
            tail,
            "not all methods were tried in {} s; --time allows more",
            figures(typed.time)
        );
    }
    let json = json!({
        "schema": STREAM_SCHEMA,
        "file": source.data_name(),
        "raw_bytes": raw,
        "stored_bytes": stored,
        "blocks": found.iter().map(Found::json).collect::<Vec<_>>(),
        "classes": classes_json(&classes),
        "tried_all": tried_all,
    });
    Ok(Shown {
        summary,
        header,
        rows: found.iter().map(Found::row).collect(),
        tail,
        json,
    })
}

/// Returns the frames that hold something.
fn frames_of(source: &mut Source, options: &ReaderOptions) -> Result<Vec<FoundFrame>> {
    let mut frames = Vec::new();
    let mut count = 0;
    let keep = &mut |frame: FoundFrame| {
        if frame.kind != Kind::Skippable && frame.content_bytes != Some(0) {
            count += 1;
            if count <= FRAMES_MAX {
                frames.push(frame);
            }
        }
    };
    visit(&mut source.file, options, keep).map_err(|error| unreadable(&source.name, error))?;
    if count > FRAMES_MAX {
        bail!(
            "{}: {count} frames are more than can be explained at once",
            source.name
        );
    }
    Ok(frames)
}

impl Found {
    fn row(&self) -> String {
        format!(
            "{:>12} {:<7} {:<18} {:>9} {:>9} {:>7}\n",
            self.at,
            self.kind,
            self.class.to_string(),
            size(self.raw_bytes as f64),
            size(self.stored_bytes),
            figures(self.raw_bytes as f64 / self.stored_bytes.max(1.0))
        )
    }

    fn json(&self) -> Value {
        json!({
            "at": self.at,
            "kind": self.kind,
            "class": self.class.to_string(),
            "raw_bytes": self.raw_bytes,
            "stored_bytes": self.stored_bytes,
        })
    }
}

/// Decodes a stream and finds the class of each of its frames, a long one in pieces.
fn look(
    source: &mut Source,
    options: &ReaderOptions,
    frames: &[FoundFrame],
    encoding: &mut Encoding,
) -> Result<(Vec<Found>, BTreeMap<Class, OfClass>)> {
    let pool = Pool::new(PoolOptions::default())?;
    let file = source.duplicate()?;
    let mut content = Content::open((&source.name, file), true, &pool, options)?;
    let mut found = Vec::new();
    let mut classes: BTreeMap<Class, OfClass> = BTreeMap::new();
    for frame in frames {
        // Where a frame does not state its content, its end looks the same as the next one's start. The rest is shown
        // as pieces of that frame, with unknown stored bytes.
        let states = frame.content_bytes;
        let is_long = states.is_none_or(|bytes| bytes > FRAME_BYTES_MAX);
        let mut left = states.unwrap_or(u64::MAX);
        while left > 0 {
            let piece = if is_long { BLOCK_BYTES as u64 } else { left };
            let length = piece.min(left) as usize;
            encoding.block.resize(length.max(BLOCK_BYTES), 0);
            let count = content.read(&mut encoding.block[..length])?;
            if count == 0 {
                break;
            }
            left -= count as u64;
            let class = encoding.class_of(count)?;
            let share = states.map_or(f64::NAN, |bytes| count as f64 / bytes as f64);
            let it = Found {
                at: frame.at,
                kind: kind(frame),
                class,
                raw_bytes: count as u64,
                stored_bytes: frame.stored_bytes as f64 * share,
            };
            let of = classes.entry(class).or_default();
            of.blocks += 1;
            of.raw_bytes += it.raw_bytes;
            of.stored_bytes += it.stored_bytes;
            // The first blocks, and then ever rarer ones, so that they are spread over the stream.
            let block = &encoding.block[..count.min(BLOCK_BYTES)];
            if of.samples.len() < SAMPLES {
                of.samples.push(block.to_vec());
            } else if of.blocks.is_power_of_two() {
                let place = 1 + of.blocks.trailing_zeros() as usize % (SAMPLES - 1);
                of.samples[place] = block.to_vec();
            }
            found.push(it);
        }
    }
    Ok((found, classes))
}

/// Names the content of a frame.
fn kind(frame: &FoundFrame) -> &'static str {
    match (frame.kind, frame.content_bytes) {
        (Kind::Zstd, Some(bytes)) if frame.stored_bytes >= bytes => "store",
        (kind, _) => kind.name(),
    }
}

/// Encodes the samples by each method, quick ones first; returns whether the time was enough.
fn try_methods(
    classes: &mut BTreeMap<Class, OfClass>,
    arms: &[Method],
    setting: &Setting,
    deadline: Instant,
    encoding: &mut Encoding,
) -> Result<bool> {
    let profile = setting.profile();
    let work = |method: Method| {
        let estimate = profile.estimate(Class::TEXT, method, BLOCK_BYTES as u64);
        estimate.encode_seconds_per_byte.value.mean
    };
    let mut arms = arms.to_vec();
    arms.sort_by(|a, b| work(*a).total_cmp(&work(*b)));
    for method in arms {
        for of in classes.values_mut() {
            let mut sums = (method, 0, 0, Seconds(0.0));
            for sample in &of.samples {
                if Instant::now() >= deadline {
                    return Ok(false);
                }
                encoding.block[..sample.len()].copy_from_slice(sample);
                let (core, stored) = encoding.encode(method, sample.len(), 1)?;
                sums.1 += sample.len() as u64;
                sums.2 += stored;
                sums.3 += core;
            }
            of.tried.push(sums);
        }
    }
    Ok(true)
}

/// Renders the outcome of each method for each class.
fn alternatives(classes: &BTreeMap<Class, OfClass>, setting: &Setting) -> Result<String> {
    let (terms, days) = (setting.terms()?, setting.days);
    let mut text = format!(
        "\nby every method, on up to {SAMPLES} blocks of a class; EUR for a TB: the cores, and {} \
         kept (prices of {})\n{:<18} {:>7} {:>9} {:>7}  {:<11} {:>7} {:>9} {:>9} {:>9}\n",
        days_text(&figures(days)),
        terms.date(),
        "class",
        "blocks",
        "raw",
        "ratio",
        "method",
        "ratio",
        "core MB/s",
        "would be",
        "EUR/TB"
    );
    for (class, of) in classes {
        let mut first = format!(
            "{:<18} {:>7} {:>9} {:>7}",
            class.to_string(),
            of.blocks,
            size(of.raw_bytes as f64),
            figures(of.raw_bytes as f64 / of.stored_bytes)
        );
        for &(method, raw, stored, core) in &of.tried {
            let (raw, stored) = (raw as f64, stored as f64);
            let euros = terms.core_second().0 * core.0 + terms.keeping(stored, days).0;
            let _ = writeln!(
                text,
                "{first:<44}  {:<11} {:>7} {:>9} {:>9} {:>9}",
                method.to_string(),
                figures(raw / stored),
                figures(raw / 1e6 / core.0.max(1e-9)),
                size(of.raw_bytes as f64 * stored / raw),
                figures(euros / raw * 1e12)
            );
            first.clear();
        }
    }
    Ok(text)
}

fn classes_json(classes: &BTreeMap<Class, OfClass>) -> Vec<Value> {
    let of_class = |(class, of): (&Class, &OfClass)| {
        let methods = of.tried.iter().map(|(method, raw, stored, core)| {
            json!({
                "method": method.to_string(),
                "raw_bytes": raw,
                "stored_bytes": stored,
                "core_seconds": core.0,
            })
        });
        json!({
            "class": class.to_string(),
            "blocks": of.blocks,
            "raw_bytes": of.raw_bytes,
            "stored_bytes": of.stored_bytes,
            "methods": methods.collect::<Vec<_>>(),
        })
    };
    classes.iter().map(of_class).collect()
}
