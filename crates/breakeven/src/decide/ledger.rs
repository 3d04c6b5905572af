//! The ledger: the costs so far, and those of the rejected choice.
//!
//! A place reports every block written and read to its [`Ledger`]. For a small random share of blocks, drawn by the
//! place, it reports the real costs of `store` and of the codec ([`Counterfactual`]). From those samples and the
//! estimates of all decisions the ledger computes the earnings of compression, with their 95 % interval. `holdout.rs`
//! draws the blocks, and prices them both ways.
//!
//! Promises: counters of work are exact. Savings are estimates with intervals and with their numbers of samples.
//! Ledgers of threads merge into the ledger of all.
//!
//! It draws no samples, reads no clock and prices nothing. Costs come in, all in the one unit of the decisions' prices.

use std::collections::BTreeMap;

use crate::codec::Method;
use crate::decide::class::Class;
use crate::decide::decision::Decision;
use crate::decide::fields::{Field, FieldTable, Label, Row, Unit, Value};
use crate::decide::savings::{GROUP_COUNT, Savings};
use crate::units::{Estimate, Joules, Seconds, Watts};

/// The cost of storing one block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Written {
    /// Bytes stored; the raw length if the codec gave up.
    pub stored_bytes: u64,
    /// Core time of encoding, in vain or not.
    pub encode: Seconds,
    /// Energy of encoding, zero where it is not metered.
    pub energy: Joules,
}

/// The cost of reading one block back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fetched {
    /// The block's length after decoding.
    pub raw_bytes: u64,
    /// Core time of decoding.
    pub decode: Seconds,
    /// Energy of decoding, zero where it is not metered.
    pub energy: Joules,
}

/// The real costs of both choices over one sampled block's life, in the ledger's unit and at the prices of the
/// decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counterfactual {
    /// Cost of storing it raw.
    pub store_cost: f64,
    /// Cost of storing it by the decision's best codec.
    pub codec_cost: f64,
}

/// The work done on one class by one method.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Account {
    /// Blocks written.
    pub blocks: u64,
    /// Their bytes before.
    pub raw_bytes: u64,
    /// Their bytes after.
    pub stored_bytes: u64,
    /// The decisions' expectation of `stored_bytes`.
    pub expected_stored_bytes: f64,
    /// Core time of encoding.
    pub encode: Seconds,
    /// The decisions' expectation of `encode`.
    pub expected_encode: Seconds,
    /// Blocks read.
    pub reads: u64,
    /// Their bytes after decoding.
    pub read_bytes: u64,
    /// Core time of decoding.
    pub decode: Seconds,
    /// Energy of encoding and decoding, where it was metered.
    pub energy: Joules,
}

impl Account {
    /// Returns the ratio, raw over stored bytes of the set, once something is stored.
    pub fn ratio(&self) -> Option<f64> {
        (self.stored_bytes > 0).then(|| self.raw_bytes as f64 / self.stored_bytes as f64)
    }

    fn add(&mut self, other: &Account) {
        self.blocks += other.blocks;
        self.raw_bytes += other.raw_bytes;
        self.stored_bytes += other.stored_bytes;
        self.expected_stored_bytes += other.expected_stored_bytes;
        self.encode += other.encode;
        self.expected_encode += other.expected_encode;
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.decode += other.decode;
        self.energy += other.energy;
    }
}

/// The gain or loss from compression, as shown by samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Earnings {
    /// Cost saved against storing every block raw, less the overhead of deciding and sampling;
    /// negative is a loss.
    pub saved_cost: Estimate,
    /// The same as a share of the cost of storing every block raw.
    pub saved_share: Estimate,
}

/// The real and the possible saving from compression, without the work. A random part of the blocks needs only one
/// group. Its costs are meaningful only when merged with those of other parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs<const GROUPS: usize = GROUP_COUNT> {
    /// The saving on blocks that were compressed.
    earned: Savings<GROUPS>,
    /// The possible saving on blocks that were stored raw although a codec was available.
    missed: Savings<GROUPS>,
    /// Expected cost of all blocks stored raw.
    pub(crate) store_cost: f64,
    overhead_cost: f64,
}

impl<const GROUPS: usize> Costs<GROUPS> {
    /// Counts a block written by this decision.
    pub(crate) fn wrote(&mut self, decision: &Decision) {
        self.store_cost += decision.store_cost.mean;
        if decision.method != Method::STORE {
            self.earned.add_block(decision.saving.mean);
        } else if decision.best_codec.is_some() {
            self.missed.add_block(decision.saving.mean);
        }
    }

    /// As [`Ledger::counterfactual`].
    pub(crate) fn counterfactual(&mut self, decision: &Decision, found: &Counterfactual) {
        let savings = match decision.method {
            Method::STORE => &mut self.missed,
            _ => &mut self.earned,
        };
        savings.add_sample(decision.saving.mean, found.store_cost - found.codec_cost);
    }

    /// As [`Ledger::overhead`].
    pub(crate) fn overhead(&mut self, cost: f64) {
        self.overhead_cost += cost;
    }

    pub(crate) fn merge<const THEIRS: usize>(&mut self, other: &Costs<THEIRS>) {
        self.earned.merge(&other.earned);
        self.missed.merge(&other.missed);
        self.store_cost += other.store_cost;
        self.overhead_cost += other.overhead_cost;
    }

    /// Returns the number of samples behind it.
    pub(crate) fn samples(&self) -> u64 {
        (self.earned.samples() + self.missed.samples()) as u64
    }

    /// Returns the earnings from compression, once samples show them.
    pub(crate) fn earnings(&self) -> Option<Earnings> {
        let saved_cost = self.earned.total()?.map(|saved| saved - self.overhead_cost);
        let share = |cost: f64| match self.store_cost > 0.0 {
            true => cost / self.store_cost,
            false => 0.0,
        };
        Some(Earnings {
            saved_cost,
            saved_share: saved_cost.map(share),
        })
    }

    /// Returns the possible earnings on the blocks that were stored raw, once samples show them.
    pub(crate) fn missed(&self) -> Option<Estimate> {
        self.missed.total()
    }
}

/// The books of one place, or of one of its threads.
///
/// # Cost
/// Some 80 ns a block; [`Ledger::earnings`] some 10 microseconds. 1.4 KB, and 100 bytes for each of
/// at most [`Ledger::ACCOUNTS_MAX`] accounts.
///
/// # Example
/// ```
/// use breakeven::decide::ledger::{Ledger, Written};
/// use breakeven::decide::{choose, BlockLife, Class, Offer, Prices, Profile, Quantities};
/// use breakeven::units::{Estimate, Joules, Seconds};
///
/// let method = "zstd:3".parse()?;
/// let life = BlockLife::new(Class::TEXT, 65_536);
/// let estimate = Profile::default().estimate(life.class, method, life.raw_bytes);
/// let prices = Prices {
///     per_byte_written: Estimate::exact(1e-8),
///     ..Prices::default()
/// };
/// let decision = choose(&life, &prices, 1.0, [Offer::new(method, Quantities::of(&estimate, &life))]);
/// let mut ledger = Ledger::default();
/// ledger.wrote(&decision, &Written {
///     stored_bytes: 20_000,
///     encode: Seconds(0.0002),
///     energy: Joules(0.0),
/// });
/// assert_eq!(ledger.total().ratio(), Some(65_536.0 / 20_000.0));
/// assert!(ledger.earnings().is_none(), "no samples yet");
/// # Ok::<(), breakeven::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<(Class, Method), Account>,
    /// Work on classes and methods beyond [`Ledger::ACCOUNTS_MAX`].
    other: Account,
    whole: Costs,
}

impl Ledger {
    /// The most accounts kept apart; further work is booked under `other`.
    pub const ACCOUNTS_MAX: usize = 1024;

    /// Books a block written by this decision.
    pub fn wrote(&mut self, decision: &Decision, written: &Written) {
        let is_compressed = decision.method != Method::STORE;
        let (expected_stored, expected_encode) = match is_compressed {
            true => (
                decision.quantities.stored_bytes.mean,
                decision.quantities.encode_core_seconds.mean,
            ),
            false => (decision.raw_bytes as f64, 0.0),
        };
        self.account(decision.class, decision.method).add(&Account {
            blocks: 1,
            raw_bytes: decision.raw_bytes,
            stored_bytes: written.stored_bytes,
            expected_stored_bytes: expected_stored,
            encode: written.encode,
            expected_encode: Seconds(expected_encode),
            energy: written.energy,
            ..Account::default()
        });
        self.whole.wrote(decision);
    }

    /// Books a block that was read.
    pub fn read(&mut self, class: Class, method: Method, fetched: &Fetched) {
        self.account(class, method).add(&Account {
            reads: 1,
            read_bytes: fetched.raw_bytes,
            decode: fetched.decode,
            energy: fetched.energy,
            ..Account::default()
        });
    }

    /// Books the cost of deciding and sampling beside the blocks themselves, in the ledger's unit.
    pub fn overhead(&mut self, cost: f64) {
        self.whole.overhead(cost);
    }

    /// Adds the cost of both choices on a block of this decision. The place draws such blocks at random and with one
    /// probability for all; [`Ledger::wrote`] books each of them as well.
    pub fn counterfactual(&mut self, decision: &Decision, found: &Counterfactual) {
        self.whole.counterfactual(decision, found);
    }

    /// Returns the work done, by class and method; a last account holds all work beyond [`Ledger::ACCOUNTS_MAX`], if
    /// there is any.
    pub fn accounts(&self) -> impl Iterator<Item = (Option<(Class, Method)>, &Account)> {
        let kept = self
            .accounts
            .iter()
            .map(|(&key, account)| (Some(key), account));
        let has_other = self.other != Account::default();
        kept.chain(has_other.then_some((None, &self.other)))
    }

    /// Returns the work done in all.
    pub fn total(&self) -> Account {
        let mut total = Account::default();
        for (_, account) in self.accounts() {
            total.add(account);
        }
        total
    }

    /// Returns the figures of the whole ledger, for [`LEDGER_FIELDS`].
    pub fn stats(&self) -> LedgerStats {
        LedgerStats {
            total: self.total(),
            earnings: self.earnings(),
            missed: self.whole.missed(),
            expected_saving: self.whole.earned.expected(),
            store_cost: self.whole.store_cost,
            overhead_cost: self.whole.overhead_cost,
            samples: self.whole.samples(),
        }
    }

    /// Renders the figures of the ledger and of each account, one a line. `labels` stand before each and name the place
    /// and its unit of cost.
    pub fn text(&self, labels: &[Label]) -> String {
        self.rendered(labels, |ledger, accounts| {
            LEDGER_FIELDS.text(ledger) + &ACCOUNT_FIELDS.text(accounts)
        })
    }

    /// Renders the figures as an object of two arrays, `ledger` and `accounts`.
    pub fn json(&self, labels: &[Label]) -> serde_json::Value {
        self.rendered(labels, |ledger, accounts| {
            serde_json::json!({
                "ledger": LEDGER_FIELDS.json(ledger),
                "accounts": ACCOUNT_FIELDS.json(accounts),
            })
        })
    }

    /// Renders the figures as Prometheus text.
    pub fn prometheus(&self, labels: &[Label]) -> String {
        self.rendered(labels, |ledger, accounts| {
            LEDGER_FIELDS.prometheus(ledger) + &ACCOUNT_FIELDS.prometheus(accounts)
        })
    }

    fn rendered<R>(
        &self,
        labels: &[Label],
        render: impl Fn(&[Row<LedgerStats>], &[Row<Account>]) -> R,
    ) -> R {
        let stats = self.stats();
        let (all_labels, accounts): (Vec<Vec<Label>>, Vec<&Account>) = self
            .accounts()
            .map(|(key, account)| {
                let (class, method) = match key {
                    Some((class, method)) => (class.to_string(), method.to_string()),
                    None => ("other".to_string(), "other".to_string()),
                };
                let own = [("class", class), ("method", method)];
                (labels.iter().cloned().chain(own).collect(), account)
            })
            .unzip();
        let rows: Vec<Row<Account>> = all_labels
            .iter()
            .zip(accounts)
            .map(|(labels, stats)| Row { labels, stats })
            .collect();
        let ledger = Row {
            labels,
            stats: &stats,
        };
        render(&[ledger], &rows)
    }

    /// Returns the earnings from compression since the books were opened; `None` while there are too few samples.
    pub fn earnings(&self) -> Option<Earnings> {
        self.whole.earnings()
    }

    /// Sets the energy of every account from its core time: for a place that books time and has no meter.
    pub fn set_core_watts(&mut self, watts_per_core: Watts) {
        let accounts = self.accounts.values_mut().chain([&mut self.other]);
        for account in accounts {
            account.energy = watts_per_core * (account.encode + account.decode);
        }
    }

    /// Adds the books of a thread.
    pub fn merge(&mut self, other: &Ledger) {
        for (&(class, method), account) in &other.accounts {
            self.account(class, method).add(account);
        }
        self.other.add(&other.other);
        self.whole.merge(&other.whole);
    }

    /// Empties the books and returns their contents, for merging.
    pub fn take(&mut self) -> Ledger {
        std::mem::take(self)
    }

    fn account(&mut self, class: Class, method: Method) -> &mut Account {
        let key = (class, method);
        if self.accounts.len() >= Ledger::ACCOUNTS_MAX && !self.accounts.contains_key(&key) {
            return &mut self.other;
        }
        self.accounts.entry(key).or_default()
    }
}

/// The figures of a ledger at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LedgerStats {
    /// The work done in all.
    pub total: Account,
    /// The earnings from compression, once samples show them.
    pub earnings: Option<Earnings>,
    /// The possible earnings on the blocks that were stored raw, once samples show them.
    pub missed: Option<Estimate>,
    /// The saving from compression that the decisions expected.
    pub expected_saving: f64,
    /// Expected cost of all blocks stored raw.
    pub store_cost: f64,
    /// Cost of deciding and sampling.
    pub overhead_cost: f64,
    /// Samples drawn.
    pub samples: u64,
}

/// The fields of each class and method; rows are labelled `class` and `method`.
pub const ACCOUNT_FIELDS: FieldTable<Account> = FieldTable::new(
    "breakeven_account",
    &[
        Field::counter("blocks", Unit::None, "Blocks written", |it| {
            Value::Count(it.blocks)
        }),
        Field::counter(
            "raw",
            Unit::Bytes,
            "Bytes written, before compression",
            |it| Value::Count(it.raw_bytes),
        ),
        Field::counter(
            "stored",
            Unit::Bytes,
            "Bytes written, after compression",
            |it| Value::Count(it.stored_bytes),
        ),
        Field::counter(
            "expected_stored",
            Unit::Bytes,
            "Stored bytes that were expected",
            |it| Value::Real(it.expected_stored_bytes),
        ),
        Field::gauge("compression", Unit::Ratio, "Raw over stored bytes", |it| {
            it.ratio().into()
        }),
        Field::counter("encode", Unit::Seconds, "Core time spent encoding", |it| {
            Value::Real(it.encode.0)
        }),
        Field::counter(
            "expected_encode",
            Unit::Seconds,
            "Encoding time that was expected",
            |it| Value::Real(it.expected_encode.0),
        ),
        Field::counter("reads", Unit::None, "Blocks read", |it| {
            Value::Count(it.reads)
        }),
        Field::counter("read", Unit::Bytes, "Bytes read, after decoding", |it| {
            Value::Count(it.read_bytes)
        }),
        Field::counter("decode", Unit::Seconds, "Core time spent decoding", |it| {
            Value::Real(it.decode.0)
        }),
        Field::counter(
            "energy",
            Unit::Joules,
            "Metered energy of encoding and decoding",
            |it| Value::Real(it.energy.0),
        ),
    ],
);

/// The fields of the whole ledger. Costs have the unit of the place's prices, which its label `cost_unit` should name.
pub const LEDGER_FIELDS: FieldTable<LedgerStats> = FieldTable::new(
    "breakeven_ledger",
    &[
        Field::gauge(
            "saved_cost",
            Unit::None,
            "Cost saved by compressing, by samples",
            |it| it.earnings.map(|earned| earned.saved_cost.mean).into(),
        ),
        Field::gauge(
            "saved_cost_low",
            Unit::None,
            "Lower end of its 95 % interval",
            |it| it.earnings.map(|earned| earned.saved_cost.low).into(),
        ),
        Field::gauge(
            "saved_cost_high",
            Unit::None,
            "Upper end of its 95 % interval",
            |it| it.earnings.map(|earned| earned.saved_cost.high).into(),
        ),
        Field::gauge(
            "saved",
            Unit::Ratio,
            "Cost saved over the cost of not compressing",
            |it| it.earnings.map(|earned| earned.saved_share.mean).into(),
        ),
        Field::gauge(
            "expected_saved_cost",
            Unit::None,
            "Cost that was expected to be saved",
            |it| Value::Real(it.expected_saving),
        ),
        Field::gauge(
            "missed_cost",
            Unit::None,
            "Cost compressing would have saved on raw blocks",
            |it| it.missed.map(|missed| missed.mean).into(),
        ),
        Field::counter(
            "store_cost",
            Unit::None,
            "Cost of storing every block raw",
            |it| Value::Real(it.store_cost),
        ),
        Field::counter(
            "overhead_cost",
            Unit::None,
            "Cost of deciding and sampling",
            |it| Value::Real(it.overhead_cost),
        ),
        Field::counter(
            "samples",
            Unit::None,
            "Blocks on which both choices were measured",
            |it| Value::Count(it.samples),
        ),
    ],
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::decision::{Offer, choose};
    use crate::decide::price::{BlockLife, Prices, Quantities};
    use crate::decide::profile::{Factor, MethodEstimate};

    const RAW_BYTES: u64 = 1000;

    /// A decision that expects zstd:3 to leave a share of the cost of storing raw, which is 1.
    fn decision(class: Class, stored: f64) -> Decision {
        let estimate = MethodEstimate {
            encode_seconds_per_byte: Factor::exact(1e-9),
            decode_seconds_per_byte: Factor::exact(1e-9),
            stored_per_raw: Factor::exact(stored),
        };
        let prices = Prices {
            per_byte_written: Estimate::exact(1.0 / RAW_BYTES as f64),
            ..Prices::default()
        };
        let life = BlockLife::new(class, RAW_BYTES);
        let offer = Offer::new("zstd:3".parse().unwrap(), Quantities::of(&estimate, &life));
        choose(&life, &prices, 1.0, [offer])
    }

    fn written(stored_bytes: u64) -> Written {
        Written {
            stored_bytes,
            encode: Seconds(0.5),
            energy: Joules(2.0),
        }
    }

    fn found(saving: f64) -> Counterfactual {
        Counterfactual {
            store_cost: 1.0,
            codec_cost: 1.0 - saving,
        }
    }

    #[test]
    fn work_is_counted_exactly_and_threads_add_up() {
        let (mut whole, mut threads) = (Ledger::default(), [Ledger::default(), Ledger::default()]);
        let mut books = Ledger::default();
        for index in 0..100 {
            let class = Class::place(index % 3);
            let decision = decision(class, 0.5);
            let thread = &mut threads[usize::from(index % 2)];
            for ledger in [&mut whole, thread] {
                ledger.wrote(&decision, &written(400));
                let fetched = Fetched {
                    raw_bytes: RAW_BYTES,
                    decode: Seconds(0.25),
                    energy: Joules(0.0),
                };
                ledger.read(class, decision.method, &fetched);
                ledger.counterfactual(&decision, &found(0.4));
                ledger.overhead(0.01);
            }
            if index % 10 == 0 {
                threads.iter_mut().for_each(|it| books.merge(&it.take()));
            }
        }
        threads.iter_mut().for_each(|it| books.merge(&it.take()));
        let expected = Account {
            blocks: 100,
            raw_bytes: 100_000,
            stored_bytes: 40_000,
            expected_stored_bytes: 50_000.0,
            encode: Seconds(50.0),
            expected_encode: Seconds(1e-4),
            reads: 100,
            read_bytes: 100_000,
            decode: Seconds(25.0),
            energy: Joules(200.0),
        };
        for ledger in [&whole, &books] {
            let total = ledger.total();
            assert!((total.expected_encode.0 - 1e-4).abs() < 1e-12);
            let total = Account {
                expected_encode: expected.expected_encode,
                ..total
            };
            assert_eq!(total, expected);
            assert_eq!(ledger.accounts().count(), 3);
            let earned = ledger.earnings().unwrap();
            assert!((earned.saved_cost.mean - 39.0).abs() < 1e-9, "{earned:?}");
            assert!((earned.saved_share.mean - 0.39).abs() < 1e-9, "{earned:?}");
        }
        assert_eq!(threads[0].total(), Account::default());
    }

    #[test]
    fn accounts_are_bounded() {
        let mut ledger = Ledger::default();
        for number in 0..2000 {
            ledger.wrote(&decision(Class::place(number), 0.5), &written(500));
        }
        assert_eq!(ledger.accounts().count(), Ledger::ACCOUNTS_MAX + 1);
        assert_eq!(ledger.total().blocks, 2000);
        let mut twice = ledger.clone();
        twice.merge(&ledger);
        assert_eq!(twice.total().blocks, 4000);
        assert!(
            twice
                .text(&[])
                .contains("class=other method=other blocks 1952\n")
        );
    }

    #[test]
    fn the_books_are_rendered_three_ways() {
        let mut ledger = Ledger::default();
        ledger.wrote(&decision(Class::TEXT, 0.5), &written(400));
        let labels = [
            ("place", "stream".to_string()),
            ("cost_unit", "seconds".to_string()),
        ];
        let text = ledger.text(&labels);
        let account = "place=stream cost_unit=seconds class=text method=zstd:3";
        for line in [
            format!("{account} compression_ratio 2.5\n"),
            format!("{account} energy_joules 2.0\n"),
            "place=stream cost_unit=seconds saved_cost -\n".to_string(),
        ] {
            assert!(text.contains(&line), "{text}");
        }
        let json = ledger.json(&labels);
        assert_eq!(json["accounts"][0]["stored_bytes"], 400);
        assert_eq!(json["ledger"][0]["samples"], 0);
        let exposition = ledger.prometheus(&labels);
        check_exposition(&exposition);
        let line = "breakeven_account_raw_bytes_total{place=\"stream\",cost_unit=\"seconds\",\
                    class=\"text\",method=\"zstd:3\"} 1000\n";
        assert!(exposition.contains(line), "{exposition}");
    }

    /// Checks the rules of the Prometheus text format: each family occurs once, HELP and TYPE stand before its samples,
    /// and every sample belongs to the last announced family.
    fn check_exposition(text: &str) {
        let mut families = std::collections::BTreeSet::new();
        let mut family = String::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split(' ').next().unwrap().to_string();
                assert!(families.insert(family.clone()), "{family} twice");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, family);
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            } else {
                let name = line.split(['{', ' ']).next().unwrap();
                assert_eq!(name, family);
                let value = line.rsplit_once(' ').unwrap().1;
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        let fields = LEDGER_FIELDS.fields().len() + ACCOUNT_FIELDS.fields().len();
        assert_eq!(families.len(), fields);
    }
}
