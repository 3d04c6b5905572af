//! The choice of each block's method: resolves the typed options to values for this stream.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::Path;

use anyhow::Result;
use breakeven::codec::Method;
use breakeven::decide::{Class, Profile};
use breakeven::meter::Machine;
use breakeven::stream::{Books, Choice, Goal, Priced};
use breakeven::units::{BytesPerSecond, Seconds};

use crate::learned;
use crate::options::{MoneyOptions, Strategy};
use crate::terms::{DAY_SECONDS, Terms};

/// The days kept and the reads, for the cost in money.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    pub days: f64,
    pub reads: f64,
}

/// This machine, its prices, and the profile of its codecs: learned from file to file, and kept for the next run. Each
/// is looked up on first use.
pub struct Setting<'a> {
    money: &'a MoneyOptions,
    pub days: f64,
    /// The given link, by which joules are counted.
    link: Option<BytesPerSecond>,
    machine: OnceCell<Machine>,
    terms: OnceCell<Terms>,
    profile: RefCell<Option<Profile>>,
    has_learned: Cell<bool>,
}

impl<'a> Setting<'a> {
    /// Makes a setting for data kept some days.
    pub fn new(money: &'a MoneyOptions, days: f64, link: Option<BytesPerSecond>) -> Setting<'a> {
        Setting {
            money,
            days,
            link,
            machine: OnceCell::new(),
            terms: OnceCell::new(),
            profile: RefCell::new(None),
            has_learned: Cell::new(false),
        }
    }

    fn machine(&self) -> &Machine {
        let read = || Machine::of_this_process();
        self.machine.get_or_init(read)
    }

    /// Returns the hardware threads of the machine.
    pub fn threads(&self) -> u32 {
        self.machine().threads
    }

    /// Returns the prices, which are read on first use.
    pub fn terms(&self) -> Result<&Terms> {
        if self.terms.get().is_none() {
            let path: Option<&Path> = self.money.prices.as_deref();
            let terms = Terms::read(path, self.machine())?;
            let _ = self.terms.set(terms);
        }
        Ok(self.terms.get().expect("it was set"))
    }

    /// Returns the goal of a strategy on this machine.
    pub fn goal(&self, strategy: Strategy) -> Result<Goal> {
        Ok(match strategy {
            Strategy::Fastest => Goal::Fastest,
            Strategy::Within(factor) => Goal::Within(factor),
            Strategy::Smallest => Goal::Smallest,
            Strategy::Money => Goal::Money {
                prices: self.terms()?.prices(),
                held: Seconds(self.days * DAY_SECONDS),
                reads: self.money.reads,
            },
            Strategy::Energy => Goal::Energy {
                prices: self.terms()?.joules(self.link, self.threads())?,
                reads: self.money.reads,
            },
        })
    }

    /// Returns days and reads.
    pub fn kept(&self) -> Kept {
        Kept {
            days: self.days,
            reads: self.money.reads,
        }
    }

    /// Returns the profile of the codecs so far.
    pub fn profile(&self) -> Profile {
        let mut profile = self.profile.borrow_mut();
        let load = || learned::load(self.machine());
        profile.get_or_insert_with(load).clone()
    }

    /// Returns the choice among some methods by a goal.
    pub fn choice(&self, goal: Goal, arms: Vec<Method>, link: Option<BytesPerSecond>) -> Choice {
        Choice::Priced(Box::new(Priced {
            goal,
            arms,
            link,
            profile: self.profile(),
        }))
    }

    /// Adds the measurements of a stream.
    pub fn learn(&self, books: &Books) {
        if let Some(profile) = books.profile() {
            *self.profile.borrow_mut() = Some(profile);
            let ledger = books.ledger();
            let mut accounts = ledger.accounts();
            let is_seen = accounts.any(|it| it.0.is_none_or(|(class, _)| class != Class::UNSEEN));
            self.has_learned.set(self.has_learned.get() || is_seen);
        }
    }

    /// Keeps the measurements for the next run, even if they are of few blocks. Some machines pack only many small
    /// files. Nothing else would then correct the measurements of one long run under load.
    pub fn keep(&self, is_quiet: bool) {
        if self.has_learned.get() {
            learned::keep(&self.profile(), self.machine(), is_quiet);
        }
    }
}
