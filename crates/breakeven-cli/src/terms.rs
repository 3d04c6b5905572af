//! The cost of a core's time, a joule and a kept byte here: the price file, and the machine's watts.

use std::path::Path;

use anyhow::Result;
use breakeven::decide;
use breakeven::medium::{Direction, Medium, Operation, Pattern};
use breakeven::meter::{Clock, EnergyMeter, EnergyOptions, Machine, MachineProfile, PowerModel};
use breakeven::units::{BytesPerSecond, Estimate, Euros, Joules, Seconds};

use crate::environment;
use crate::prices::PriceFile;

/// The medium that joules are counted for where no link was given. It is the one that `advise` assumes for a medium
/// that could not be measured.
pub const MEDIUM_ASSUMED: &str = "nvme";

/// Seconds of a day.
pub const DAY_SECONDS: f64 = 86_400.0;

/// Prices and watts.
pub struct Terms {
    file: PriceFile,
    /// The machine's watts over its load.
    pub power: PowerModel,
}

impl Terms {
    /// Reads the price file, or takes the prices that come with the program, and finds the machine's watts. Counters
    /// are not asked: learning from them takes seconds, and only core time is priced here.
    pub fn read(path: Option<&Path>, machine: &Machine) -> Result<Terms> {
        let file = PriceFile::load(path)?;
        let options = EnergyOptions {
            profile_path: environment::cache_folder()
                .map(|folder| MachineProfile::path_in(&folder)),
            counters: false,
            ..EnergyOptions::default()
        };
        let meter = EnergyMeter::choose(&options, machine, Clock::real())?;
        Ok(Terms {
            file,
            power: meter.model().clone(),
        })
    }

    /// Returns when the prices were looked up.
    pub fn date(&self) -> &str {
        &self.file.date
    }

    /// Returns the cost of a core's second, rent and energy.
    pub fn core_second(&self) -> Euros {
        let prices = &self.file.prices;
        let rent = prices.thread_rent(self.file.machine_threads, Seconds(1.0));
        let joules = Joules(self.power.marginal_watts_per_core().0);
        rent + prices.cooled_energy_cost(joules)
    }

    /// Returns the cost of keeping bytes for some days.
    pub fn keeping(&self, bytes: f64, days: f64) -> Euros {
        let time = Seconds(days * DAY_SECONDS);
        self.file.prices.storage_cost(bytes, time).total()
    }

    /// Returns the cost of seconds and bytes in joules, over a link or, without one, on [`MEDIUM_ASSUMED`]. While a
    /// byte is written or read, the machine idles. While a core works, the part of the machine for its thread works.
    ///
    /// Source: Kothiyal 2009, section 3.2 (passive and active energy).
    pub fn joules(&self, link: Option<BytesPerSecond>, threads: u32) -> Result<decide::Prices> {
        let medium: Medium = match link {
            Some(link) => format!("{}MB/s", link.mb_per_second()).parse()?,
            None => MEDIUM_ASSUMED.parse()?,
        };
        let idle = self.power.idle_watts().0;
        let byte = |direction: Direction| {
            let stream = Operation {
                bytes: 1 << 20,
                pattern: Pattern::Sequential,
                direction,
                depth: 4,
            };
            let watts = idle + medium.service(direction).watts_above_idle.estimate.mean;
            Estimate::exact(watts / medium.bytes_per_second(stream).mean)
        };
        let core = self.power.marginal_watts_per_core().0 + idle / f64::from(threads.max(1));
        Ok(decide::Prices {
            per_core_second: Estimate::exact(core),
            per_byte_written: byte(Direction::Write),
            per_byte_read: byte(Direction::Read),
            ..decide::Prices::default()
        })
    }

    /// Returns the prices by which methods are picked, in euros.
    pub fn prices(&self) -> decide::Prices {
        let per_byte_second = self.file.prices.storage_cost(1.0, Seconds(1.0)).total();
        decide::Prices {
            per_core_second: Estimate::exact(self.core_second().0),
            per_byte_second_held: Estimate::exact(per_byte_second.0),
            ..decide::Prices::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use breakeven::meter::Roots;

    use super::*;

    #[test]
    fn terms_are_those_of_the_price_file() {
        let machine = Machine::read(&Roots::default());
        let terms = Terms::read(None, &machine).expect("the default prices");
        // Hirsch 2017, section 3.4.2: a GB for a year costs 0.053 EUR with cheaper electricity.
        let year = terms.keeping(1e9, 365.0).0;
        assert!((0.05..0.06).contains(&year), "{year}");
        let prices = terms.prices();
        let held = prices.per_byte_second_held.mean * 1e9 * 365.0 * DAY_SECONDS;
        assert!((held / year - 1.0).abs() < 1e-9, "{held}");
        // The rent of one of 24 threads of a server for 7000 EUR, over 3 years with 15 % of maintenance.
        let rent = 7000.0 * (1.0 / 3.0 + 0.15) / (24.0 * 365.0 * DAY_SECONDS);
        let core = prices.per_core_second.mean;
        assert!(core > rent && core < 20.0 * rent, "{core}");
    }

    /// Slow links make bytes dear: the machine idles for their time.
    #[test]
    fn a_byte_costs_the_joules_of_the_time_that_it_takes() {
        let machine = Machine::read(&Roots::default());
        let terms = Terms::read(None, &machine).expect("the default prices");
        let at = |mb_s: Option<f64>| {
            let link = mb_s.map(|mb_s| BytesPerSecond(1e6 * mb_s));
            terms.joules(link, 4).expect("prices")
        };
        let (slow, fast) = (at(Some(1.0)), at(Some(100.0)));
        let ratio = slow.per_byte_written.mean / fast.per_byte_written.mean;
        assert!((ratio / 100.0 - 1.0).abs() < 0.05, "{ratio}");
        let idle = terms.power.idle_watts().0;
        assert!(slow.per_byte_written.mean >= idle / 1e6);
        assert_eq!(slow.per_core_second, at(None).per_core_second);
        assert!(slow.per_core_second.mean > idle / 4.0);
    }
}
