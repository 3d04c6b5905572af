//! Prices of machines, storage and energy: the fields of a price list and their arithmetic.
//!
//! A price list is data: the dated file that a user edits is read elsewhere and passed in. The one list here,
//! [`HIRSCH_2017`], is the thesis's, kept to compute its figures again.
//!
//! An investment is spread evenly over its lifetime. Maintenance is a share of the investment for every year, and
//! cooling is a share on top of the power. A year has 365 days, a GB 10^9 bytes, a PB 10^15 bytes. The list's watts
//! need not be those of the machine that measures.
//!
//! Source: Hirsch 2017, section 3.4.

use serde::{Deserialize, Serialize};

use super::transfer::ComputePrices;
use crate::units::{Euros, Joules, Seconds, Watts};

const JOULES_PER_KWH: f64 = 3.6e6;
const SECONDS_PER_YEAR: f64 = 365.0 * 86_400.0;
const BYTES_PER_PB: f64 = 1e15;

/// A price list.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Price of electrical energy in EUR per kWh.
    pub eur_per_kwh: f64,
    /// The machine that compresses.
    pub machine: MachinePrices,
    /// The storage that keeps the data.
    pub storage: StoragePrices,
}

/// The prices of a computing machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachinePrices {
    /// Purchase price in EUR.
    pub investment_eur: f64,
    /// Years until it is replaced.
    pub lifetime_years: f64,
    /// Maintenance for one year as a share of the investment.
    pub maintenance_share_per_year: f64,
    /// Power when all cores are busy, in watts, cooling excluded.
    pub power_watts: f64,
    /// Power when idle as a share of `power_watts`, 0 to 1.
    pub idle_share: f64,
    /// Power for cooling as a share of the machine's.
    pub cooling_share: f64,
}

/// The prices of a petabyte of storage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoragePrices {
    /// Purchase price in EUR per PB (10^15 bytes).
    pub investment_eur_per_pb: f64,
    /// Years until it is replaced.
    pub lifetime_years: f64,
    /// Maintenance for one year as a share of the investment.
    pub maintenance_share_per_year: f64,
    /// Power in watts per PB, cooling excluded.
    pub power_watts_per_pb: f64,
    /// Power for cooling as a share of the storage's.
    pub cooling_share: f64,
}

/// The thesis's examples: a dual-socket server and a petabyte at the DKRZ.
///
/// Source: Hirsch 2017, sections 3.4.1 and 3.4.2.
pub const HIRSCH_2017: Prices = Prices {
    eur_per_kwh: 0.14,
    machine: MachinePrices {
        investment_eur: 7_000.0,
        lifetime_years: 3.0,
        maintenance_share_per_year: 0.15,
        power_watts: 300.0,
        idle_share: 0.25,
        cooling_share: 0.25,
    },
    storage: StoragePrices {
        investment_eur_per_pb: 100_000.0,
        lifetime_years: 3.0,
        maintenance_share_per_year: 0.15,
        power_watts_per_pb: 3_000.0,
        cooling_share: 0.25,
    },
};

/// A cost split into its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostParts {
    /// The share of the purchase.
    pub investment: Euros,
    /// The share of maintenance.
    pub maintenance: Euros,
    /// Energy, cooling included.
    pub energy: Euros,
}

impl CostParts {
    /// Returns the sum of the parts.
    pub fn total(&self) -> Euros {
        self.investment + self.maintenance + self.energy
    }
}

impl Prices {
    /// Returns the name of the first field outside its range: negative or not a number anywhere, a lifetime of 0, an
    /// idle share above 1. A list from outside must be checked once.
    pub fn fault(&self) -> Option<&'static str> {
        let Prices {
            eur_per_kwh,
            machine,
            storage,
        } = self;
        let amounts = [
            ("eur_per_kwh", *eur_per_kwh),
            ("machine.investment_eur", machine.investment_eur),
            (
                "machine.maintenance_share_per_year",
                machine.maintenance_share_per_year,
            ),
            ("machine.power_watts", machine.power_watts),
            ("machine.idle_share", machine.idle_share),
            ("machine.cooling_share", machine.cooling_share),
            (
                "storage.investment_eur_per_pb",
                storage.investment_eur_per_pb,
            ),
            (
                "storage.maintenance_share_per_year",
                storage.maintenance_share_per_year,
            ),
            ("storage.power_watts_per_pb", storage.power_watts_per_pb),
            ("storage.cooling_share", storage.cooling_share),
        ];
        let lifetimes = [
            ("machine.lifetime_years", machine.lifetime_years),
            ("storage.lifetime_years", storage.lifetime_years),
        ];
        let amount = amounts
            .iter()
            .find(|(_, value)| !(value.is_finite() && *value >= 0.0));
        let lifetime = lifetimes
            .iter()
            .find(|(_, value)| !(value.is_finite() && *value > 0.0));
        let idle = (machine.idle_share > 1.0).then_some("machine.idle_share");
        amount.or(lifetime).map(|(name, _)| *name).or(idle)
    }

    /// Returns the price of measured or modelled energy, without cooling.
    pub fn energy_cost(&self, energy: Joules) -> Euros {
        Euros(energy.0 / JOULES_PER_KWH * self.eur_per_kwh)
    }

    /// Returns the price of energy that a machine's processors draw, with the energy for cooling them.
    pub fn cooled_energy_cost(&self, energy: Joules) -> Euros {
        self.energy_cost(energy) * (1.0 + self.machine.cooling_share)
    }

    /// Returns the rent of one of the machine's `threads` hardware threads for `time`: its share of
    /// purchase and maintenance, without energy.
    pub fn thread_rent(&self, threads: f64, time: Seconds) -> Euros {
        let parts = self.machine_cost(time);
        (parts.investment + parts.maintenance) / threads
    }

    /// Returns the cost of using the machine alone for `time`.
    ///
    /// Source: Hirsch 2017, section 3.4.1, the first four formulas.
    pub fn machine_cost(&self, time: Seconds) -> CostParts {
        let machine = &self.machine;
        let years = time.0 / SECONDS_PER_YEAR;
        CostParts {
            investment: Euros(machine.investment_eur * years / machine.lifetime_years),
            maintenance: Euros(machine.investment_eur * machine.maintenance_share_per_year * years),
            energy: self.energy_cost(self.busy() * time),
        }
    }

    /// Returns the cost of a busy machine for `time` that would otherwise wait: energy above idle, cooling included,
    /// and nothing else.
    ///
    /// Source: Hirsch 2017, section 3.4.1, last formula.
    pub fn machine_cost_above_idle(&self, time: Seconds) -> Euros {
        self.energy_cost((self.busy() - self.idle()) * time)
    }

    /// Returns the cost of keeping `bytes` for `time`.
    ///
    /// Source: Hirsch 2017, section 3.4.2.
    pub fn storage_cost(&self, bytes: f64, time: Seconds) -> CostParts {
        let storage = &self.storage;
        let petabytes = bytes / BYTES_PER_PB;
        let years = time.0 / SECONDS_PER_YEAR;
        let investment = storage.investment_eur_per_pb * petabytes;
        let power = Watts(storage.power_watts_per_pb * petabytes * (1.0 + storage.cooling_share));
        CostParts {
            investment: Euros(investment * years / storage.lifetime_years),
            maintenance: Euros(investment * storage.maintenance_share_per_year * years),
            energy: self.energy_cost(power * time),
        }
    }

    /// Returns the prices for a write call, cooling included in the watts.
    pub fn compute(&self) -> ComputePrices {
        ComputePrices {
            busy: self.busy(),
            idle: self.idle(),
            eur_per_kwh: self.eur_per_kwh,
            machine_eur_per_hour: self.machine_cost(Seconds(3600.0)).total().0,
        }
    }

    fn busy(&self) -> Watts {
        Watts(self.machine.power_watts * (1.0 + self.machine.cooling_share))
    }

    fn idle(&self) -> Watts {
        self.busy() * self.machine.idle_share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::assert_close;

    #[track_caller]
    fn check(found: Euros, expected: &str) {
        let decimals = expected.len() - 2;
        assert_eq!(format!("{:.decimals$}", found.0), expected);
    }

    /// Section 3.4.1: 5 s of the server for a GB.
    #[test]
    fn hirsch_compresses_a_gigabyte() {
        let cost = HIRSCH_2017.machine_cost(Seconds(5.0));
        check(cost.investment, "0.00037");
        check(cost.maintenance, "0.00017");
        check(cost.energy, "0.000073");
        check(cost.total(), "0.00061");
        check(
            HIRSCH_2017.machine_cost_above_idle(Seconds(5.0)),
            "0.000055",
        );
    }

    /// Section 3.4.2: a GB for a year.
    #[test]
    fn hirsch_stores_a_gigabyte() {
        let cost = HIRSCH_2017.storage_cost(1e9, Seconds(SECONDS_PER_YEAR));
        check(cost.investment + cost.maintenance, "0.048");
        check(cost.energy, "0.0046");
        check(cost.total(), "0.053");
    }

    #[test]
    fn a_write_call_pays_the_same_prices() {
        let compute = HIRSCH_2017.compute();
        let time = Seconds(5.0);
        let whole = HIRSCH_2017.machine_cost(time).total();
        assert_close("whole", compute.machine(time).0, whole.0, 1e-12);
        let above_idle = HIRSCH_2017.machine_cost_above_idle(time);
        assert_close("above", compute.above_idle(time).0, above_idle.0, 1e-12);
    }

    #[test]
    fn faults_name_the_field() {
        assert_eq!(HIRSCH_2017.fault(), None);
        let check = |change: fn(&mut Prices), expected: &str| {
            let mut prices = HIRSCH_2017;
            change(&mut prices);
            assert_eq!(prices.fault(), Some(expected));
        };
        check(|prices| prices.eur_per_kwh = -0.1, "eur_per_kwh");
        check(
            |prices| prices.machine.power_watts = f64::NAN,
            "machine.power_watts",
        );
        check(
            |prices| prices.storage.lifetime_years = 0.0,
            "storage.lifetime_years",
        );
        check(
            |prices| prices.machine.idle_share = 1.5,
            "machine.idle_share",
        );
    }

    #[test]
    fn a_price_list_survives_its_file_and_refuses_unknown_fields() {
        let text = serde_json::to_string(&HIRSCH_2017).expect("plain numbers are JSON");
        assert_eq!(
            serde_json::from_str::<Prices>(&text).ok(),
            Some(HIRSCH_2017)
        );
        let wrong = text.replace("idle_share", "idle_part");
        assert!(serde_json::from_str::<Prices>(&wrong).is_err());
    }
}
