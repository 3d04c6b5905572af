//! The processor of this machine, and the power of its family.
//!
//! The identity is that of `/proc/cpuinfo`: vendor, family, model and stepping, or implementer and part on ARM. The
//! table of watts is small and stands here with its source. Only families in the table are named. A client part of a
//! server's core draws several times as much for each core, so it is left to the default and its wider band.

#![deny(unsafe_code)]

use std::fmt;

use serde::{Deserialize, Serialize};

/// The identity of a processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// `AuthenticAMD`, `GenuineIntel`, or `arm-` and the implementer's number; empty if unknown.
    pub vendor: String,
    /// The vendor's family number, 0 on ARM.
    pub family: u32,
    /// The model number within the family; the part number on ARM.
    pub model: u32,
    /// The stepping, 0 where there is none.
    pub stepping: u32,
    /// The marketing name, as the kernel gives it.
    pub name: String,
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} family {} model {} stepping {})",
            if self.name.is_empty() {
                "unknown processor"
            } else {
                &self.name
            },
            if self.vendor.is_empty() {
                "unknown vendor"
            } else {
                &self.vendor
            },
            self.family,
            self.model,
            self.stepping
        )
    }
}

/// Median watts of the SPECpower_ssj2008 results of one processor family, whole server at the wall. They are given at
/// idle, at full load for each hardware thread, and for one more busy core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FamilyPower {
    /// The family's name.
    pub family: &'static str,
    /// Published results behind the medians.
    pub results: u32,
    /// Watts for each hardware thread at active idle.
    pub idle_w_per_thread: f64,
    /// Watts for each hardware thread at full load.
    pub full_w_per_thread: f64,
    /// Watts that one more busy core adds.
    pub marginal_w_per_core: f64,
}

const fn row(
    family: &'static str,
    results: u32,
    idle_w_per_thread: f64,
    full_w_per_thread: f64,
    marginal_w_per_core: f64,
) -> FamilyPower {
    FamilyPower {
        family,
        results,
        idle_w_per_thread,
        full_w_per_thread,
        marginal_w_per_core,
    }
}

/// Medians by family of the results published at spec.org/power_ssj2008/results.
/// Each column is its own median, so marginal is close to, not equal to, full less idle.
pub const SPECPOWER_MEDIANS: [FamilyPower; 18] = [
    row("amd-epyc-gen1", 10, 0.7438, 2.3203, 3.1922),
    row("amd-epyc-gen2", 36, 0.4371, 1.6641, 2.4363),
    row("amd-epyc-gen3", 28, 0.4238, 1.9160, 2.9652),
    row("amd-epyc-gen4", 42, 0.3768, 1.8490, 2.9599),
    row("amd-epyc-gen5", 43, 0.2166, 1.1781, 1.9812),
    row("arm-neoverse-n1", 7, 0.6172, 1.9219, 0.9766),
    row("intel-broadwell", 13, 0.5102, 3.0227, 4.9182),
    row("intel-cascadelake", 75, 0.6027, 4.0407, 6.6607),
    row("intel-coffeelake", 9, 1.0500, 5.9750, 9.6667),
    row("intel-emeraldrapids", 3, 0.7867, 2.9083, 4.2433),
    row("intel-graniterapids", 30, 0.5952, 2.6933, 4.0872),
    row("intel-haswell", 17, 0.6569, 3.8333, 6.4167),
    row("intel-icelake", 30, 0.8297, 4.0563, 6.2493),
    row("intel-ivybridge", 3, 1.3917, 5.4583, 8.1333),
    row("intel-sandybridge", 135, 1.7604, 7.8633, 11.9375),
    row("intel-sapphirerapids", 47, 0.9458, 4.0000, 6.0375),
    row("intel-skylake-client", 4, 1.9000, 5.9313, 8.1000),
    row("intel-skylake-server", 78, 0.5304, 4.1183, 7.2366),
];

impl Processor {
    /// Reads the first processor's identity from the text of `/proc/cpuinfo`; what is missing
    /// stays empty or 0.
    pub fn from_cpuinfo(text: &str) -> Processor {
        let field = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim())
            })
        };
        let number = |name: &str| {
            let value = field(name)?;
            match value.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => value.parse().ok(),
            }
        };
        let text_of = |name: &str| field(name).unwrap_or("").to_string();
        if let Some(implementer) = field("CPU implementer") {
            return Processor {
                vendor: format!("arm-{implementer}"),
                family: 0,
                model: number("CPU part").unwrap_or(0),
                stepping: number("CPU revision").unwrap_or(0),
                name: text_of("model name"),
            };
        }
        Processor {
            vendor: text_of("vendor_id"),
            family: number("cpu family").unwrap_or(0),
            model: number("model").unwrap_or(0),
            stepping: number("stepping").unwrap_or(0),
            name: text_of("model name"),
        }
    }

    /// Returns the watts of this processor's family, if the table has it.
    pub fn family_power(&self) -> Option<&'static FamilyPower> {
        let family = match self.vendor.as_str() {
            "AuthenticAMD" => self.amd_family()?,
            "GenuineIntel" if self.family == 6 => self.intel_family()?,
            "arm-0x41" if self.model == 0xd0c => "arm-neoverse-n1",
            _ => return None,
        };
        let found = SPECPOWER_MEDIANS.iter().find(|row| row.family == family);
        assert!(found.is_some(), "no watts for the known family {family}");
        found
    }

    /// Server models of Zen 1 to Zen 5; the other models of these families are client parts.
    fn amd_family(&self) -> Option<&'static str> {
        match (self.family, self.model) {
            (0x17, 0x00..=0x07) => Some("amd-epyc-gen1"),
            (0x17, 0x30..=0x3f) => Some("amd-epyc-gen2"),
            (0x19, 0x00..=0x07) => Some("amd-epyc-gen3"),
            (0x19, 0x10..=0x17) | (0x19, 0xa0..=0xaf) => Some("amd-epyc-gen4"),
            (0x1a, 0x00..=0x07) | (0x1a, 0x10..=0x17) => Some("amd-epyc-gen5"),
            _ => None,
        }
    }

    /// Models of family 6. Skylake-SP and Cascade Lake share a number and differ in stepping.
    fn intel_family(&self) -> Option<&'static str> {
        match self.model {
            0x2d => Some("intel-sandybridge"),
            0x3e => Some("intel-ivybridge"),
            0x3f => Some("intel-haswell"),
            0x4f | 0x56 => Some("intel-broadwell"),
            0x5e => Some("intel-skylake-client"),
            0x9e => Some("intel-coffeelake"),
            0x55 if self.stepping <= 4 => Some("intel-skylake-server"),
            0x55 => Some("intel-cascadelake"),
            0x6a | 0x6c => Some("intel-icelake"),
            0x8f => Some("intel-sapphirerapids"),
            0xcf => Some("intel-emeraldrapids"),
            0xad | 0xae => Some("intel-graniterapids"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cpuinfo: &str, expected: Option<&str>) -> Processor {
        let processor = Processor::from_cpuinfo(cpuinfo);
        let found = processor.family_power().map(|power| power.family);
        assert_eq!(found, expected, "{processor}");
        processor
    }

    fn x86(vendor: &str, family: u32, model: u32, stepping: u32) -> String {
        format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
             model name\t: A Processor: Fast @ 2.80GHz\nstepping\t: {stepping}\n\nprocessor\t: 1\n\
             vendor_id\t: Other\n"
        )
    }

    #[test]
    fn families_are_told_by_family_model_and_stepping() {
        let cases = [
            ("AuthenticAMD", 23, 1, 2, Some("amd-epyc-gen1")),
            ("AuthenticAMD", 23, 49, 0, Some("amd-epyc-gen2")),
            ("AuthenticAMD", 23, 113, 0, None),
            ("AuthenticAMD", 25, 1, 1, Some("amd-epyc-gen3")),
            ("AuthenticAMD", 25, 17, 1, Some("amd-epyc-gen4")),
            ("AuthenticAMD", 25, 160, 2, Some("amd-epyc-gen4")),
            ("AuthenticAMD", 25, 33, 0, None),
            ("AuthenticAMD", 26, 2, 1, Some("amd-epyc-gen5")),
            ("AuthenticAMD", 26, 68, 0, None),
            ("GenuineIntel", 6, 45, 7, Some("intel-sandybridge")),
            ("GenuineIntel", 6, 85, 4, Some("intel-skylake-server")),
            ("GenuineIntel", 6, 85, 7, Some("intel-cascadelake")),
            ("GenuineIntel", 6, 106, 6, Some("intel-icelake")),
            ("GenuineIntel", 6, 143, 8, Some("intel-sapphirerapids")),
            ("GenuineIntel", 6, 207, 2, Some("intel-emeraldrapids")),
            ("GenuineIntel", 6, 173, 1, Some("intel-graniterapids")),
            ("GenuineIntel", 6, 183, 1, None),
            ("GenuineIntel", 15, 4, 1, None),
            ("HygonGenuine", 24, 1, 1, None),
        ];
        for (vendor, family, model, stepping, expected) in cases {
            let processor = check(&x86(vendor, family, model, stepping), expected);
            assert_eq!(processor.name, "A Processor: Fast @ 2.80GHz");
        }
        check(
            "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\nCPU revision\t: 1\n",
            Some("arm-neoverse-n1"),
        );
    }

    #[test]
    fn a_text_without_an_identity_names_no_family() {
        for text in [
            "",
            "garbage",
            ":::\n\0\u{fffd}",
            "model\t: minus one\nvendor_id\t:\n",
        ] {
            let processor = check(text, None);
            assert_eq!(processor, Processor::default());
        }
    }

    #[test]
    fn the_table_is_consistent() {
        for power in SPECPOWER_MEDIANS {
            assert!(
                power.results >= 3 && power.idle_w_per_thread > 0.0,
                "{power:?}"
            );
            assert!(
                power.full_w_per_thread > power.idle_w_per_thread,
                "{power:?}"
            );
            // One or two threads a core, within the spread of separate medians.
            let per_thread = power.full_w_per_thread - power.idle_w_per_thread;
            let threads_per_core = power.marginal_w_per_core / per_thread;
            assert!(
                (0.6..2.4).contains(&threads_per_core),
                "{power:?}: {threads_per_core}"
            );
        }
    }
}
